/*
 * struct chat_request: one model call as every dialect normalises it. Pure data; dialect modules
 * (worker/dialect) fill it, `call` reads it. Everything is borrowed from the request's arena. The
 * way back is answer_sink.h.
 */
#ifndef RG_REQUEST_CHAT_REQUEST_H
#define RG_REQUEST_CHAT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct chat;
struct json;
struct request_image;
struct sampling;

/* Reports whether a layer other than the dialect uses this member of a request. */
typedef bool (*member_taken_fn)(struct str name);

/* Numbers of a request's members that have no effect here; see dialect/request_members.h. */
struct dropped_fields {
    uint32_t unknown; /* unknown members */
    uint32_t unused;  /* known ones that ask for what is not done */
    struct str names; /* a JSON list of the first names; absent: none were dropped */
};

enum thinking_mode { THINKING_UNSAID, THINKING_ON, THINKING_OFF, THINKING_ADAPTIVE, THINKING_ODD };

/* A request's wishes for the model's thought; fields by their paths, NULL: not given. An effort's
 * value is in chat.kwargs, a budget's in sampling.max_thinking_tokens. */
struct thinking_wish {
    enum thinking_mode mode;
    const char *mode_field, *effort_field, *budget_field;
    struct str effort; /* absent: the request has none */
    bool effort_lost;  /* the template has no such variable */
};

enum tool_choice { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_FUNCTION };

/* One prompt of a completion. */
struct completion_prompt {
    struct str text;       /* absent: it is ids */
    struct token_span ids; /* n == 0: it is text */
    uint32_t ids_most;     /* position of the first of the largest of them */
};

struct chat_request {
    struct str model;             /* model as the client named it; echoed in the answer */
    const char *id_head;          /* start of its dialect's response ids, or NULL */
    struct chat *chat;            /* messages, tools, kwargs; messages NULL for completions */
    const struct json *callable;  /* the tools that calls may name: chat.tools, or more that only
                                     messages contain; NULL: none */
    struct str prompt;            /* text completion; absent otherwise */
    struct token_span prompt_ids; /* token-id completion; n == 0 otherwise */
    uint32_t prompt_ids_most;     /* position of the first of the largest of them */
    uint32_t n_prompts; /* number of prompts of a completion; above 1 each is a call of its own, and
                           prompt or prompt_ids is the first */
    struct sampling *sampling;         /* defaults filled in */
    const struct json *sampling_given; /* object: only the fields the client really sent */
    enum tool_choice tool_choice;
    struct str tool_function;        /* for CHOICE_FUNCTION */
    const struct json *tool_allowed; /* array of names, or NULL: any of the tools */
    bool parallel_tool_calls;        /* default true */
    bool stream;
    bool include_usage;
    bool logprobs;
    uint32_t top_logprobs;
    /* of a completion with several prompts all of them, n_prompts; else NULL */
    const struct completion_prompt *prompts;
    uint32_t n;              /* 1.. */
    struct str label;        /* sub-agent, from headers or metadata; absent when none */
    struct str parent_label; /* absent when none */
    struct str idempotency_key;
    uint32_t retry_count; /* x-stainless-retry-count */
    struct dropped_fields dropped;
    struct json *skipped; /* see request_add_skipped; NULL: nothing */
    struct thinking_wish thinking;
    struct request_image *images; /* images in the request, n_images of them */
    uint32_t n_images;
    uint32_t n_shown;   /* pictures among its messages, those by URL as well */
    uint32_t n_awaited; /* images still to be fetched (image_parts_fetch) */
    uint32_t n_plain;   /* its first messages, as they were read, have none for certain */
};

/* The request is for this prompt. */
static inline void chat_request_take_prompt(struct chat_request *r,
                                            const struct completion_prompt *p)
{
    r->prompt = p->text;
    r->prompt_ids = p->ids;
    r->prompt_ids_most = p->ids_most;
}

/* Reports whether tool_choice demands a call. */
static inline bool chat_request_needs_call(const struct chat_request *r)
{
    return r->tool_choice == CHOICE_REQUIRED || r->tool_choice == CHOICE_FUNCTION;
}

#endif
