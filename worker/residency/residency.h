/*
 * Which sessions are in memory: the least recently used are evicted when all together come near
 * --max-worker-memory, since the journal has them, and read back when somebody needs them. Reading
 * is done in slices of a millisecond; who needs the session waits and is told. Of sessions in use,
 * the ids, logprobs and experts of calls on branches not used lately are evicted, too; those are
 * read back within the step that needs them, a path at a time. Without a journal nothing can be
 * evicted: the limit then only refuses.
 */
#ifndef RG_RESIDENCY_RESIDENCY_H
#define RG_RESIDENCY_RESIDENCY_H

#include "worker/call/model_call.h"

/* Somebody who waits for a session. Embedded in its owner. */
struct residency_waiter {
    /* It is in memory, or is gone; with e: it cannot be read. */
    void (*fn)(void *ctx, const struct err *e);
    void *ctx;
    struct residency_load *load; /* NULL: waits for nothing */
    struct residency_waiter *next;
};

/* Sessions, and parts of those that are in use, may be evicted from now on: there is a journal. */
void residency_init(struct call_env *env);

/* Whether the session is in memory (or is none at all, so that nothing is to be waited for). false:
 * it is being read, and residency_wait tells when it is through. With `ended`, finalized ones whose
 * place was freed are brought back, too. */
bool residency_ready(struct call_env *env, struct str session_id, bool ended);

/* Waits for a session that is being read. The caller has set fn and ctx. */
void residency_wait(struct call_env *env, struct str session_id, struct residency_waiter *w);

/* The waiter waits no longer; fine when it does not wait. */
void residency_leave(struct residency_waiter *w);

/* After sessions grew or came back: evicts others, soon. */
void residency_watch(struct call_env *env);

/* Refuses, with e, what would need more memory: a new session (`called` NULL), or a call of one
 * that exists when the others take an eighth more than the limit. What an idle session itself takes
 * does not count: between its calls it is evicted. */
int residency_room(struct call_env *env, const struct session *called, struct err *e);

/* Ends all reading; nobody is told. */
void residency_done(struct call_env *env);

#endif
