/*
 * Reads a text that begins with the same bytes as an earlier text. Bodies of a conversation grow at
 * their end: a list of messages is a member of the body's object, and the next body begins with the
 * same bytes.
 *
 *   {"model": "m", "messages": [{...}, {...}, {...}], "stream": true}
 *    '-- members --'            '- item -'     ^ a mark after each item that is an object
 *
 * The reader goes over its text once, from the left. Its state at a mark depends only on the bytes
 * before the mark: the members before the list, the items so far, and the arena's budget that they
 * used. json_parse_traced records that state. With such a state and the text after the mark it
 * returns the value, the error and the used bytes that the whole text would give.
 */
#ifndef RG_CODEC_JSON_TRACE_H
#define RG_CODEC_JSON_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/vec.h"
#include "common/codec/json.h"

/* State after an item of the list. */
struct json_mark {
    size_t end;        /* bytes of the text up to and including the item */
    size_t used_bytes; /* used bytes of the arena by all values before `end`, without decoded
                          strings */
};

/* The record of a parse. Zeroed but for `key`; json_trace_done frees it. Values are those of the
 * parse. */
struct json_trace {
    struct str key; /* key of the followed list, a member of the text's object */
    bool found;
    bool twice;                  /* the key occurs twice: the list is not the body's */
    bool closed;                 /* no further marks: what follows is not to be read from inside */
    struct json list_key;        /* key of the list, as read */
    VEC(struct json) members;    /* key, value, key, value ... before the list */
    VEC(struct json_mark) marks; /* marks of this text's items, in order */
    size_t escaped_at;   /* position after the quote of the first string with escapes; SIZE_MAX */
    size_t surrogate_at; /* end of the first lone surrogate; SIZE_MAX: there is not one */
};

/* The state at a mark. */
struct json_known {
    size_t bytes; /* bytes of the text up to the mark (its `end`) */
    size_t used_bytes;
    size_t escaped_at;   /* first string with escapes; SIZE_MAX: after the mark, if anywhere */
    size_t surrogate_at; /* first surrogate; SIZE_MAX: after the mark, if anywhere */
    struct json list_key;
    const struct json *members; /* n_members values, two for each member */
    size_t n_members;
    const struct json *items;
    size_t n_items;
};

/* Parses like json_parse_replacing, from a known state on. `known`: `text` is what follows its
 * mark; NULL: `text` is the whole. Records marks that `known` does not have; no marks unless the
 * parse succeeds and the key occurs once. Values of `known` become part of the result. */
int json_parse_traced(struct arena *a, struct str text, const struct json_known *known,
                      struct json_trace *trace, const struct json **ret, struct err *e);

void json_trace_done(struct json_trace *t);

#endif
