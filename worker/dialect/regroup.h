/*
 * Joins the parts of an answer that a client sent back as several messages: parallel tool calls,
 * each followed by its result, and a text before its calls. Regrouping restores the assistant
 * message that contained them, by the ids of the calls. Pure.
 */
#ifndef RG_DIALECT_REGROUP_H
#define RG_DIALECT_REGROUP_H

#include "common/base/arena.h"

struct json;
struct known_messages;

/* The answers of a session. */
struct regroup_owner {
    /* returns the id of the answer that issued the call; absent if it is unknown */
    struct str (*get)(void *ctx, struct str call_id);
    /* returns the text next to the calls of an answer that `get` named; absent: none, or the
     * message before the answer is the same text */
    struct str (*text)(void *ctx, struct str answer_id);
    void *ctx;
};

/* Reports whether a message has calls, so that regrouping may be needed. messages: an array or
 * NULL. known: the known first messages, or NULL. */
bool regroup_wanted(const struct json *messages, const struct known_messages *known);

/* Returns `messages` if there is nothing to regroup, otherwise a new array in the arena. */
const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner);

#endif
