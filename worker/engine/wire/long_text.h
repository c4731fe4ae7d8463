/*
 * struct long_text: a whole answer of a kind of text that is long: a
 * helper reads it (reading_parse), while its attempt waits.
 */
#ifndef RG_WIRE_LONG_TEXT_H
#define RG_WIRE_LONG_TEXT_H

#include "common/base/str.h"

struct engine_options;
struct long_text;
struct reading;

/* The pool has tasks, and reading_is_long. *ret owns the reading
 * until `done`, on the loop, maybe before this returns, with the reading, or NULL: the helper did
 * not come to its end. */
void long_text_begin(struct reading *r, const struct engine_options *o, struct str session_id,
                     void (*done)(void *ctx, struct reading *r), void *ctx, struct long_text **ret);

/* It is given up, and the reading is freed, when the helper has let go. NULL is fine. */
void long_text_drop(struct long_text *t);

#endif
