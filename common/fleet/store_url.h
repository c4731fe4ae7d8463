/*
 * struct store_url: the address of a store, and the name of the fleet in it:
 *     redis://[USER@]HOST[:PORT][/DB][?name=NAME&password_file=FILE&sentinel=MASTER]
 * rediss:// is the same over TLS. With `sentinel`, HOST and PORT are a Sentinel's. Pure.
 */
#ifndef RG_FLEET_STORE_URL_H
#define RG_FLEET_STORE_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct store_url {
    bool tls;
    char *host; /* without the brackets of an IPv6 address */
    uint16_t port;
    uint32_t db;
    char *name;                            /* of the fleet; default "rollgate" */
    char *user, *password_file, *sentinel; /* NULL: not given */
};

/* -1 with ERR_CONFIG, which names what is wrong and never a password. Nothing is to be freed then.
 */
RG_MUSTCHECK int store_url_parse(struct str text, struct store_url *ret, struct err *e);

/* A zeroed struct is accepted. */
void store_url_done(struct store_url *u);

#endif
