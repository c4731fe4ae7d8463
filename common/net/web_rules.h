/*
 * struct web_rules: from where things may be fetched that others name: the operator's list of
 * hosts, and the addresses that are none of the public internet's but let all the same. Immutable
 * once made, so any thread may ask.
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

/* Makes the rules. Each of `hosts` may hold several, separated by commas. ERR_CONFIG names the bad
 * one. */
RG_MUSTCHECK int web_rules_new(const char *const *hosts, size_t n_hosts, const char *const *nets,
                               size_t n_nets, struct web_rules **ret, struct err *e);
void web_rules_free(struct web_rules *r); /* NULL is fine */

/* Returns NULL, or the reason for a refusal. */
const char *web_rules_refuse(const struct web_rules *r, const struct web_url *u);

/* Whether that address may be connected to. */
bool web_rules_let(const struct web_rules *r, const struct sockaddr *a);

#endif
