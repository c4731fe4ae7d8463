/*
 * Reading a text that begins as one before it did. Bodies of a conversation grow at their end: a
 * list of messages is a member of the body's object, and the next body begins with the same bytes.
 *
 *   {"model": "m", "messages": [{...}, {...}, {...}], "stream": true}
 *    '-- members --'            '- item -'     ^ a mark behind each item that is an object
 *
 * The reader goes over its text once, from the left, so what it knows at a mark depends on the
 * bytes before it alone: the members before the list, the items so far, and what these took of its
 * arena's budget. json_parse_traced notes that; given such a state and the text behind it, it gives
 * the value, the error and the used bytes of the arena that the whole text would have given.
 */
#ifndef RG_CODEC_JSON_TRACE_H
#define RG_CODEC_JSON_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/vec.h"
#include "common/codec/json.h"

/* Behind an item of the list. */
struct json_mark {
    size_t end;        /* bytes of the text up to and including the item */
    size_t used_bytes; /* of the arena, by all values before `end` (but for decoded strings) */
};

/* What was noted. Zeroed but for `key`; json_trace_done frees it. Values are those of the parse. */
struct json_trace {
    struct str key; /* of the list: a member of the text's object */
    bool found;
    bool twice;                  /* the key stands twice: the list is not the body's */
    bool closed;                 /* no further marks: what follows is not to be read from inside */
    struct json list_key;        /* as it was read */
    VEC(struct json) members;    /* key, value, key, value ... before the list */
    VEC(struct json_mark) marks; /* of this text's items, in order */
    size_t escaped_at;           /* behind the quote of the first string with escapes; SIZE_MAX */
    size_t surrogate_at;         /* end of the first lone surrogate; SIZE_MAX: there is not one */
};

/* The state at a mark. */
struct json_known {
    size_t bytes; /* mark.end */
    size_t used_bytes;
    size_t escaped_at;   /* SIZE_MAX: behind the mark, if anywhere */
    size_t surrogate_at; /* the same */
    struct json list_key;
    const struct json *members; /* n_members values, two for each member */
    size_t n_members;
    const struct json *items;
    size_t n_items;
};

/* As json_parse_replacing. `known`: `text` is what follows it; NULL: nothing came before. Of the
 * marks those are noted that `known` does not have. There are none unless the parse succeeds and
 * the key stands once; values of `known` become part of the result. */
int json_parse_traced(struct arena *a, struct str text, const struct json_known *known,
                      struct json_trace *trace, const struct json **ret, struct err *e);

void json_trace_done(struct json_trace *t);

#endif
