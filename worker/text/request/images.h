/*
 * Pictures in a chat. In normalised messages (chat.h) a picture is a part of a content list:
 *
 *   {"type":"image","media":SHA-256 of its bytes,"format":"png",...,"bytes":n,"width":w,"height":h,
 *    "orientation":1,"grid":[1,h,w],"tokens":n}
 *
 * so that a message contains all that prompts, checks and exports need. The media store has the
 * bytes. `grid` and `tokens` are this model's values for the image. All members except the hash
 * follow from the bytes and the model, so two parts are equal if their hashes are.
 */
#ifndef RG_REQUEST_IMAGES_H
#define RG_REQUEST_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct err;
struct json;

/* A picture of a request, in the request's arena. */
struct request_image {
    struct str media; /* SHA-256, in hexadecimal digits */
    /* content of the file, until it is stored: a chunk of its own (arena_alloc_alone) */
    struct str bytes;
    struct str url;  /* address from which it was fetched; absent: it was in the request */
    struct str part; /* JSON of image_part_make, if the picture was fetched */
};

/* The fields of a picture's part. */
struct image_part {
    struct str media, format;
    uint32_t width, height, orientation, tokens;
    uint32_t grid[3]; /* time, height, width in patches */
    uint64_t bytes;
};

/* Makes the part of a picture. */
struct json image_part_make(struct arena *a, const struct image_part *p);

/* Reports whether a part of a content is a picture. */
bool image_part_is(const struct json *part);

/* Checks that a part of type "image" from outside has the form that image_part_make writes: exactly
 * these members, with numbers that struct image_part can hold. Returns -1 and ERR_INVALID with
 * field, value and limit. */
int image_part_check(const struct json *part, struct err *e);

/* Reads a part for which image_part_is is true. Missing members are 0. */
void image_part_read(const struct json *part, struct image_part *ret);

/* Reports whether two parts have equal fields. */
bool image_part_equal(const struct image_part *a, const struct image_part *b);

/* Calls `each` for the pictures of messages [from, n), in order. */
void images_each(const struct json *messages, uint32_t from,
                 void (*each)(void *ctx, const struct json *part), void *ctx);

/* Number of images in messages [from, n), and how many ids they add to a prompt: in the sent
 * messages each image is one id. */
struct images_sum {
    uint32_t n;
    uint64_t extra;
};

struct images_sum images_sum(const struct json *messages, uint32_t from);

#endif
