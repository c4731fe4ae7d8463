/*
 * struct upstream_out: receives messages of an upstream in the normalised form of the gateway. Each
 * is an object with one member: "content", "reasoning_content", "tool_calls": [{"index", "id",
 * "function": {"name", "arguments"}}], a piece of one call, or "sealed": {"seal", "signs_text"} of
 * the thought before it (answer_sink.h).
 */
#ifndef RG_WIRE_UPSTREAM_OUT_H
#define RG_WIRE_UPSTREAM_OUT_H

#include <stdbool.h>

struct arena;
struct json;

struct upstream_out {
    struct arena *arena;
    struct json *list; /* grows by json_push */
    bool stream;       /* the answer comes in chunks */
};

#endif
