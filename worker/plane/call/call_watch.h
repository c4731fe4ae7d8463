/* struct call_watch: the viewers of running calls (GET /events and the web viewer), and the events
 * that they get. Without viewers env->watch is NULL, and a change costs one comparison. */
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

/* Events for viewers of a running call. `call`: the call's answer has begun, or the call is over
 * (committed or not). `tokens`: new tokens; borrowed. */
struct call_tokens {
    struct str session_id;
    uint64_t call;  /* number of the call in its session */
    uint32_t index; /* index of the sample */
    bool so_far;    /* the tokens are all text so far, for a viewer that joined late */
    size_t n;       /* number of tokens */
    struct token_span ids;
    const float *logprobs; /* ids.n logprobs, or NULL */
    struct str text;       /* the text, if there are no ids */
};

/* Position of a call in its session. `parent` is the response id of the answer that the call
 * continues; absent: none. */
struct call_place {
    uint64_t call;
    struct str parent;
};

struct call_watch {
    void *ctx;
    void (*call)(void *ctx, struct str session_id, const struct call_place *c, bool ended);
    void (*tokens)(void *ctx, const struct call_tokens *t);
};

/* Sends env->watch the session's running calls and their text so far. */
void call_watch_repeat(struct call_env *env, struct str session_id);

/* Notifies env->watch, if set, that a call has begun or ended. */
void call_watch_call(const struct model_call *t, bool ended);
void call_watch_delta(const struct sample *r, const struct engine_delta *d);

#endif
