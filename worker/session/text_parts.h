/*
 * struct text_parts: the texts of one call as its records bring them, a part at a time. One buffer
 * of all would be copied whenever it grows, some milliseconds for the last of many parts; so they
 * are kept in blocks, and put together once, by who reads them: a helper where they are long.
 * A zeroed struct is valid and empty.
 */
#ifndef RG_SESSION_TEXT_PARTS_H
#define RG_SESSION_TEXT_PARTS_H

#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct text_parts {
    VEC(struct buf) blocks;
    size_t len;   /* of all */
    size_t bytes; /* that they take */
};

/* Copies the part behind the others. */
void text_parts_add(struct text_parts *t, struct str part);

/* All in one, borrowed until they change. Touches nothing else, on whatever thread. */
struct str text_parts_whole(struct text_parts *t);

/* Frees them; empty afterwards. */
void text_parts_done(struct text_parts *t);

#endif
