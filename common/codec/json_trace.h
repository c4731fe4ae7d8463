/*
 * Reads a text that begins with the same bytes as an earlier text. The bodies of a conversation
 * grow at their end: each body has a list of messages, and the next body begins with the same
 * bytes.
 *
 *   {"model": "m", "messages": [{...}, {...}, {...}], "stream": true}
 *    '-- members --'            '- item -'     ^ a mark after each item that is an object
 *
 * The reader passes over its text once, from the left. Its state at a mark depends only on the
 * bytes before the mark: the members before the list, the items so far, and the bytes of the arena
 * that they used. json_parse_traced records that state. From such a state and the text after the
 * mark, it returns the value, the error and the used bytes that the whole text would give.
 */
#ifndef RG_CODEC_JSON_TRACE_H
#define RG_CODEC_JSON_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/vec.h"
#include "common/codec/json.h"

/* State after an item of the list. */
struct json_mark {
    size_t end;        /* number of bytes of the text up to the end of the item */
    size_t used_bytes; /* bytes of the arena that all values before `end` use, without decoded
                          strings */
};

/* The record of a parse. The caller zeroes it and sets `key`. json_trace_done frees it. Its values
 * belong to the parsed tree. */
struct json_trace {
    struct str key; /* key of the followed list, a member of the text's object */
    bool found;
    bool twice;                  /* the key occurs twice, so there are no marks */
    bool closed;                 /* no further marks are recorded */
    struct json list_key;        /* key of the list, as parsed */
    size_t list_at;              /* offset after the list's bracket, if the text has it */
    VEC(struct json) members;    /* key, value, key, value ... before the list */
    VEC(struct json_mark) marks; /* marks of this text's items, in order */
    size_t escaped_at; /* offset after the quote of the first string with escapes; SIZE_MAX: none */
    size_t surrogate_at; /* end of the first lone surrogate; SIZE_MAX: none */
};

/* The state at a mark. */
struct json_known {
    size_t bytes; /* number of bytes of the text up to the mark (its `end`) */
    size_t used_bytes;
    size_t escaped_at;   /* as in json_trace, before the mark; SIZE_MAX: none */
    size_t surrogate_at; /* as in json_trace, before the mark; SIZE_MAX: none */
    struct json list_key;
    const struct json *members; /* n_members values, two for each member */
    size_t n_members;
    const struct json *items;
    size_t n_items;
};

/* Parses like json_parse_replacing, from a known state. `known`: text follows its mark. NULL: text
 * is whole. Records the marks of the text. Use them only if the parse succeeds and the key does not
 * occur twice. The result contains values of `known`. */
int json_parse_traced(struct arena *a, struct str text, const struct json_known *known,
                      struct json_trace *trace, const struct json **ret, struct err *e);

void json_trace_done(struct json_trace *t);

#endif
