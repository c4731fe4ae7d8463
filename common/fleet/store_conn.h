/*
 * struct store_conn: one connection to a server of the store, over TCP or TLS: it tries addresses
 * in turn, sends `out` and collects `in`. The meaning of the bytes is redis_link.c's.
 *
 *   CLOSED -> CONNECTING -> (SHAKING) -> OPEN -> CLOSED
 *
 * Embedded by value. Functions of store_conn_fns are called by the loop, never from within another
 * function of the connection. They may close it, but not free its owner.
 */
#ifndef RG_FLEET_STORE_CONN_H
#define RG_FLEET_STORE_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"
#include "common/os/loop.h"

struct resolve_address;
struct tls;
struct tls_context;
struct tls_session;

enum store_conn_state {
    STORE_CONN_CLOSED,
    STORE_CONN_CONNECTING,
    STORE_CONN_SHAKING,
    STORE_CONN_OPEN,
    STORE_CONN_BROKEN, /* `broken` is about to be called */
};

struct store_conn_fns {
    void (*opened)(void *ctx);
    void (*received)(void *ctx);                /* `in` has more; the owner consumes it */
    void (*broken)(void *ctx, const char *why); /* closed; not called after store_conn_close */
};

struct store_conn {
    struct loop *loop;
    const struct store_conn_fns *fns;
    void *ctx;
    struct tls_context *tls_context; /* NULL: TCP; the owner's */
    const char *host;                /* that the certificate must name; the owner's */
    enum store_conn_state state;
    struct buf in, out;

    const struct resolve_address *at; /* addresses, the owner's */
    size_t n_at, next;                /* `next` is tried next */
    int fd;
    struct loop_io io;
    struct loop_task work; /* what does not happen within a call */
    struct tls *tls;
    struct tls_session *session;
    bool unread;       /* the socket may have more */
    size_t sent;       /* bytes of out */
    struct buf why;    /* why addresses failed, or the connection broke */
    unsigned limit_ms; /* longest time that sent bytes stay without an acknowledgement */
};

/* Begins to connect to the first of n addresses that accepts. Only while CLOSED. Ends with opened
 * or broken. */
void store_conn_open(struct store_conn *c, const struct resolve_address *at, size_t n);

/* Sends `out` at the end of this iteration of the loop. */
void store_conn_flush(struct store_conn *c);

/* Gives the current address up for `why`: tries the next one while CONNECTING, else breaks. */
void store_conn_give_up(struct store_conn *c, const char *why);

/* Closes without a call of `broken`. Drops `in` and `out`. */
void store_conn_close(struct store_conn *c);

/* Closes and frees what is in the struct. */
void store_conn_done(struct store_conn *c);

#endif
