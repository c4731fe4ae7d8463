/*
 * Prepares long JSON of a commit that is read back or copied: new messages, tools, template
 * arguments and messages of answers. A helper thread parses it before the record is applied, so
 * that the loop only links the results (new_messages.h, new_env.h). For each record:
 *
 *     session_texts_make    in a task: waits for the thread; elsewhere: makes them itself
 *     session_apply
 *     session_texts_end
 *
 * No other record may be applied to the session meanwhile.
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

/* What was made of a commit. Each may be NULL: it is then made when the record is applied. */
struct commit_texts {
    uint64_t call;
    struct new_messages *messages;
    struct new_env *env;
    struct ready_answers *answers;
};

/* Makes the texts if they are long. The session must be pinned; the record is the caller's. Memory
 * is counted in `sum`, which must live as long as what the session gets. Returns -1 if the task is
 * cancelled. */
MAY_PAUSE RG_MUSTCHECK int session_texts_make(struct session *s, struct str record,
                                              atomic_size_t *sum, struct err *e);

/* Ends the use of the texts: the record was applied, refused, or will not be applied. */
void session_texts_end(struct session *s);

/* Called when a thread hangs in the texts of the session: memory that the thread may read is never
 * freed. */
void session_texts_lost(struct session *s);

#endif
