/*
 * The browser gate. Without admin keys, each sender of a request has the operator's permissions. A
 * web page of a different site must not get them through the operator's browser. Two rules apply to
 * every path, also with --insecure:
 *
 *     Host     an address, localhost, a name of this machine or of --listen, or one of
 *              --allowed-hosts (DNS rebinding gives an attacker's name our address)
 *     Origin   the site of Host or X-Forwarded-Host, or a name of --allowed-hosts; no
 *              Sec-Fetch-Site: cross-site
 *
 * A page cannot set X-Forwarded-Host on a request to a different site without a preflight, which is
 * refused. A request without these headers does not come from a browser.
 */
#ifndef RG_ROUTER_BROWSER_GATE_H
#define RG_ROUTER_BROWSER_GATE_H

struct buf;
struct config;
struct err;
struct http1_head;
struct hub;

/* Checks both rules. Returns -1 with ERR_HOST or ERR_ORIGIN if a page of a different site may have
 * sent the request. Logs and counts such requests. */
int browser_gate_check(const struct hub *h, const struct http1_head *head, struct err *e);

/* Appends a line to mistakes for each entry of --allowed-hosts that names no host. */
void browser_gate_check_hosts(const struct config *c, struct buf *mistakes);

#endif
