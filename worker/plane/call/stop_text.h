/*
 * struct stop_text: searches text that arrives in pieces for stop strings, and holds back only what
 * may still become one. The stop string that is complete first counts; of several that end at the
 * same byte, the longest. All text after it is dropped. Embedded by value. struct stop_tree: all
 * stop strings of a request as one Aho-Corasick automaton: a byte of text costs the same for one
 * stop string as for ten thousand.
 */
#ifndef RG_CALL_STOP_TEXT_H
#define RG_CALL_STOP_TEXT_H

#include "common/base/arena.h"
#include "common/base/buf.h"

struct json;
struct stop_tree;

/* Makes the tree of `stops`: an array of non-empty strings, borrowed, or NULL. Returns NULL if
 * there are none. */
const struct stop_tree *stop_tree_new(struct arena *a, const struct json *stops);

struct stop_text {
    const struct stop_tree *tree; /* borrowed; NULL: no stop strings */
    /* node of the longest suffix of the text that begins a stop string */
    uint32_t at;
    struct buf held;
    struct str hit; /* the stop string that was found; absent: none */
};

void stop_text_init(struct stop_text *s, const struct stop_tree *tree);
void stop_text_done(struct stop_text *s);

/* Appends to `out` the text that certainly comes before any stop string. */
void stop_text_feed(struct stop_text *s, struct str text, struct buf *out);

/* Turns the stop string that was found into plain text: appends it to `out`, and then the text
 * after it, in which another one may be found. */
void stop_text_pass(struct stop_text *s, struct buf *out);

/* Ends the text: appends what was held back, which is no stop string. */
void stop_text_finish(struct stop_text *s, struct buf *out);

#endif
