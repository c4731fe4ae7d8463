/*
 * struct web_rules: what may be fetched at a client's request: the operator's list of hosts, and
 * addresses that are not public but allowed. Immutable once made, so any thread may use it.
 *
 *   HOST, *.HOST (names below it), *    by https, at port 443
 *   http://HOST                         by http as well, at port 80
 *   HOST:PORT, http://HOST:PORT         at that port only
 */
#ifndef RG_NET_WEB_RULES_H
#define RG_NET_WEB_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct sockaddr;
struct web_rules;
struct web_url;

/* Makes the rules. Each of `hosts` may contain several, separated by commas. Returns -1 with
 * ERR_CONFIG that names the bad one. */
RG_MUSTCHECK int web_rules_new(const char *const *hosts, size_t n_hosts, const char *const *nets,
                               size_t n_nets, struct web_rules **ret, struct err *e);
void web_rules_free(struct web_rules *r); /* accepts NULL */

/* Returns NULL if the URL is allowed, else the reason for a refusal. */
const char *web_rules_refuse(const struct web_rules *r, const struct web_url *u);

/* Reports whether a connection to that address is allowed. */
bool web_rules_let(const struct web_rules *r, const struct sockaddr *a);

#endif
