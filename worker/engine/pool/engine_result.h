/*
 * An engine's answer while it arrives (struct engine_delta) and as a whole (struct engine_result).
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

/* The tokens after the last delta. Borrowed for the callback. */
struct engine_delta {
    struct token_span ids;
    const float *logprobs;        /* ids.n of them; NULL for kind openai */
    const struct engine_top *top; /* ids.n x n_top, or NULL */
    uint32_t n_top;
    bool resumed;        /* an earlier piece of the answer came before this one */
    const char *replica; /* name of the replica that answers */
    /* For kind openai, whose ids are empty: a message in normalised form (../wire/upstream_out.h),
     * or NULL; and n_chat_lps logprobs ({"token", "logprob", "top_logprobs"}), for clients that
     * want them. */
    const struct json *message;
    const struct json *chat_lps;
    size_t n_chat_lps;
};

/* For kind openai: the logprobs of an answer that came in one piece, in the client's form. */
struct engine_rows {
    struct token_logprob *at;
    size_t n;
    struct arena arena; /* memory of the rows */
};

/* The whole answer. Borrowed for the callback. */
struct engine_result {
    enum engine_finish finish;
    int32_t stop_id;          /* stop id that ended the answer, or -1 */
    struct str stop_text;     /* stop string that ended it, or absent */
    struct token_span ids;    /* all ids, including the stop id if the engine returns it */
    const float *logprobs;    /* ids.n, or NULL */
    enum logprob_basis basis; /* basis of the logprobs; unknown if the pieces differ */
    enum logprob_basis asked; /* basis that the engine was asked for; unknown: it has no field */
    bool takes_stop_ids;      /* stop ids were sent with the request */
    bool speculates;          /* the engine reports that it decodes speculatively */
    bool repeats;             /* the engine cut the answer because it repeats itself */
    size_t resumed_at;        /* number of ids before the last piece; 0: there is one piece */
    bool unbudgeted;          /* sampling.max_thinking_tokens was not sent to the engine */
    /* number of tokens in the prompt that the engine made, if it was sent with images and they
     * differ; 0: they do not */
    uint32_t drifted;
    /* the engine freed its computed prompt and computed it again, so its rows are not from the run
     * that sampled the tokens */
    bool recomputed;
    uint32_t scored; /* number of tokens whose logprob came from a separate call afterwards */
    /* tokens of the prompt that were in the engine's cache; -1: not reported */
    int64_t cached_tokens;
    const struct engine_top *top;
    /* Owners of `ids`, `logprobs` and `top`, which the receiver may take (free()), leaving NULL; or
     * NULL: it may not. */
    int32_t **ids_own;
    float **logprobs_own;
    struct engine_top **top_own;
    uint32_t n_top;
    const struct engine_version *versions; /* sorted, covering ids without gaps; or n_versions 0 */
    size_t n_versions;
    /* Versions that the engine reported before and after the tokens, if it reports none for the
     * tokens; absent: none. */
    struct str version_before, version_after;
    const struct odds_support *support; /* set if wanted and returned for every token, else NULL */
    int32_t support_most;               /* its largest id */
    struct str experts; /* raw little-endian block; absent if not asked for or not returned */
    /* Owners of experts and indexer, which are long: the receiver may take the buffers. NULL: it
     * may not. */
    struct buf *experts_buf, *indexer_buf;
    uint32_t experts_from, experts_rows;
    struct str indexer; /* rows of the indexer from the first wanted one on; also absent if they are
                           too large */
    uint32_t indexer_from, indexer_rows;
    uint32_t indexer_layers; /* number of layers that the engine reports; 0: not reported */
    uint64_t indexer_bytes;  /* size of all rows, from the first one on */
    bool indexer_large;      /* there are more bytes than are kept */
    const char *replica;     /* name of the replica in records and logs */
    uint64_t queue_us;       /* time in the queue */
    uint64_t total_us;       /* set by the pool: time from the request to the end */
    uint32_t retries;        /* number of retries before the first byte */
    uint32_t resumes;        /* number of engine-side aborts that were spliced */
    const struct json
        *openai; /* for kind openai: {"choices": [{"messages", "finish_reason", "signed",
                    "replaced"}], "usage"} of the upstream's answer (../wire/upstream_text.h),
                    without messages that deltas contained. With text alone, ids and logprobs are
                    empty and NULL. NULL: a different kind */
    struct arena *openai_arena; /* memory of `openai`, which the receiver may take */
    /* for kind openai: the logprobs of an answer in one piece; the receiver may take their arena */
    struct engine_rows *rows;
    struct token_span
        prompt_ids; /* for kind openai: the prompt as rendered by the upstream, if reported */
};

#endif
