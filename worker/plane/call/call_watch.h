/*
 * struct call_watch: who looks at calls while they run (GET /events and the viewer), and what it is
 * told. Nobody looks: env->watch is NULL, one comparison a change.
 */
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

/* Who looks at calls while they run. `call`: one has begun to be answered, or is over (committed or
 * not). `tokens`: what has come; borrowed. */
struct call_tokens {
    struct str session_id;
    uint64_t call;  /* its number in the session */
    uint32_t index; /* of the sample */
    bool so_far;    /* all that came until now, as text: told to who came late */
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

/* Tells env->watch of the session's calls that run, and what they have. */
void call_watch_repeat(struct call_env *env, struct str session_id);

/* Tells env->watch, if somebody looks. */
void call_watch_call(const struct model_call *t, bool ended);
void call_watch_delta(const struct sample *r, const struct engine_delta *d);

#endif
