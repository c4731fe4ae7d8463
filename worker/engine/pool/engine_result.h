/*
 * What an engine answers, while it comes (struct engine_delta) and whole (struct engine_result).
 * Plain data, made by the adapters and the pool, read by the calls.
 */
#ifndef RG_ENGINE_ENGINE_RESULT_H
#define RG_ENGINE_ENGINE_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/str.h"
#include "worker/engine/pool/engine.h"
#include "worker/text/tokens/span.h"

struct buf;
struct json;
struct token_logprob;
struct odds_support;

/* What came since the last delta. Borrowed for the callback. */
struct engine_delta {
    struct token_span ids;
    const float *logprobs;        /* ids.n of them, or NULL (kind openai) */
    const struct engine_top *top; /* ids.n x n_top, or NULL */
    uint32_t n_top;
    bool resumed;        /* pieces of the answer came before this one */
    const char *replica; /* name of the engine that answers */
    /* Kind openai, ids are empty then: a message in the one form (../wire/upstream_out.h), or NULL;
     * and n_chat_lps logprobs ({"token", "logprob", "top_logprobs"}), for clients that want them.
     */
    const struct json *message;
    const struct json *chat_lps;
    size_t n_chat_lps;
};

/* Kind openai: the logprobs of an answer in one piece, as the client gets them. */
struct engine_rows {
    struct token_logprob *at;
    size_t n;
    struct arena arena; /* memory of the rows */
};

/* The whole answer. Borrowed for the callback. */
struct engine_result {
    enum engine_finish finish;
    int32_t stop_id;          /* the stop id that ended it, or -1 */
    struct str stop_text;     /* the stop string that ended it, or absent */
    struct token_span ids;    /* all of them, the stop id included where the engine includes it */
    const float *logprobs;    /* ids.n, or NULL */
    enum logprob_basis basis; /* basis of the logprobs of all pieces; if they differ: unknown */
    enum logprob_basis asked; /* the one that the engine was asked for; unknown: it has no field */
    bool takes_stop_ids;      /* it was asked with stop ids */
    bool speculates;          /* the engine says that it decodes speculatively */
    size_t resumed_at;        /* ids before the last of several pieces; 0: there is one */
    bool unbudgeted;          /* the engine was not given sampling.max_thinking_tokens */
    uint32_t drifted; /* tokens of the prompt that the engine made, where they are others than it
                         was sent with images; 0: they are not */
    bool recomputed; /* the engine freed what it had computed and computed it again, so its rows are
                        those of another run than the one that sampled the tokens */
    uint32_t scored; /* tokens whose logprob was asked for afterwards, in a call of its own */
    int64_t cached_tokens; /* tokens of the prompt that the engine had cached, as it reports; -1:
                              not reported */
    const struct engine_top *top;
    /* Where `ids`, `logprobs` and `top` lie, which the receiver may take (free()), leaving NULL; or
     * NULL: it may not. */
    int32_t **ids_own;
    float **logprobs_own;
    struct engine_top **top_own;
    uint32_t n_top;
    const struct engine_version *versions; /* sorted, gapless over ids, or n_versions 0 */
    size_t n_versions;
    /* Versions that the engine reported before and after the tokens, if it has none of the tokens;
     * absent: none. */
    struct str version_before, version_after;
    const struct odds_support *support; /* when wanted and given for every token, else NULL */
    struct str experts; /* raw little-endian block, absent when not asked or not given */
    /* Where experts and indexer lie, which the receiver may take: they are long. NULL: not so. */
    struct buf *experts_buf, *indexer_buf;
    uint32_t experts_from, experts_rows;
    struct str
        indexer; /* rows of the indexer from the first wanted one on; absent if too large, too */
    uint32_t indexer_from, indexer_rows;
    uint32_t indexer_layers; /* layers as the engine reports; 0: not reported */
    uint64_t indexer_bytes;  /* bytes of the whole, from its first row on */
    bool indexer_large;      /* more than are kept */
    const char *replica;     /* name for records and logs */
    uint64_t queue_us;       /* waited for a slot */
    uint64_t first_us;       /* asked until first token */
    uint64_t total_us;       /* asked until the end */
    uint32_t retries;        /* before the first byte */
    uint32_t resumes;        /* engine-side aborts spliced */
    const struct json
        *openai;                /* kind openai: {"choices": [{"messages", "finish_reason", "signed",
                                   "replaced"}], "usage"} of the upstream's answer (../wire/upstream_text.h),
                                   without                messages that deltas contained; with text alone, ids and
                                   logprobs are                empty and                NULL. NULL: another kind */
    struct arena *openai_arena; /* where that lies, which the receiver may take */
    struct engine_rows *rows;   /* kind openai: those logprobs, whose arena the receiver may take */
    struct token_span
        prompt_ids; /* kind openai: the prompt as the upstream rendered it, if reported
                     */
};

#endif
