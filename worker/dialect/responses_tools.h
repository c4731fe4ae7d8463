/*
 * The tools of OpenAI Responses: in the request, in items of its input, and in namespaces. A model
 * has one flat list of names; these functions translate to it and back.
 */
#ifndef RG_DIALECT_RESPONSES_TOOLS_H
#define RG_DIALECT_RESPONSES_TOOLS_H

#include "common/base/lookup.h"
#include "worker/text/request/chat_request.h"

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
/* Estimates the bytes of the tools that no prompt has: members that the model does not see, tools
 * of other kinds, further ones of the same name. Call it after the tools were read. */
size_t responses_tools_unseen(const struct arena *a, const struct json *body);
/* How many items in front of the input only bring tools. */
uint32_t responses_leading_tools(const struct json *body);
/* Reads the tools into chat.tools and callable. */
int responses_read_tools(struct arena *a, const struct json *body, struct chat_request *req,
                         struct err *e);
/* Writes the text by which the model sees the tools that input[at] brings; an empty text: there are
 * none. `given` are all tools of the request. */
int responses_tools_text(struct arena *a, const struct response_tools *given,
                         const struct json *item, uint32_t at, struct json *ret, struct err *e);

#endif
