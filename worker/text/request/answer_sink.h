/*
 * struct answer_sink: the one stream of events that every dialect writes its answer from, and the
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
    uint32_t cached_tokens; /* tokens of the prompt that the engine had cached, as it reports; known
                               at the end of the call */
    uint32_t completion_tokens;
    uint32_t reasoning_tokens;
};

/* One sampled token of the answer, when logprobs were asked for. */
struct token_logprob {
    int32_t id;
    float logprob;
    struct str bytes; /* its decoded bytes */
    const struct token_logprob *top;
    uint32_t n_top;
};

/* Facts known when the call was accepted (before the first token). */
struct answer_head {
    struct str session_id;
    struct str response_id; /* dialects put their own head before its unique part */
    uint64_t created_s;
    struct call_usage usage; /* prompt counts only */
    uint64_t call;           /* its number in the session */
};

/* One finished answer. */
struct finished_answer {
    uint32_t index;             /* 0..n-1 */
    struct str finish_reason;   /* "stop", "length", "tool_calls" */
    struct str stop_text;       /* the stop string that ended it, or absent */
    const struct json *message; /* normalised assistant message: content, reasoning_content,
                                   tool_calls (ids included); the same that the deltas spelled */
    const struct token_logprob *logprobs; /* n_logprobs of them, when asked for */
    size_t n_logprobs;
};

/*
 * Order: head, then per answer any of text / reasoning / tool_* as soon as they are certain, then
 * after the commit finish (all answers at once). Or failed at any point: before head it is a plain
 * HTTP error, later the dialect's in-stream error. Deltas are only sent for streams (n answers
 * interleave by index). keepalive: the engine is silent. Exactly one of finish / failed, last.
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
    /* An upstream's seal: the signature of the reasoning so far (signs_text), or data of its own.
     * NULL: the sink has no place for it. A seal may come with `finish` alone. */
    void (*sealed)(void *ctx, uint32_t index, struct str seal, bool signs_text);
};

/* The sink of a file that names its functions on_NAME_head, on_NAME_text ..., and one more member;
 * ANSWER_SINK_ON_AND and ANSWER_SINK_ON: without NAME. */
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
