/*
 * struct long_text: reading of a whole answer of a text kind that is long: a helper reads it
 * (reading_parse), while its attempt waits.
 */
#ifndef RG_WIRE_LONG_TEXT_H
#define RG_WIRE_LONG_TEXT_H

#include "common/base/str.h"

struct engine_options;
struct long_text;
struct reading;

/* Starts reading. The pool must have tasks, and reading_is_long must be true. *ret owns the reading
 * until `done`, which is called on the loop, perhaps before this returns. `done` gets the reading,
 * or NULL if the helper did not finish. */
void long_text_begin(struct reading *r, const struct engine_options *o, struct str session_id,
                     void (*done)(void *ctx, struct reading *r), void *ctx, struct long_text **ret);

/* Abandons the text. The reading is freed when the helper has released it. Accepts NULL. */
void long_text_drop(struct long_text *t);

#endif
