/*
 * Pictures in requests of all dialects. Reading content makes a part of each that only holds what
 * the client sent and its position. At the end of a parse image_parts_normalise makes normalised
 * parts (worker/text/request/images.h) of them, or refuses.
 */
#ifndef RG_DIALECT_IMAGE_PARTS_H
#define RG_DIALECT_IMAGE_PARTS_H

#include "worker/dialect/request_fields.h"
#include "worker/text/request/images.h"

struct image_rules;

/* Whether a part of that type is a picture: image_url, input_image, image. */
bool image_parts_type(struct str type);

/* The part that waits for image_parts_normalise. `at` is its place, for errors. */
struct json image_parts_wait(struct arena *a, const struct json *given, const char *at);

/* A source of pictures by their URL. */
enum { IMAGE_AT_FAULT = -2 };

struct image_source {
    /* The bytes, in the arena (arena_alloc_alone), or, of one that the session has had from there,
     * the part (image_part_make) and no bytes. IMAGE_AT_FAULT: ERR_INVALID_IMAGE or
     * ERR_BODY_TOO_LARGE, the text says why alone. -1: any other error. */
    int (*get)(void *ctx, struct arena *a, struct str url, struct request_image *ret,
               const struct json **ret_part, struct err *e);
    /* Stores the picture for the session, if there is one already, and frees its bytes:
     * image->bytes is absent then. *ret_part: the session's own part from that URL, if it got one
     * meanwhile, which is used instead. */
    int (*keep)(void *ctx, struct arena *a, struct request_image *image,
                const struct json **ret_part, struct err *e);
    void *ctx;
};

/* Fetches the pictures that image_parts_normalise left in req (n_awaited), within the rules. May
 * run in a thread. Errors like those of image_parts_normalise. */
int image_parts_fetch(struct arena *a, const struct image_rules *rules,
                      const struct image_source *source, struct chat_request *req, struct err *e);

/* Makes the normalised parts. past NULL: the model accepts text only. ERR_INVALID if this model, or
 * this gateway, does not accept it; ERR_INVALID_IMAGE for a picture that engines could not decode;
 * ERR_BODY_TOO_LARGE. */
int image_parts_normalise(struct arena *a, const struct dialect_past *past,
                          struct chat_request *req, struct err *e);

#endif
