/*
 * struct chat_request: one model call as every dialect normalises it, and struct answer_sink: the
 * one stream of events that every dialect writes its answer from. Pure data; dialect modules
 * (worker/api) fill the first and implement the second, `call` reads the first and drives the
 * second. Everything is borrowed from the request's arena.
 */
#ifndef RG_REQUEST_CHAT_REQUEST_H
#define RG_REQUEST_CHAT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/request/chat.h"
#include "worker/tokens/span.h"

struct request_image;
struct vision;

/* What of pictures is taken. */
struct image_rules {
    const struct vision *vision; /* NULL: none; the model takes text only */
    uint64_t image_bytes;        /* of one picture */
    uint32_t images;             /* of one request */
};

/* How much one request may ask for; 0: no limit. */
struct request_limits {
    uint64_t memory_bytes;   /* of the arena of one request */
    uint32_t growth;         /* bytes of arena for each byte of the body, above some for all */
    uint64_t schema_bytes;   /* of tools and response formats: keys and values */
    uint64_t recorded_bytes; /* of metadata, and of template arguments, likewise */
    uint32_t tools, stops, messages;
};

/* Whether somebody else than its dialect obeys a member of a request. */
typedef bool (*member_taken_fn)(struct str name);

/* What a request brought that nobody here obeys; see dialect/request_members.h. */
struct dropped_fields {
    uint32_t unknown; /* members that nobody knows */
    uint32_t unused;  /* known ones that ask for what is not done */
    struct str names; /* a JSON list of the first names; absent: none were dropped */
};

enum thinking_mode { THINKING_UNSAID, THINKING_ON, THINKING_OFF, THINKING_ADAPTIVE, THINKING_ODD };

/* What a request wants of the model's thought; fields by their paths, NULL: not given. An effort's
 * value is in chat.kwargs, a budget's in sampling.max_thinking_tokens. */
struct thinking_wish {
    enum thinking_mode mode;
    const char *mode_field, *effort_field, *budget_field;
    bool effort_lost; /* the template has no such variable */
};

enum tool_choice { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_FUNCTION };

struct chat_request {
    struct str model;                  /* as the client named it; echoed in the answer */
    const char *id_head;               /* what its dialect's response ids begin with, or NULL */
    struct chat chat;                  /* messages, tools, kwargs; messages NULL for completions */
    const struct json *callable;       /* the tools that calls may name: chat.tools, or more that
                                          only messages tell of; NULL: none */
    struct str prompt;                 /* text completion; absent otherwise */
    struct token_span prompt_ids;      /* token-id completion; n == 0 otherwise */
    uint32_t n_prompts;                /* of a completion; above 1 each is a call of its own, and
                                          prompt or prompt_ids is the first */
    struct sampling sampling;          /* defaults filled in */
    const struct json *sampling_given; /* object: only the fields the client really sent */
    enum tool_choice tool_choice;
    struct str tool_function;        /* for CHOICE_FUNCTION */
    const struct json *tool_allowed; /* array of names, or NULL: any of the tools */
    bool parallel_tool_calls;        /* default true */
    bool stream;
    bool include_usage;
    bool logprobs;
    uint32_t top_logprobs;
    uint32_t n;              /* 1.. */
    struct str label;        /* sub-agent, from headers or metadata; absent when none */
    struct str parent_label; /* absent when none */
    struct str idempotency_key;
    uint32_t retry_count; /* x-stainless-retry-count */
    struct dropped_fields dropped;
    struct thinking_wish thinking;
    struct request_image *images; /* that came with it, n_images of them */
    uint32_t n_images;
};

/* tool_choice demands a call. */
static inline bool chat_request_needs_call(const struct chat_request *r)
{
    return r->tool_choice == CHOICE_REQUIRED || r->tool_choice == CHOICE_FUNCTION;
}

/* Usage of the whole call (all n answers). */
struct call_usage {
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* of the prompt, as the engine tells what it had computed before; known
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
 * after the commit finish (all answers at once), or failed at any point (before head: a plain HTTP
 * error; after: the dialect's in-stream error). Deltas are only sent for streams (n answers
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
};

/* The sink of a file that names its functions on_head, on_text ... */
#define ANSWER_SINK_ON                                                                            \
    {                                                                                             \
        .head = on_head, .text = on_text, .reasoning = on_reasoning, .tool_begin = on_tool_begin, \
        .tool_args = on_tool_args, .tool_end = on_tool_end, .logprobs = on_logprobs,              \
        .keepalive = on_keepalive, .finish = on_finish, .failed = on_failed,                      \
    }

#endif
