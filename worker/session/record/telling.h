/*
 * The state object of GET /sessions/{id}, written by a task. Others run between two pieces, because
 * a session may have many answers, or a prompt of a million ids. Answers, rewards and calls that
 * are recorded meanwhile are left out.
 */
#ifndef RG_SESSION_TELLING_H
#define RG_SESSION_TELLING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"

struct checkpoint;
struct session;

struct session_telling {
    struct session *session; /* the session, pinned */
    bool records;            /* also write every call's record */
    struct json_out out;
    /* Sends the output if there is enough of it, and pauses. Returns -1 if no more is wanted. May
     * be NULL. */
    MAY_PAUSE int (*flow)(void *ctx, struct err *e);
    void *ctx;
};

/* Writes the whole state. Returns -1 if evicted data cannot be read back, or after an error of
 * flow. */
MAY_PAUSE RG_MUSTCHECK int session_tell(struct session_telling *t, struct err *e);

/* Calls t->flow. */
MAY_PAUSE RG_MUSTCHECK int telling_flow(struct session_telling *t, struct err *e);

/* Writes an array of the first n ids of the path that ends in `of`, which may be NULL. */
MAY_PAUSE RG_MUSTCHECK int telling_put_path(struct session_telling *t, const char *name,
                                            const struct checkpoint *of, size_t n, struct err *e);

/* Writes the record of the session's call with that index. */
MAY_PAUSE RG_MUSTCHECK int telling_put_record(struct session_telling *t, size_t call,
                                              struct err *e);

#endif
