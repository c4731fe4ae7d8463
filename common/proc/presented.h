/*
 * struct presented: the keys that one request shows. Routers and workers read them with the same
 * code. So the worker that a router picks by a key accepts that key and no other. A key may be in
 *
 *     Authorization: Bearer KEY     the scheme in any case, blanks around the key do not count
 *     x-api-key: KEY                Anthropic's
 *     api-key: KEY                  Azure's
 *
 * in any of them, as often as the client likes. Clients also send tokens of other services, which
 * are ignored. Two different keys of ours (texts in the form of session keys, valid or not, and
 * admin keys) are refused, because one of them would be ignored.
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
    bool more; /* there were more texts than fit */
};

/* Adds the key in the value of one such header, unless it is there already. */
void presented_add(struct presented *p, enum presented_place place, struct str value);

/* Verifies the keys. Without any key, ret->scope is KEY_NONE. Returns -1 and ERR_INVALID if there
 * are different keys of ours, or too many texts. k NULL, or without admin keys: verifies nothing,
 * and scope stays KEY_NONE. */
int presented_prove(const struct presented *p, const struct keys *k, struct proof *ret,
                    struct err *e);

#endif
