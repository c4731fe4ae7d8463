/*
 * struct engine_request: one request to an engine. Plain data; engine.h starts calls.
 */
#ifndef RG_ENGINE_ENGINE_REQUEST_H
#define RG_ENGINE_ENGINE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct chat_text;
struct engine_image;
struct json;
struct ready_texts;
struct sampling;

/* The request for the indexer's top-k. Engines return it from the first row on; it is kept from row
 * `from` on. */
struct indexer_ask {
    bool wanted;
    uint32_t from;
    uint64_t row_bytes; /* size of the rows before `from`; 0 if from == 0 */
    uint64_t max_bytes; /* most bytes kept of one answer */
    uint64_t all_bytes; /* most bytes returned in an answer. Both limits are set by the pool */
};

/* Data by which the two halves of a split request find each other: the address of the prefill half,
 * and a number of this request alone. */
struct engine_pairing {
    struct str host; /* address of the prefill half */
    uint16_t port;
    int64_t rank;  /* data-parallel rank of the prefill half; -1: the prefill half chooses */
    uint64_t room; /* the number of the request, 63 bits */
};

struct engine_request {
    struct str
        session_id;   /* for affinity, X-SMG-Routing-Key, and the head of the engine's request id */
    uint64_t call;    /* number of the call within the session */
    bool ran;         /* the session had an answer of its own before, so it is not new */
    uint32_t answer;  /* index of this answer among the call's n, from 0 */
    uint32_t answers; /* number of answers; 0: one */
    uint32_t attempt; /* number of the attempt; set by the pool */
    struct token_parts prompt;
    const struct sampling *sampling; /* max_tokens must be > 0 and is already limited */
    /* long values of the request as text, until the call ends; or NULL */
    const struct ready_texts *ready;
    uint32_t top_logprobs;             /* 0: only that of the sampled token */
    bool all_fields;                   /* a probe: asks for all data that an answer may have */
    bool support;                      /* asks for the sampling support */
    const struct engine_pairing *pair; /* NULL: one engine computes both halves. Set by the pool */
    struct str lora;                   /* LoRA adapter; absent: none */
    struct str kv_salt; /* scope in which computed prompts are shared; absent: all requests. Set by
                           the pool */
    bool thinks;        /* the prompt permits a thought */
    bool stream;        /* deltas are wanted */
    /* the caller's flag; true: a call that waits for a replica is not sent any more, and waits for
     * engine_cancel. NULL: always false */
    const bool *unwanted;
    uint32_t reused;       /* number of first ids that the session had before */
    uint32_t experts_from; /* number of prompt ids whose routed experts are known */
    struct indexer_ask indexer;
    const struct engine_image *images;
    size_t n_images;
    int32_t image_pad; /* the placeholder, if there are images */
    /* an answer to different tokens of the images is accepted */
    bool media_drift;
    struct token_span banned; /* ids that must not be sampled */
    /* body for kind `openai`, without `stream`; other kinds ignore it */
    const struct json *chat_body;
    /* long members of chat_body as JSON; they are null in chat_body */
    const struct chat_text *chat_texts;
    size_t n_chat_texts;
    struct str trace; /* header lines of the trace, each with CRLF; absent: none */
    bool text;        /* there is no prompt in ids, so only kind `openai` can be used */
    /* counter for the bytes of the request, and of the answer until the call has it; or NULL */
    atomic_size_t *held;
};

/* A member of chat_body as JSON text. */
struct chat_text {
    struct str name, text;
};

#endif
