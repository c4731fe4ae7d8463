/*
 * struct session_walk: the way of a request over all sessions of a worker, oldest first, in slices:
 * between two of them sessions come and go, and one whose row is not known is read back.
 *
 *     while ((s = session_walk_next(w, st)) && session_walk_row(w, r, s, &row, fn, ctx)) {
 *         ... session_walk_pass(w, s); ...
 *     }
 */
#ifndef RG_CONTROL_SESSION_WALK_H
#define RG_CONTROL_SESSION_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "worker/residency/residency.h"

struct arena;
struct json;
struct session;
struct session_store;

/* A zeroed one stands before the first session. */
struct session_walk {
    uint64_t seen;        /* serial of the last session passed; 0: none yet */
    uint64_t anchor;      /* serial of one that was passed and may still be there ... */
    struct buf anchor_id; /* ... and its id: from it on the next one is looked for */
    uint64_t awaited;     /* serial of the one that is read back */
    struct residency_waiter waiter;
};

/* Ends a wait, too. The struct may be used for another walk. */
void session_walk_done(struct session_walk *w);

/* The first session behind the last one passed; NULL: there is none. */
struct session *session_walk_next(const struct session_walk *w, struct session_store *st);

/* Goes past s, which stays in the store for now. */
void session_walk_pass(struct session_walk *w, const struct session *s);

/* Goes past the serial of a session that leaves the store. */
void session_walk_leave(struct session_walk *w, uint64_t serial);

/* The row of s in `row`, or false: it is read back, and fn comes. Its error means that it has no
 * row: session_walk_leave(w, w->awaited). */
bool session_walk_row(struct session_walk *w, struct residency *r, struct session *s,
                      struct buf *row, void (*fn)(void *ctx, const struct err *e), void *ctx);

/* What a row says before its metadata, which may be long: the members that lists are filtered by,
 * as an object in the arena; NULL: it is no row. */
const struct json *session_row_head(struct arena *a, struct str row);

#endif
