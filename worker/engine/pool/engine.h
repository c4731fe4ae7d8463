/*
 * A call to an engine: exact ids in (engine_request.h), exact ids and logprobs out
 * (engine_result.h). Which engines there are is in engine_pool.h.
 *
 * A call ends with exactly one of done / failed, never from inside engine_start, and never after
 * engine_cancel. Retries before the first byte, failover, queueing, splicing of engine-side aborts
 * and the checks of the reply (counts, id range, prompt length echo) happen below this line.
 * What it does not do: decode, parse, remember.
 */
#ifndef RG_ENGINE_ENGINE_H
#define RG_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct engine_call;
struct engine_delta;
struct engine_pool;
struct engine_request;
struct engine_result;
struct err;
struct sampling;

enum engine_finish {
    ENGINE_STOP,        /* a stop id (it is the last of ids) or the engine's own end */
    ENGINE_STOP_STRING, /* a stop string matched; ids are kept as sampled */
    ENGINE_LENGTH,
    ENGINE_ABORTED, /* the engine gave up part way; spliced by the pool, never seen above it */
};

/* Which distribution logprobs come from. Only BASIS_PROCESSED is what was sampled from whatever the
 * sampling parameters are; where they change nothing, all three are the same. */
enum logprob_basis {
    BASIS_UNKNOWN,     /* not reported */
    BASIS_RAW,         /* softmax of the model's logits alone */
    BASIS_TEMPERATURE, /* after penalties, biases and temperature, before top-k, top-p, min-p */
    BASIS_PROCESSED,   /* after all of them */
};

/* "raw", "temperature", "processed", "unknown"; in /health, too (board_engines_basis). */
const char *logprob_basis_name(enum logprob_basis b);

/* Whether logprobs of that basis are those of the distribution that is sampled from. */
bool logprob_basis_is_own(enum logprob_basis b, const struct sampling *s);

/* Tokens [start, end) of the answer were sampled under `version` (text as the engine wrote it). */
struct engine_version {
    struct str version;
    uint32_t start, end;
};

/* One alternative of one position. */
struct engine_top {
    int32_t id;
    float logprob;
};

/* A picture of the prompt, in the order of its placeholders. */
struct engine_image {
    struct str format; /* "png" ...: image/FORMAT */
    struct str base64; /* base64 of a picture in memory, */
    uint32_t tokens;   /* tokens of its placeholder */
    const char *file;  /* else where it lies; NULL: in memory */
    uint64_t bytes;    /* size of that file */
};

struct engine_events {
    void (*delta)(void *ctx, const struct engine_delta *d); /* only when request.stream */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e);
    bool (*wanted)(void *ctx); /* NULL: always. False, when the call could be sent to a replica: it
                                  is not, and waits for engine_cancel */
};

/* Starts a call. The session id is copied; the prompt, images and JSON values (sampling, chat_body)
 * stay the caller's until the call has ended, as does `ctx`. Refusals (queue full) come through
 * `failed` on the next turn of the loop. */
struct engine_call *engine_start(struct engine_pool *p, const struct engine_request *r,
                                 const struct engine_events *events, void *ctx);

/* Ends the call at once: closes the connection, sends the engine's abort. No event follows and
 * the pointer is dead. Not from inside a callback of the same call. NULL is fine. */
void engine_cancel(struct engine_call *c);

#endif
