/*
 * struct session_walk: the way of a task over all sessions of a worker, oldest first. At each pause
 * sessions come and go.
 *
 *     while ((s = session_walk_next(w, st))) {
 *         ... session_walk_row(w, a, s, &row, e) ... task_pause(e) ...
 *     }
 */
#ifndef RG_CONTROL_SESSION_WALK_H
#define RG_CONTROL_SESSION_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/os/task.h"

struct arena;
struct err;
struct json;
struct service;
struct session;
struct session_store;

/* A zeroed one is in front of the first session. */
struct session_walk {
    uint64_t seen;        /* serial of the last session passed; 0: none yet */
    uint64_t anchor;      /* serial of one that was passed and may still be there ... */
    struct buf anchor_id; /* ... and its id: from it on the next one is looked for */
    uint64_t at;          /* serial of the entered session ... */
    struct buf at_id;     /* ... and its id */
};

/* Frees what it holds. The struct may be used for another walk. */
void session_walk_done(struct session_walk *w);

/* The first session after the last one passed; NULL: there is none. */
struct session *session_walk_next(const struct session_walk *w, struct session_store *st);

/* Enters s: the functions below are about it, also when it is gone. */
void session_walk_enter(struct session_walk *w, const struct session *s);

/* The entered session, or NULL if it is gone. */
struct session *session_walk_find(const struct session_walk *w, struct session_store *st);

/* Passes the session. */
void session_walk_pass(struct session_walk *w);

/* Goes past it when it is about to leave the store. */
void session_walk_leave(struct session_walk *w);

/* Prepares a pause: the walk continues with s, or with the next one if s is gone by then. */
void session_walk_stop_before(struct session_walk *w, const struct session *s);

/* Writes the row of the entered session, which is s: one that is not in memory is read back.
 * Returns 0 with an empty `row` if it is gone or cannot be read (then with e). -1: ERR_CANCELLED.
 */
MAY_PAUSE RG_MUSTCHECK int session_walk_row(const struct session_walk *w, struct service *a,
                                            struct session *s, struct buf *row, struct err *e);

/* Parses the beginning of a row before its metadata, which may be long: the members that lists are
 * filtered by, as an object in the arena; NULL: it is not a row. */
const struct json *session_row_head(struct arena *a, struct str row);

#endif
