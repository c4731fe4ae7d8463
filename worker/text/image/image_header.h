/*
 * Reads the first bytes of a picture: format, size, orientation. Checks that the file is complete.
 * PNG, JPEG, WebP, GIF and BMP. Nothing is decoded: decoders of hostile bytes do not belong in a
 * process that holds sessions. Pure.
 */
#ifndef RG_IMAGE_IMAGE_HEADER_H
#define RG_IMAGE_IMAGE_HEADER_H

#include <stdint.h>

#include "common/base/str.h"

enum image_format { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF, IMAGE_BMP, IMAGE_FORMATS };

struct image_header {
    enum image_format format;
    uint32_t width, height; /* size in the file, before the orientation is applied */
    uint8_t orientation;    /* EXIF orientation, 1 to 8; 1 if the file has none */
};

/* Returns "png", "jpeg", "webp", "gif" or "bmp", which is also the subtype of the media type
 * image/... */
const char *image_format_name(enum image_format f);

/* Reports whether the first bytes belong to a picture. IMAGE_START bytes are enough to decide. */
enum { IMAGE_START = 12 };

bool image_format_of(struct str start, enum image_format *ret);

/* Reads the header and walks to the end of the file. The bytes decide the format, whatever the
 * sender called it. Returns NULL, or why no engine could decode the picture. */
const char *image_header_read(struct str bytes, struct image_header *ret);

#endif
