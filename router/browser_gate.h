/*
 * The browser gate: without admin keys, whoever sends a request is the operator. A web page of
 * another site must not be: its requests come from the operator's browser. Two rules, for every
 * path, also with --insecure:
 *
 *     Host     an address, localhost, a name of this machine or of --listen, or one of
 *              --allowed-hosts (DNS rebinding gives an attacker's name our address)
 *     Origin   the site of Host or X-Forwarded-Host, or a name of --allowed-hosts; no
 *              Sec-Fetch-Site: cross-site
 *
 * A page cannot set X-Forwarded-Host on a request to another site without a preflight, which is
 * refused. A request without these headers comes from no browser.
 */
#ifndef RG_ROUTER_BROWSER_GATE_H
#define RG_ROUTER_BROWSER_GATE_H

struct err;
struct http1_head;
struct hub;

/* Returns -1 and ERR_HOST or ERR_ORIGIN for a request that a page of another site may have sent.
 * Logs and counts it. */
int browser_gate_check(const struct hub *h, const struct http1_head *head, struct err *e);

#endif
