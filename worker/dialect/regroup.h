/*
 * Joins the parts of an answer that a client sent back as several messages: parallel tool calls,
 * each followed by its result, and a thought or a text before its calls. Parts two answers that
 * items of Responses have without a border. Regrouping restores the assistant messages by the ids
 * of the calls. Pure.
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
    /* returns the message of an answer that `get` named, or NULL */
    const struct json *(*message)(void *ctx, struct str answer_id);
    /* returns the assistant's message without calls that this answer follows directly, or NULL */
    const struct json *(*before)(void *ctx, struct str answer_id);
    void *ctx;
    bool items; /* the messages were made of items, and one may have the texts of two answers */
};

/* Reports whether a message has calls, so that regrouping may be needed. messages: an array or
 * NULL. known: the known first messages, or NULL. */
bool regroup_wanted(const struct json *messages, const struct known_messages *known);

/* Returns `messages` if there is nothing to regroup, otherwise a new array in the arena. */
const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner);

#endif
