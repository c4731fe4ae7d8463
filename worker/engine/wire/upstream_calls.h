/*
 * struct upstream_calls: puts the tool calls of one upstream answer in order. Servers send the
 * pieces of parallel calls in turns, several calls under one index, or calls without any. The
 * output is one call after the other, numbered from 0, in the form in which every dialect writes
 * them. Pure.
 *
 *   in:   0 f({"a":   1 g({"b":   0 1})   1 2})        out:   f({"a": 1})  g({"b": 2})
 *
 * A call is sent as it comes when all before it are complete: their arguments are a whole JSON
 * value and something follows, or the answer has ended. Text that comes meanwhile waits, too.
 */
#ifndef RG_WIRE_UPSTREAM_CALLS_H
#define RG_WIRE_UPSTREAM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/codec/surrogates.h"
#include "worker/engine/wire/upstream_out.h"

struct json;

enum { UPSTREAM_TEXT, UPSTREAM_THOUGHT, UPSTREAM_TEXTS };

/* State of scanning arguments for the end of their JSON value. */
struct json_extent {
    uint32_t depth;
    bool began, in_string, escaped, complete;
};

struct upstream_call {
    struct buf id, name, waiting; /* waiting: arguments that were not sent yet */
    struct surrogates surrogates; /* halves of characters in the arguments */
    struct json_extent extent;
    int64_t index;             /* index from the upstream; -1: none */
    bool custom;               /* the input is a text, which is sent as {"input": TEXT} */
    bool is_function;          /* the API's older form: the message's only function_call */
    bool has_arguments, whole; /* whole: the arguments came as an object */
    bool begun, ended;         /* sending has begun; has ended */
};

struct upstream_calls {
    VEC(struct upstream_call) calls;
    size_t n_begun;
    struct buf texts[UPSTREAM_TEXTS]; /* texts held back */
    struct surrogates surrogates[UPSTREAM_TEXTS];
    size_t bytes; /* number of bytes of arguments, ids and names */
};

void upstream_calls_done(struct upstream_calls *c);

/* Returns whether nothing waits, so that other messages may be sent in their order. */
bool upstream_calls_are_sent(const struct upstream_calls *c);

/* Handles a piece of text or thought. */
void upstream_calls_text(struct upstream_calls *c, int kind, struct str text,
                         const struct upstream_out *out);

/* Adds one entry of a tool_calls list, at `path` (for errors), or a function_call. alone: it is the
 * only entry of the list. stream: it may continue an earlier entry. Returns the number of its call,
 * or -1 (ERR_ENGINE_INVALID). */
ssize_t upstream_calls_add(struct upstream_calls *c, const struct json *entry, const char *path,
                           bool alone, bool stream, struct err *e);

int upstream_calls_add_function(struct upstream_calls *c, const struct json *function,
                                const char *path, struct err *e);

/* Sends what is in order. */
void upstream_calls_advance(struct upstream_calls *c, const struct upstream_out *out);

/* Sends everything, because the answer has ended. Returns -1 with ERR_ENGINE_INVALID if a call has
 * no name. */
int upstream_calls_end(struct upstream_calls *c, const struct upstream_out *out, struct err *e);

/* Returns how many halves of characters were replaced. */
size_t upstream_calls_replaced(const struct upstream_calls *c);

#endif
