/*
 * struct image_lifts: removes the base64 of images from a request's body before it is read as JSON.
 *
 * Most of a long body is base64. Each base64 text is decoded. A copy of the body has a short
 * stand-in for it, and the original body can be freed step by step. If a lifted text is not that of
 * an image, image_lifts_undo restores the body, and the reader sees the original text. Pure.
 */
#ifndef RG_DIALECT_IMAGE_LIFTS_H
#define RG_DIALECT_IMAGE_LIFTS_H

#include "common/base/arena.h"
#include "worker/text/request/images.h"

/* A text that was lifted. */
struct image_lift {
    /* its stand-in in the new body: '#', which is not base64, and the image's hash */
    struct str stand_in;
    struct request_image image; /* in the arena */
    size_t at, len;             /* position of the text in the original body */
    bool used;                  /* the reader found an image here */
};

struct image_lifts {
    struct image_lift *all; /* in body order */
    size_t n, cap;
    size_t least;     /* least length of a lifted text */
    size_t max_bytes; /* longest decoded image, in bytes; longer ones are not lifted */
    size_t reached;   /* bytes of the body that were read so far */
    /* Called in order with bytes of the body that are read for the first time. May be NULL. */
    void (*reach)(void *ctx, struct str part);
    /* Called with bytes of the body that are not needed again. May be NULL. */
    void (*gone)(void *ctx, struct str part);
    void *ctx;
};

/* Length of the shortest base64 that is lifted, in bytes. */
enum { IMAGE_LIFT_LEAST = 16 << 10 };

/* Reports whether the body has text worth lifting from byte `at` on, which must not be in a
 * string. */
bool image_lifts_any(struct str body, size_t at);

/* Returns the body without the base64 of its images, in the arena. The caller has set least,
 * max_bytes, reach and gone of `l`. */
struct str image_lifts_lift(struct image_lifts *l, struct arena *a, struct str body);

/* Returns the image whose stand-in `text` is, by its position in the new body. NULL: a different
 * text. */
struct image_lift *image_lifts_find(const struct image_lifts *l, struct str text);

/* Reports whether the reader found an image for every lifted text. */
bool image_lifts_used(const struct image_lifts *l);

/* Restores the original body, in the arena. `rest`: the result of image_lifts_lift. */
struct str image_lifts_undo(const struct image_lifts *l, struct arena *a, struct str rest);

#endif
