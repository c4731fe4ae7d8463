/*
 * struct presented: the keys that one request shows, read alike by routers and workers, so that the
 * worker which a router picks by a key accepts that key and no other. A key stands in
 *
 *     Authorization: Bearer KEY     the scheme in any case, blanks around the key do not count
 *     x-api-key: KEY                Anthropic's
 *     api-key: KEY                  Azure's
 *
 * in any of them, as often as the client likes. Clients carry tokens of other services along, which
 * are none of our business; but two different keys of ours (session keys by their form, good or
 * not, and admin keys) are refused, because one of them would be ignored.
 */
#ifndef RG_PROC_PRESENTED_H
#define RG_PROC_PRESENTED_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct err;
struct keys;
struct proof;

enum { PRESENTED_MAX = 8 };

enum presented_place { PRESENTED_BEARER, PRESENTED_PLAIN };

struct presented {
    struct str at[PRESENTED_MAX]; /* different texts, borrowed from the head */
    size_t n;
    bool more; /* than fit */
};

/* Takes the value of one such header. */
void presented_add(struct presented *p, enum presented_place place, struct str value);

/* -1 and ERR_INVALID: different keys of ours, or more texts than anybody needs. k NULL, or without
 * admin keys: nothing is verified, scope stays KEY_NONE. */
int presented_prove(const struct presented *p, const struct keys *k, struct proof *ret,
                    struct err *e);

#endif
