/*
 * Decides from which site a request comes, by the headers that browsers write: Host, Origin. Names
 * are compared in lower case and without a dot at their end. Pure.
 *
 * DNS rebinding needs a name: an attacker's name may be given the address of this machine. So an
 * address as Host, or a name that always means this machine, proves that no other site's name was
 * looked up.
 */
#ifndef RG_NET_WEB_ORIGIN_H
#define RG_NET_WEB_ORIGIN_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/net/web_url.h"

/* Reads HOST or HOST:PORT as web_authority_parse does, and also accepts a dot after a name and a
 * colon without a port. Returns NULL, or what is wrong. Sets host, bracketed, port and tls
 * (false). */
const char *web_host_parse(struct str text, struct web_url *ret);

/* Reports whether the host is an IP address, localhost or a name below localhost. */
bool web_host_is_local(const struct web_url *u);

/* Checks one --allowed-hosts value: a comma list of HOST, HOST:PORT, *.HOST (the names below
 * HOST). */
int web_hosts_check(struct str list, struct err *e);

/* Reports whether such a value contains the host. An entry without a port covers all ports. A host
 * without a port has the port of its scheme. */
bool web_hosts_has(struct str list, const struct web_url *u);

/* Reads an Origin header, http://HOST[:PORT] or https://HOST[:PORT]. Returns false for all others,
 * including null. Sets the scheme's port if it names none. */
bool web_origin_parse(struct str text, struct web_url *ret);

/* Reports whether the origin is the site of this Host header (or of X-Forwarded-Host, a comma
 * list). */
bool web_origin_is(const struct web_url *origin, struct str hosts);

#endif
