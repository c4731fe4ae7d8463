/*
 * A call to an engine: exact ids in (engine_request.h), exact ids and logprobs out
 * (engine_result.h). engine_pool.h has the engines.
 *
 * A call ends with exactly one of done and failed, never from inside engine_start, and never after
 * engine_cancel. This layer does retries before the first byte, failover, queueing, splicing of
 * engine-side aborts and the checks of the answer (counts, id range, prompt length echo). It does
 * not decode, parse or record answers.
 */
#ifndef RG_ENGINE_ENGINE_H
#define RG_ENGINE_ENGINE_H

#include <stdbool.h>
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
    ENGINE_STOP,        /* ended by a stop id (the last of ids) or by the engine's own end */
    ENGINE_STOP_STRING, /* ended by a stop string; ids are kept as sampled */
    ENGINE_LENGTH,
    /* the engine stopped part way; the pool splices such answers, so callers never see this */
    ENGINE_ABORTED,
};

/* Distribution of logprobs. Only BASIS_PROCESSED is always the distribution that was sampled from.
 * If the sampling parameters change nothing, all three are the same. */
enum logprob_basis {
    BASIS_UNKNOWN,     /* not reported */
    BASIS_RAW,         /* softmax of the model's logits, without sampling parameters */
    BASIS_TEMPERATURE, /* after penalties, biases and temperature, before top-k, top-p, min-p */
    BASIS_PROCESSED,   /* after all sampling parameters */
};

/* Returns "raw", "temperature", "processed" or "unknown"; also used in /health
 * (board_engines_basis). */
const char *logprob_basis_name(enum logprob_basis b);

/* Reports whether logprobs of that basis are those of the distribution that is sampled from. */
bool logprob_basis_is_own(enum logprob_basis b, const struct sampling *s);

/* Tokens [start, end) of the answer were sampled under `version` (the engine's text). */
struct engine_version {
    struct str version;
    uint32_t start, end;
};

/* One alternative at one position. */
struct engine_top {
    int32_t id;
    float logprob;
};

/* A picture of the prompt, in the order of its placeholders. */
struct engine_image {
    struct str format; /* "png" ...: FORMAT of the media type image/FORMAT */
    struct str base64; /* base64 of a picture in memory */
    uint32_t tokens;   /* number of tokens for its placeholder */
    const char *file;  /* path of its file; NULL: it is in memory */
    uint64_t bytes;    /* size of that file */
};

struct engine_events {
    void (*delta)(void *ctx, const struct engine_delta *d); /* called only if request.stream */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e);
};

/* Starts a call. The session id is copied. The prompt, images and JSON values (sampling, chat_body)
 * stay the caller's until the call has ended, as does `ctx`. Refusals (queue full) come through
 * `failed` in the next loop iteration. */
struct engine_call *engine_start(struct engine_pool *p, const struct engine_request *r,
                                 const struct engine_events *events, void *ctx);

/* Ends the call at once: closes the connection and sends the engine's abort. No event follows and
 * the pointer is invalid. Must not be called from a callback of the same call. Accepts NULL. */
void engine_cancel(struct engine_call *c);

#endif
