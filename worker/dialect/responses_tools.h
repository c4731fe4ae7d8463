/*
 * Tools of OpenAI Responses: in the request, in items of its input, and in namespaces. A model has
 * one flat list of names; these functions translate to it and back.
 */
#ifndef RG_DIALECT_RESPONSES_TOOLS_H
#define RG_DIALECT_RESPONSES_TOOLS_H

#include "common/base/lookup.h"
#include "worker/text/request/chat_request.h"

/* A tool of the request, and its namespace (absent: no namespace). */
struct response_tool {
    const struct json *tool;
    struct str space;
};

/* All tools of a request, found by name. Lives in the arena. */
struct response_tools {
    struct response_tool *at;
    uint32_t n;
    struct lookup names;   /* name -> the first tool with that name in any namespace */
    struct lookup spelled; /* NAMESPACE__NAME -> tool */
    bool client_search;    /* a tool searches tools, and the client runs it */
};

/* Reads all tools of the request, from its list and from items of its input. */
void response_tools_read(struct response_tools *ret, struct arena *a, const struct json *body);

/* Reports whether an item of the input adds tools. */
bool responses_brings_tools(const struct json *item);

/* Returns the name of a tool in the model's list. That is its own name, or NAMESPACE__NAME if an
 * earlier tool of a different namespace has its name. */
struct str responses_flat_name(const struct response_tools *tools, struct str space,
                               struct str name);
/* Returns the tool that has this name in the model's list, and sets *ret_space to its namespace
 * (absent: no namespace). NULL: no such tool. */
const struct json *responses_tool(const struct response_tools *tools, struct str flat,
                                  struct str *ret_space);

/* Returns all tools of a request as the client sent them. NULL: no tools. */
const struct json *responses_tools_of(struct arena *a, const struct json *body);
/* Estimates the bytes of tool definitions that are in no prompt: members that the model does not
 * see, tools of other kinds, and repeated names. Call it after the tools were read. */
size_t responses_tools_unseen(const struct arena *a, const struct json *body);
/* Returns the number of items at the start of the input that only add tools. */
uint32_t responses_leading_tools(const struct json *body);
/* Reads the tools into chat.tools and req->callable. */
int responses_read_tools(struct arena *a, const struct json *body, struct chat_request *req,
                         struct err *e);
/* Sets *ret to the text that shows the model the tools of input[at]; empty: no tools. `given`: all
 * tools of the request. */
int responses_tools_text(struct arena *a, const struct response_tools *given,
                         const struct json *item, uint32_t at, struct json *ret, struct err *e);

#endif
