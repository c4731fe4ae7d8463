/*
 * Pictures in a chat. In normalised messages (chat.h) one is a part of a content list:
 *
 *   {"type":"image","media":SHA-256 of its bytes,"format":"png",...,"bytes":n,"width":w,"height":h,
 *    "orientation":1,"grid":[1,h,w],"tokens":n}
 *
 * so that a message contains all that prompts, checks and exports need. The media store has the
 * bytes. `grid` and `tokens` are this model's values for the image. All members but the hash follow
 * from the bytes and the model, so two parts are equal if their hashes are.
 */
#ifndef RG_REQUEST_IMAGES_H
#define RG_REQUEST_IMAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct err;
struct json;

/* A picture that a request brought, in its arena. */
struct request_image {
    struct str media; /* SHA-256, in hexadecimal digits */
    struct str bytes; /* the file, until it is stored: a chunk of its own (arena_alloc_alone) */
    struct str url;   /* from where it was fetched; absent: it came in the request */
    struct str part;  /* JSON of image_part_make, if it was fetched */
};

/* An image of a conversation, as read from its part. */
struct image_part {
    struct str media, format;
    uint32_t width, height, orientation, tokens;
    uint32_t grid[3]; /* time, height, width in patches */
    uint64_t bytes;
};

/* The part of a picture. */
struct json image_part_make(struct arena *a, const struct image_part *p);

/* Whether a content's part is a picture's. */
bool image_part_is(const struct json *part);

/* Whether a part of type "image" from outside is as image_part_make makes them: these members and
 * no others, numbers within what struct image_part holds. -1 and ERR_INVALID with field, value and
 * limit. */
int image_part_check(const struct json *part, struct err *e);

/* Reads a part that passes image_part_is. Missing members are 0. */
void image_part_read(const struct json *part, struct image_part *ret);

/* Whether two parts say the same. */
bool image_part_equal(const struct image_part *a, const struct image_part *b);

/* Calls `each` for the pictures of messages [from, n), in order. */
void images_each(const struct json *messages, uint32_t from,
                 void (*each)(void *ctx, const struct json *part), void *ctx);

/* Number of images in messages [from, n), and the ids that a prompt has beyond the sent ones: each
 * image is one id there. */
struct images_sum {
    uint32_t n;
    uint64_t extra;
};

struct images_sum images_sum(const struct json *messages, uint32_t from);

#endif
