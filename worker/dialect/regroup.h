/*
 * Some clients send parallel tool calls back one by one, each followed by its result. Regrouping
 * joins them to the assistant turn that they were, by their call ids. Pure.
 */
#ifndef RG_DIALECT_REGROUP_H
#define RG_DIALECT_REGROUP_H

#include "common/base/arena.h"

struct json;
struct known_messages;

/* Finds the answer that issued the call; absent if it is unknown. */
struct regroup_owner {
    struct str (*get)(void *ctx, struct str call_id);
    void *ctx;
};

/* Whether there may be something to regroup: two messages with calls. messages: an array or NULL;
 * known: what is known of the first of them, or NULL. */
bool regroup_wanted(const struct json *messages, const struct known_messages *known);

/* `messages` itself when there is nothing to regroup, else a new array in the arena. */
const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner);

#endif
