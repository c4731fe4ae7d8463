/*
 * Checks and stores the pictures that are part of a snapshot: each must match its SHA-256 and the
 * records' description, and is stored for the new session.
 */
#ifndef RG_CONTROL_IMPORT_PICTURES_H
#define RG_CONTROL_IMPORT_PICTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct err;
struct exchange;
struct image_part;
struct json;
struct media_store;
struct vision;

struct import_pictures {
    const struct media_store *store;
    struct exchange *x; /* exchange of the body; held, unless the caller is the loop */
    struct str session_id;
    const struct vision *vision; /* NULL: the model takes text only */
    uint64_t image_bytes;        /* largest size of one picture */
    const struct image_part *images;
    size_t n; /* number of different pictures that the records name */
    /* some picture of the session is in the store; after an error the caller drops it */
    bool stored;
};

/* Frees the memory of a text of the body that is not read again. A text with escapes is a copy,
 * which is not part of the body. */
void import_drop_text(struct exchange *x, struct str text);

/* Reads the members `media` and `media_urls` of the body. The pictures must be exactly those that
 * the records name, and each description must equal what this gateway computes from the bytes.
 * Fails with ERR_INVALID and the field, ERR_BODY_TOO_LARGE and the limit, or the errors of
 * media_store_put. Takes long. */
int import_pictures(struct import_pictures *p, struct arena *a, const struct json *body,
                    struct err *e);

#endif
