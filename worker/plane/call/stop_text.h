/*
 * struct stop_text: looks for stop strings in text that comes in pieces, and holds back only what
 * may still become one. The stop string that is complete first counts; of several that end at one
 * byte the longest. Behind a hit everything is dropped. Embed by value.
 * struct stop_tree: all stop strings of a request as one automaton (Aho and Corasick's): a byte of
 * text costs the same for one as for ten thousand.
 */
#ifndef RG_CALL_STOP_TEXT_H
#define RG_CALL_STOP_TEXT_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/buf.h"

struct json;
struct stop_tree;

/* stops: an array of non-empty strings, borrowed, or NULL. Returns NULL if there are none. */
const struct stop_tree *stop_tree_new(struct arena *a, const struct json *stops);

struct stop_text {
    const struct stop_tree *tree; /* borrowed; NULL: no stop strings */
    uint32_t at;                  /* node: the longest end of the text that begins a stop string */
    struct buf held;
    struct str hit; /* the stop string that came, or absent */
};

void stop_text_init(struct stop_text *s, const struct stop_tree *tree);
void stop_text_done(struct stop_text *s);

/* Appends to `out` what is certain to stand before any stop string. */
void stop_text_feed(struct stop_text *s, struct str text, struct buf *out);

/* Makes the stop string that came plain text: appends it to `out`, and then what followed it. That
 * may have another one. */
void stop_text_pass(struct stop_text *s, struct buf *out);

/* The text has ended: what was held back was no stop string. */
void stop_text_finish(struct stop_text *s, struct buf *out);

#endif
