/*
 * struct redis_link: commands to one Redis server, and their replies in order. It connects at the
 * first command, logs in (Sentinel, password, database, role, scripts), then sends what was asked
 * meanwhile. When the connection breaks, commands without a reply end with NULL and the reason. The
 * next command connects again, after a pause that grows with each failure up to a fifth of
 * limit_ms, so callers may repeat at once.
 *
 *   DOWN -> (PAUSED) -> SEEKING (asks Sentinel) -> LOGIN -> UP -> DOWN
 *
 *     out = redis_link_begin(link);
 *     resp_begin_command(out, 2); resp_add_word(out, STR("GET")); ...
 *     redis_link_end(link, on_reply, ctx);
 */
#ifndef RG_FLEET_REDIS_LINK_H
#define RG_FLEET_REDIS_LINK_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;
struct loop;
struct redis_link;
struct resp;
struct store_url;

/* reply NULL: the connection ended before the reply, because of `why`. Both live until it returns.
 */
typedef void (*redis_reply_fn)(void *ctx, const struct resp *reply, const char *why);

struct redis_link_options {
    struct loop *loop;
    const struct store_url *url; /* must outlive the link */
    unsigned limit_ms;           /* longest silence while a reply is due */
    const struct str *scripts;   /* loaded at each login; static */
    size_t n_scripts;
    void (*on_push)(void *ctx, const struct resp *message); /* what no command asked for; or NULL */
    void (*on_down)(void *ctx, const char *why);            /* after the replies; or NULL */
    void *ctx;
};

/* Resolves the host, which may block, and loads certificates; does not connect. NULL with
 * ERR_CONFIG or ERR_IO. Not to be freed from within its functions. */
struct redis_link *redis_link_new(const struct redis_link_options *o, struct err *e);

/* Commands without a reply end first. NULL is accepted. */
void redis_link_free(struct redis_link *l);

/* Returns where one command is appended. */
struct buf *redis_link_begin(struct redis_link *l);

/* Sends what was appended since redis_link_begin. fn is called once, later. */
void redis_link_end(struct redis_link *l, redis_reply_fn fn, void *ctx);

/* Ends the connection, because a reply says that this server does not serve. Commands without a
 * reply end later with `why`. */
void redis_link_break(struct redis_link *l, const char *why);

#endif
