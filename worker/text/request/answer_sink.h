/*
 * struct answer_sink: the one stream of events from which every dialect writes its answer, and the
 * values of these events. Pure data. Dialects implement the sink, `call` drives it. The values are
 * borrowed during the event.
 */
#ifndef RG_REQUEST_ANSWER_SINK_H
#define RG_REQUEST_ANSWER_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct err;
struct json;

/* Usage of the whole call (all n answers). */
struct call_usage {
    uint32_t prompt_tokens;
    /* tokens of the prompt that were in the engine's cache, as it reports; known at the end of the
     * call */
    uint32_t cached_tokens;
    uint32_t completion_tokens;
    uint32_t reasoning_tokens;
};

/* One sampled token of the answer, if logprobs were asked for. */
struct token_logprob {
    int32_t id;
    float logprob;
    struct str bytes; /* decoded bytes of the token */
    const struct token_logprob *top;
    uint32_t n_top;
};

/* Facts that are known when the call is accepted (before the first token). */
struct answer_head {
    struct str session_id;
    struct str response_id; /* without its head, which each dialect adds */
    uint64_t created_s;
    struct call_usage usage; /* only the prompt's counts */
    uint64_t call;           /* number of the call in the session */
};

/* One finished answer. */
struct finished_answer {
    uint32_t index;           /* index of the answer, 0..n-1 */
    struct str finish_reason; /* "stop", "length", "tool_calls" */
    struct str stop_text;     /* stop string that ended the answer, or absent */
    /* normalised assistant message: content, reasoning_content, tool_calls (including ids); the
     * same content as all deltas together */
    const struct json *message;
    const struct token_logprob *logprobs; /* n_logprobs of them, if they were asked for */
    size_t n_logprobs;
};

/*
 * Order of events: first head. Then for each answer text, reasoning and tool_* as soon as they are
 * certain, only for streams (n answers interleave by index). After the commit finish, for all
 * answers at once. Instead of finish, failed may come at any point: before head it is a plain HTTP
 * error, later the dialect's in-stream error. keepalive: the engine is silent. Exactly one of
 * finish and failed comes, as the last event.
 */
struct answer_sink {
    void (*head)(void *ctx, const struct answer_head *h);
    void (*text)(void *ctx, uint32_t index, struct str delta);
    void (*reasoning)(void *ctx, uint32_t index, struct str delta);
    void (*tool_begin)(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name);
    void (*tool_args)(void *ctx, uint32_t index, uint32_t tool, struct str delta);
    void (*tool_end)(void *ctx, uint32_t index, uint32_t tool);
    void (*logprobs)(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n);
    void (*keepalive)(void *ctx);
    void (*finish)(void *ctx, const struct finished_answer *answers, size_t n,
                   const struct call_usage *usage);
    void (*failed)(void *ctx, const struct err *e);
    /* an upstream's seal: the signature of the reasoning so far (signs_text), or opaque data. NULL:
     * the sink ignores seals. A seal may come with `finish` only */
    void (*sealed)(void *ctx, uint32_t index, struct str seal, bool signs_text);
};

/* Defines a sink from functions named on_NAME_head, on_NAME_text ..., with one more member.
 * ANSWER_SINK_ON_AND and ANSWER_SINK_ON do so without NAME. */
#define ANSWER_SINK_OF(name, more) ANSWER_SINK_WITH(on_##name##_, more)
#define ANSWER_SINK_ON_AND(more) ANSWER_SINK_WITH(on_, more)
#define ANSWER_SINK_ON ANSWER_SINK_ON_AND(.sealed = NULL)
#define ANSWER_SINK_WITH(on, more)                                                          \
    {                                                                                       \
        .head = on##head, .text = on##text, .reasoning = on##reasoning,                     \
        .tool_begin = on##tool_begin, .tool_args = on##tool_args, .tool_end = on##tool_end, \
        .logprobs = on##logprobs, .keepalive = on##keepalive, .finish = on##finish,         \
        .failed = on##failed, more                                                          \
    }

#endif
