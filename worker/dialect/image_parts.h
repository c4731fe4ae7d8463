/*
 * Pictures in requests, whatever a dialect calls them. Reading content makes a part of each that
 * only holds what the client sent and where it stood; image_parts_settle, at the end of a parse,
 * makes the normalised parts (worker/text/request/images.h) of them, or refuses.
 */
#ifndef RG_DIALECT_IMAGE_PARTS_H
#define RG_DIALECT_IMAGE_PARTS_H

#include "worker/dialect/request_fields.h"
#include "worker/text/request/images.h"

struct image_rules;

/* Whether a part of that type is a picture: image_url, input_image, image. */
bool image_parts_type(struct str type);

/* The part that waits for image_parts_settle. `at` is its place, for errors. */
struct json image_parts_wait(struct arena *a, const struct json *given, const char *at);

/* Who brings pictures by their URL. */
enum { IMAGE_AT_FAULT = -2 };

struct image_source {
    /* The bytes, in the arena (arena_alloc_alone), or, of one that the session has had from there,
     * the part (image_part_make) and no bytes. IMAGE_AT_FAULT: ERR_INVALID_IMAGE or
     * ERR_BODY_TOO_LARGE, the text says why alone. -1: any other error. */
    int (*get)(void *ctx, struct arena *a, struct str url, struct request_image *ret,
               const struct json **ret_part, struct err *e);
    /* Stores it for the session, where there is one yet, and gives its bytes back: image->bytes is
     * absent then. *ret_part: another that the session was given from there meanwhile, to be shown
     * instead. */
    int (*keep)(void *ctx, struct arena *a, struct request_image *image,
                const struct json **ret_part, struct err *e);
    void *ctx;
};

/* Those that image_parts_settle left in req (n_awaited), as the rules let it. Perhaps in a thread.
 * Errors as of image_parts_settle. */
int image_parts_fetch(struct arena *a, const struct image_rules *rules,
                      const struct image_source *source, struct chat_request *req, struct err *e);

/* past NULL: the model takes text only. ERR_INVALID for what this model, or nobody here, takes;
 * ERR_INVALID_IMAGE for a picture that engines could not decode; ERR_BODY_TOO_LARGE. */
int image_parts_settle(struct arena *a, const struct dialect_past *past, struct chat_request *req,
                       struct err *e);

#endif
