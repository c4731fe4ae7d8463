/* struct call_watch: viewers of running calls (GET /events and the viewer), and their events.
 * Without viewers env->watch is NULL, and a change costs one comparison. */
#ifndef RG_CALL_CALL_WATCH_H
#define RG_CALL_CALL_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct call_env;
struct engine_delta;
struct model_call;
struct sample;

/* Events of a running call. `call`: its answer has begun, or it is over (committed or not).
 * `tokens`: new tokens; borrowed. */
struct call_tokens {
    struct str session_id;
    uint64_t call;  /* its number in the session */
    uint32_t index; /* index of the sample */
    bool so_far;    /* all text so far, for a viewer that came late */
    size_t n;       /* how many tokens that is */
    struct token_span ids;
    const float *logprobs; /* ids.n, or NULL */
    struct str text;       /* where there are no ids */
};

/* Which call of its session. `parent`: response id of the answer that it goes on from; absent: of
 * none. */
struct call_place {
    uint64_t call;
    struct str parent;
};

struct call_watch {
    void *ctx;
    void (*call)(void *ctx, struct str session_id, const struct call_place *c, bool ended);
    void (*tokens)(void *ctx, const struct call_tokens *t);
};

/* Repeats for env->watch the running calls of the session and their text so far. */
void call_watch_repeat(struct call_env *env, struct str session_id);

/* Notifies env->watch, if there is one. */
void call_watch_call(const struct model_call *t, bool ended);
void call_watch_delta(const struct sample *r, const struct engine_delta *d);

#endif
