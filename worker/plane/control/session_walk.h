/*
 * struct session_walk: walks over all sessions of a worker in a task, oldest first. Sessions may be
 * made and removed at each pause.
 *
 *     while ((s = session_walk_next(w, st))) {
 *         ... session_walk_row(w, a, s, &row, e) ... task_pause(e) ...
 *     }
 */
#ifndef RG_CONTROL_SESSION_WALK_H
#define RG_CONTROL_SESSION_WALK_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/os/task.h"

struct arena;
struct json;
struct service;
struct session;
struct session_store;

/* The state of a walk. Zeroed: before the first session. */
struct session_walk {
    uint64_t seen;        /* serial of the last session passed; 0: none yet */
    uint64_t anchor;      /* serial of a passed session that may still exist ... */
    struct buf anchor_id; /* ... and its id: the search for the next session starts there */
    uint64_t at;          /* serial of the entered session ... */
    struct buf at_id;     /* ... and its id */
};

/* Frees the walk's memory. The struct may be used for another walk. */
void session_walk_done(struct session_walk *w);

/* Returns the first session after the last one passed, or NULL if there is none. */
struct session *session_walk_next(const struct session_walk *w, struct session_store *st);

/* Enters s: the functions below use it, even after it is removed. */
void session_walk_enter(struct session_walk *w, const struct session *s);

/* Returns the entered session, or NULL if it is gone. */
struct session *session_walk_find(const struct session_walk *w, struct session_store *st);

/* Marks the entered session as passed. */
void session_walk_pass(struct session_walk *w);

/* Passes the entered session before it leaves the store. */
void session_walk_leave(struct session_walk *w);

/* Prepares a pause: the walk continues with s, or with the next session if s is gone by then. */
void session_walk_stop_before(struct session_walk *w, const struct session *s);

/* Writes the row of the entered session, which is s. A session that is not in memory is read back.
 * Returns 0, with an empty `row` if the session is gone or cannot be read (then with e set).
 * Returns -1 with ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int session_walk_row(const struct session_walk *w, struct service *a,
                                            struct session *s, struct buf *row, struct err *e);

/* Parses the beginning of a row before its metadata, which may be long: returns the members that
 * lists are filtered by, as an object in the arena. Returns NULL if the text is not a row. */
const struct json *session_row_head(struct arena *a, struct str row);

#endif
