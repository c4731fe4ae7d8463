/*
 * Long JSON of a commit that is read back or copied: new messages, tools, template arguments and
 * messages of answers. A helper thread reads it before the record is applied, so that the loop only
 * links what there is (new_messages.h, new_env.h). Before each record:
 *
 *     session_texts_make    in a task it waits for the thread; elsewhere it makes them itself
 *     session_apply
 *     session_texts_end
 *
 * Meanwhile no record is applied to the session.
 */
#ifndef RG_SESSION_SESSION_TEXTS_H
#define RG_SESSION_SESSION_TEXTS_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct err;
struct new_env;
struct new_messages;
struct ready_answers;
struct session;

/* What was made of a commit; each may be NULL: applying the record makes that. */
struct commit_texts {
    uint64_t call;
    struct new_messages *messages;
    struct new_env *env;
    struct ready_answers *answers;
};

/* Makes them if they are long. The session is pinned, the record is the caller's. Memory is counted
 * in `sum`, which must live as long as what the session gets. -1: the task is cancelled. */
MAY_PAUSE RG_MUSTCHECK int session_texts_make(struct session *s, struct str record,
                                              atomic_size_t *sum, struct err *e);

/* The record was applied, or refused, or will not be. */
void session_texts_end(struct session *s);

/* A thread hangs in the texts of the session: what it may read is never freed. */
void session_texts_lost(struct session *s);

#endif
