/*
 * Which sessions are in memory: the coldest are given up when all together come near
 * --max-worker-memory, since the journal has them, and read back when somebody needs them. Reading
 * is done in slices of a millisecond; who needs the session waits and is told. Of sessions in use,
 * the ids, logprobs and experts of calls on cold branches are given up, too; those are read back
 * within the step that needs them, a path at a time.
 * Without a journal nothing can be given up: the limit then only refuses.
 */
#ifndef RG_TURN_RESIDENT_H
#define RG_TURN_RESIDENT_H

#include "worker/turn/turn.h"

/* Somebody who waits for a session. Embedded in its owner. */
struct resident_waiter {
    /* It is in memory, or is gone; with e: it cannot be read. */
    void (*fn)(void *ctx, const struct err *e);
    void *ctx;
    struct resident_load *load; /* NULL: waits for nothing */
    struct resident_waiter *next;
};

/* Sessions, and parts of those that are in use, may be given up from now on: there is a journal. */
void residents_init(struct turn_env *env);

/* Whether the session is in memory (or is none at all, so that nothing is to be waited for). false:
 * it is being read, and resident_wait tells when it is through. With `ended`, finalized ones whose
 * place was freed are brought back, too. */
bool resident_ready(struct turn_env *env, struct str session_id, bool ended);

/* Waits for a session that is being read. The caller has set fn and ctx. */
void resident_wait(struct turn_env *env, struct str session_id, struct resident_waiter *w);

/* The waiter waits no longer; fine when it does not wait. */
void resident_leave(struct resident_waiter *w);

/* After sessions grew or came back: gives others up, soon. */
void resident_watch(struct turn_env *env);

/* Refuses, with e, what would need more memory: a new session (`called` NULL), or a call of one
 * that exists when the others take an eighth more than the limit. What an idle session itself takes
 * does not count: between its calls it is given up. */
int resident_room(struct turn_env *env, const struct session *called, struct err *e);

/* Ends all reading; nobody is told. */
void residents_done(struct turn_env *env);

#endif
