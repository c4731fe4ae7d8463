/*
 * Images in requests of all dialects. While content is read, each image becomes a pending content
 * part with the client's value and its position. At the end of a parse, image_parts_normalise turns
 * them into normalised parts (worker/text/request/images.h), or fails.
 */
#ifndef RG_DIALECT_IMAGE_PARTS_H
#define RG_DIALECT_IMAGE_PARTS_H

#include "worker/dialect/request_fields.h"
#include "worker/text/request/images.h"

struct image_rules;

/* Reports whether a content part of that type is an image: image_url, input_image or image. */
bool image_parts_type(struct str type);

/* Makes a pending part for image_parts_normalise. at: path of the part, for errors. */
struct json image_parts_wait(struct arena *a, const struct json *given, const char *at);

/* Result of image_source.get: the image itself is at fault. */
enum { IMAGE_AT_FAULT = -2 };

struct image_source {
    /* Gets an image by its URL. Sets the bytes, in the arena (arena_alloc_alone). If the session
     * already has an image from that URL, sets *ret_part (image_part_make) instead. Returns
     * IMAGE_AT_FAULT with ERR_INVALID_IMAGE or ERR_BODY_TOO_LARGE and a text that gives only the
     * reason. Returns -1 on any other error. */
    int (*get)(void *ctx, struct arena *a, struct str url, struct request_image *ret,
               const struct json **ret_part, struct err *e);
    /* Stores the image for the session, if the session exists, and frees its bytes; then
     * image->bytes is absent. Sets *ret_part if the session got an image from that URL in the
     * meantime; use that part instead. */
    int (*keep)(void *ctx, struct arena *a, struct request_image *image,
                const struct json **ret_part, struct err *e);
    void *ctx;
};

/* Fetches the images that image_parts_normalise left pending in req (n_awaited). May run on a
 * helper thread. Fails like image_parts_normalise. */
int image_parts_fetch(struct arena *a, const struct image_rules *rules,
                      const struct image_source *source, struct chat_request *req, struct err *e);

/* Makes the normalised parts. past NULL: the model accepts only text. Fails with ERR_INVALID if the
 * model or the gateway does not accept an image, with ERR_INVALID_IMAGE if engines could not decode
 * it, or with ERR_BODY_TOO_LARGE. */
int image_parts_normalise(struct arena *a, const struct dialect_past *past,
                          struct chat_request *req, struct err *e);

#endif
