/*
 * A long body is mostly pictures: before it is read as JSON, their base64 is lifted out of it and
 * decoded, and a few characters replace it. So no copy of the text is made, and its owner may free
 * it step by step. A lifted text that is not a picture's is put back (image_lifts_undo), so the
 * reader of JSON and dialects sees the original text. Pure.
 */
#ifndef RG_DIALECT_IMAGE_LIFTS_H
#define RG_DIALECT_IMAGE_LIFTS_H

#include "common/base/arena.h"
#include "worker/text/request/images.h"

/* One text that was lifted. */
struct image_lift {
    struct str stand_in; /* in the body that is read: '#', which is no base64, and the hash */
    struct request_image image; /* in the arena */
    size_t at, len;             /* position of the text in the body, as it came */
    bool used;                  /* it was a picture's */
};

struct image_lifts {
    struct image_lift *all; /* in the order of the body */
    size_t n, cap;
    size_t least;     /* shorter texts stay where they are, */
    size_t max_bytes; /* and so do those of more bytes */
    size_t reached;   /* bytes of the body that were read so far */
    /* Called with bytes of the body when they are read for the first time, in order; may be NULL.
     */
    void (*reach)(void *ctx, struct str part);
    /* Called with bytes of the body that are not read again; may be NULL. */
    void (*gone)(void *ctx, struct str part);
    void *ctx;
};

/* Shortest base64 that is lifted. */
enum { IMAGE_LIFT_LEAST = 16 << 10 };

/* Whether there may be pictures worth lifting from byte `at` on, which is in no string. */
bool image_lifts_any(struct str body, size_t at);

/* The body without its pictures, in the arena; all of it when it has none. `l` has least,
 * max_bytes, reach and gone. */
struct str image_lifts_lift(struct image_lifts *l, struct arena *a, struct str body);

/* Finds the picture whose stand-in this is, as it is in the body that was read; NULL: another text.
 */
struct image_lift *image_lifts_find(const struct image_lifts *l, struct str text);

/* Whether all that was lifted were pictures. */
bool image_lifts_used(const struct image_lifts *l);

/* The body as it came, in the arena: what image_lifts_lift made of it is `rest`. */
struct str image_lifts_undo(const struct image_lifts *l, struct arena *a, struct str rest);

#endif
