/*
 * struct engine_request: what a call asks of an engine. Plain data; engine.h starts calls.
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

/* The wish for the indexer's top-k: engines return it from the first row on, and it is kept from
 * row `from` on. */
struct indexer_ask {
    bool wanted;
    uint32_t from;
    uint64_t row_bytes; /* size of the rows before; 0 with from == 0 */
    uint64_t max_bytes; /* kept of one answer, and */
    uint64_t all_bytes; /* returned in it; both are the pool's */
};

/* The two halves of a split meet by it: where the prefill half waits, and a number of this request
 * alone. */
struct engine_pairing {
    struct str host; /* address of the prefill half */
    uint16_t port;
    int64_t rank;  /* data-parallel rank of the prefill half; -1: it chooses */
    uint64_t room; /* 63 bits */
};

struct engine_request {
    struct str
        session_id;   /* affinity, X-SMG-Routing-Key, and the head of the engine's request id */
    uint64_t call;    /* call number within the session */
    bool ran;         /* the session had an answer of its own before: it is not new */
    uint32_t answer;  /* index of this answer among the call's n, from 0, */
    uint32_t answers; /* their number; 0: one */
    uint32_t attempt; /* number of the try; set by the pool */
    struct token_span prompt;
    const struct sampling *sampling;   /* max_tokens > 0, already clamped */
    const struct ready_texts *ready;   /* long values of it as text, until the call ends; or NULL */
    uint32_t top_logprobs;             /* 0: only the sampled token's */
    bool all_fields;                   /* all that an answer may have is asked for: a probe */
    bool support;                      /* the sampling support is wanted */
    const struct engine_pairing *pair; /* NULL: the engine does all of it. The pool's */
    struct str lora;                   /* the adapter of the weights; absent: none */
    struct str
        kv_salt;     /* scope in which computed prompts are shared; absent: all. Set by the pool */
    bool thinks;     /* the prompt lets the model think */
    bool stream;     /* deltas are wanted as they come */
    uint32_t reused; /* ids at its start that the session had before */
    uint32_t experts_from; /* routed experts are known for this many prompt ids */
    struct indexer_ask indexer;
    const struct engine_image *images;
    size_t n_images;
    int32_t image_pad;                  /* the placeholder, when there are images */
    bool media_drift;                   /* the answer may be to other tokens of the images */
    struct token_span banned;           /* must not be sampled */
    const struct json *chat_body;       /* body for kind `openai`, without `stream`; else unused */
    const struct chat_text *chat_texts; /* its long members as JSON, which are null there */
    size_t n_chat_texts;
    struct str trace;    /* header lines for it, each with CRLF; absent: none */
    bool text;           /* the prompt was not made: only kind `openai` can be asked */
    atomic_size_t *held; /* has the bytes of what is sent, and of what comes until the call has it;
                            or NULL */
};

/* A member of chat_body, as JSON. */
struct chat_text {
    struct str name, text;
};

#endif
