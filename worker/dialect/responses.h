/*
 * OpenAI Responses beyond what every dialect has: ids and stored responses.
 * Ids we issue: resp_R for the response, msg_R[_k], rs_R[_k], fc_R_i, ctc_R_i, tsc_R_i for its
 * items, where R is the bare response id (which has no underscore): an item's id leads to its
 * answer.
 */
#ifndef RG_DIALECT_RESPONSES_H
#define RG_DIALECT_RESPONSES_H

#include "common/base/lookup.h"
#include "worker/dialect/writers.h"

/* R of any id that we issued. */
struct str response_bare_id(struct str id);

enum { TOOL_NAME_MAX = 1024 }; /* bytes, also of a namespace: both are joined for every tool */

/* A tool of the request, and its namespace (absent: none). */
struct response_tool {
    const struct json *tool;
    struct str space;
};

/* All tools that a request brings, found by their names; lives in the arena. */
struct response_tools {
    struct response_tool *at;
    uint32_t n;
    struct lookup names;   /* the first tool of that name, whatever its namespace */
    struct lookup spelled; /* NAMESPACE__NAME */
    bool client_search;    /* one of them searches tools, and the client does it */
};

void response_tools_read(struct response_tools *ret, struct arena *a, const struct json *body);

/* A tool in a namespace has its own name in the model's list, or with its namespace before it when
 * another tool comes first with that name. */
struct str responses_flat_name(const struct response_tools *tools, struct str space,
                               struct str name);
/* And back: the request's tool, and its namespace (absent: none). NULL: no such tool. */
const struct json *responses_tool(const struct response_tools *tools, struct str flat,
                                  struct str *ret_space);

/* All tools that a request brings, as it sent them; NULL: none. */
const struct json *responses_tools_of(struct arena *a, const struct json *body);
/* How many items in front of the input only bring tools. */
uint32_t responses_leading_tools(const struct json *body);
/* Into chat.tools and callable. */
int responses_read_tools(struct arena *a, const struct json *body, struct chat_request *req,
                         struct err *e);
/* What the model is told of the tools that input[at] brings; an empty text: there are none. `given`
 * are all tools of the request. */
int responses_tools_text(struct arena *a, const struct response_tools *given,
                         const struct json *item, uint32_t at, struct json *ret, struct err *e);

/* Those members of a request that its response object echoes (dialect.asked). */
void responses_asked(struct arena *a, const struct chat_request *req, const struct json *body,
                     struct str ret[2]);

/* The response object of a stored answer; head->usage is the whole call's. `asked` has the members
 * that responses_asked kept. */
void responses_write_stored(struct arena *a, const struct answer_head *head,
                            const struct finished_answer *answer, const struct json *asked,
                            struct str model, struct buf *out);

#endif
