/*
 * The pictures that come with a snapshot: each is held against its SHA-256, and against what the
 * records say of it, and stored for the session that is to be.
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
    struct exchange *x; /* whose body it is: held, or the caller is the loop */
    struct str session_id;
    const struct vision *vision; /* NULL: the model takes text only */
    uint64_t image_bytes;        /* largest size of one picture */
    const struct image_part *images;
    size_t n;    /* number of pictures that the records name, each once */
    bool stored; /* something of the session is in the store: the caller's to drop after an error */
};

/* A text of the body is not read again: its memory goes back. One with escapes is a copy, which is
 * no part of the body. */
void import_drop_text(struct exchange *x, struct str text);

/* Reads the members `media` and `media_urls` of the body. Each picture must be named by the
 * records, and each of those must be there. Its description must be what this gateway computes from
 * its bytes. ERR_INVALID with the field, ERR_BODY_TOO_LARGE with the limit; errors as of
 * media_store_put. Long work. */
int import_pictures(struct import_pictures *p, struct arena *a, const struct json *body,
                    struct err *e);

#endif
