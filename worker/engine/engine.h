/*
 * A call to an engine: exact ids in, exact ids and logprobs out. Which engines there are is in
 * engine_pool.h.
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
#include "common/codec/sampling.h"
#include "worker/request/odds.h"
#include "worker/tokens/span.h"

struct engine_call;
struct engine_pool;
struct err;
struct json;

enum engine_finish {
    ENGINE_STOP,        /* a stop id (it is the last of ids) or the engine's own end */
    ENGINE_STOP_STRING, /* a stop string matched; ids are kept as sampled */
    ENGINE_LENGTH,
    ENGINE_ABORTED, /* the engine gave up part way; spliced by the pool, never seen above it */
};

/* Which distribution logprobs come from. Only BASIS_PROCESSED is what was sampled from whatever the
 * sampling parameters are; where they change nothing, all three are the same. */
enum logprob_basis {
    BASIS_UNKNOWN,     /* nobody tells */
    BASIS_RAW,         /* softmax of the model's logits alone */
    BASIS_TEMPERATURE, /* after penalties, biases and temperature, before top-k, top-p, min-p */
    BASIS_PROCESSED,   /* after all of them */
};

/* "raw", "temperature", "processed", "unknown". */
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
    struct str base64; /* of one that lies in memory, */
    uint32_t tokens;   /* that its placeholder stands for */
    const char *file;  /* else where it lies; NULL: in memory */
    uint64_t bytes;    /* of that file */
};

struct engine_request {
    struct str
        session_id;   /* affinity, X-SMG-Routing-Key, and the head of the engine's request id */
    uint64_t call;    /* call number within the session */
    bool ran;         /* the session had an answer of its own before: it is not new */
    uint32_t answer;  /* which of the call's n answers this is, from 0, */
    uint32_t answers; /* of so many; 0: one */
    uint32_t attempt; /* which try; the pool's */
    struct token_span prompt;
    struct sampling sampling; /* max_tokens > 0, already clamped */
    uint32_t top_logprobs;    /* 0: only the sampled token's */
    bool support;             /* the sampling support is wanted */
    struct str lora;          /* the adapter of the weights; absent: none */
    struct str kv_salt;       /* what may share computed prompts; absent: all. The pool's */
    bool thinks;              /* the prompt lets the model think */
    bool stream;              /* deltas are wanted as they come */
    uint32_t reused;          /* ids at its start that the session had before */
    uint32_t experts_from;    /* routed experts are known for this many prompt ids */
    const struct engine_image *images;
    size_t n_images;
    int32_t image_pad;            /* the placeholder, when there are images */
    bool media_drift;             /* the answer may be to other tokens of the images */
    struct token_span banned;     /* must not be sampled */
    const struct json *chat_body; /* what kind `openai` sends, but for `stream`; else unused */
    struct str trace;             /* header lines for it, each with CRLF; absent: none */
    bool text;                    /* the prompt was not made: only kind `openai` can be asked */
};

/* What came since the last delta. Borrowed for the callback. */
struct engine_delta {
    struct token_span ids;
    const float *logprobs;        /* ids.n of them, or NULL (kind openai) */
    const struct engine_top *top; /* ids.n x n_top, or NULL */
    uint32_t n_top;
    const struct json *message;  /* kind openai: the chunk's delta object; ids are empty then */
    const struct json *chat_lps; /* kind openai: its `logprobs`, or NULL */
};

/* The whole answer. Borrowed for the callback. */
struct engine_result {
    enum engine_finish finish;
    int32_t stop_id;          /* the stop id that ended it, or -1 */
    struct str stop_text;     /* the stop string that ended it, or absent */
    struct token_span ids;    /* all of them, the stop id included where the engine includes it */
    const float *logprobs;    /* ids.n, or NULL */
    enum logprob_basis basis; /* of the logprobs, of all pieces; pieces that differ: unknown */
    bool unbudgeted;          /* the engine was not given sampling.max_thinking_tokens */
    uint32_t drifted; /* tokens of the prompt that the engine made, where they are others than it
                         was sent with images; 0: they are not */
    uint32_t scored;  /* tokens whose logprob was asked for afterwards, in a call of its own */
    int64_t
        cached_tokens; /* of the prompt, as the engine tells what it had computed; -1: not told */
    const struct engine_top *top;
    uint32_t n_top;
    const struct engine_version *versions; /* sorted, gapless over ids, or n_versions 0 */
    size_t n_versions;
    /* Where the engine tells no versions of the tokens: what it said before and after them; absent:
     * nothing. */
    struct str version_before, version_after;
    struct odds_support support; /* when wanted and given for every token */
    struct str experts;          /* raw little-endian block, absent when not asked or not given */
    uint32_t experts_from, experts_rows;
    const char *replica;    /* name for records and logs */
    uint64_t queue_us;      /* waited for a slot */
    uint64_t first_us;      /* asked until first token */
    uint64_t total_us;      /* asked until the end */
    uint32_t retries;       /* before the first byte */
    uint32_t resumes;       /* engine-side aborts spliced */
    struct str openai_body; /* kind openai: the upstream's whole answer; ids and logprobs may then
                               be empty and NULL: it tells text alone */
    struct token_span prompt_ids; /* kind openai: the prompt as the upstream rendered it, when told
                                   */
};

struct engine_events {
    void (*delta)(void *ctx, const struct engine_delta *d); /* only when request.stream */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e);
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
