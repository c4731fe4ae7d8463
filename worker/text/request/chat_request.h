/*
 * struct chat_request: one model call in the form that every dialect is normalised to. Pure data:
 * dialect modules (worker/dialect) fill it, `call` reads it. Everything is borrowed from the
 * request's arena. The opposite direction is answer_sink.h.
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

/* Members of a request that have no effect here; see dialect/request_members.h. */
struct dropped_fields {
    uint32_t unknown; /* number of unknown members */
    uint32_t unused;  /* number of known members that ask for something unsupported */
    struct str names; /* JSON list of the first names; absent: no member was dropped */
};

enum thinking_mode { THINKING_UNSAID, THINKING_ON, THINKING_OFF, THINKING_ADAPTIVE, THINKING_ODD };

/* Settings of a request for the model's thought. Fields are named by their paths, NULL: not given.
 * An effort's value is in chat.kwargs, a budget's in sampling.max_thinking_tokens. */
struct thinking_wish {
    enum thinking_mode mode;
    const char *mode_field, *effort_field, *budget_field;
    struct str effort; /* absent: the request has no effort */
    bool effort_lost;  /* the template has no variable for an effort */
};

enum tool_choice { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_FUNCTION };

/* One prompt of a completion. */
struct completion_prompt {
    struct str text;       /* absent: the prompt is ids */
    struct token_span ids; /* n == 0: the prompt is text */
    uint32_t ids_most;     /* position of the first of the largest ids */
};

struct chat_request {
    struct str model;    /* model as the client named it; echoed in the answer */
    const char *id_head; /* prefix of its dialect's response ids, or NULL */
    struct chat *chat;   /* messages, tools, kwargs; messages is NULL for completions */
    /* tools that calls may name: chat.tools, or more if messages contain further ones; NULL: none
     */
    const struct json *callable;
    struct str prompt;            /* prompt of a text completion; otherwise absent */
    struct token_span prompt_ids; /* prompt of a token-id completion; otherwise n == 0 */
    uint32_t prompt_ids_most;     /* position of the first of the largest ids */
    /* number of prompts of a completion; above 1 each is a call of its own, and prompt or
     * prompt_ids is the first */
    uint32_t n_prompts;
    struct sampling *sampling;         /* with defaults filled in */
    const struct json *sampling_given; /* object with only the fields that the client sent */
    enum tool_choice tool_choice;
    struct str tool_function;        /* for CHOICE_FUNCTION */
    const struct json *tool_allowed; /* array of names, or NULL: any of the tools */
    bool parallel_tool_calls;        /* default true */
    bool strict;                     /* a tool's arguments must fit its schema */
    bool stream;
    bool include_usage;
    bool logprobs;
    uint32_t top_logprobs;
    /* all n_prompts of a completion with several prompts; otherwise NULL */
    const struct completion_prompt *prompts;
    uint32_t n;              /* number of answers, at least 1 */
    struct str label;        /* sub-agent, from headers or metadata; absent: none */
    struct str parent_label; /* absent when none */
    struct str idempotency_key;
    uint32_t retry_count; /* x-stainless-retry-count */
    struct dropped_fields dropped;
    struct json *skipped; /* members that were skipped (request_add_skipped); NULL: none */
    struct thinking_wish thinking;
    struct request_image *images; /* images in the request, n_images of them */
    uint32_t n_images;
    uint32_t n_shown;   /* number of pictures in its messages, including those by URL */
    uint32_t n_awaited; /* number of images that must still be fetched (image_parts_fetch) */
    uint32_t n_plain;   /* number of first messages that certainly have no pictures */
};

/* Makes this the prompt of the request. */
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
