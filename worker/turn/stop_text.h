/*
 * struct stop_text: looks for stop strings in text that comes in pieces, and holds back only what
 * may still become one. Behind a hit everything is dropped. Embed by value.
 */
#ifndef RG_TURN_STOP_TEXT_H
#define RG_TURN_STOP_TEXT_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/codec/json.h"

struct stop_text {
    const struct json *stops; /* array of non-empty strings, or NULL; borrowed */
    struct buf held;
    struct str hit; /* the stop string that came, or absent */
};

void stop_text_init(struct stop_text *s, const struct json *stops);
void stop_text_done(struct stop_text *s);

/* Appends to `out` what is certain to stand before any stop string. */
void stop_text_feed(struct stop_text *s, struct str text, struct buf *out);

/* The text has ended: what was held back was no stop string. */
void stop_text_finish(struct stop_text *s, struct buf *out);

#endif
