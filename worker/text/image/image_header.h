/*
 * Reads the first bytes of a picture: format, size, orientation. Checks that the file is complete.
 * PNG, JPEG, WebP, GIF and BMP. Nothing is decoded: a decoder of hostile bytes has no place in a
 * process that holds sessions. Pure.
 */
#ifndef RG_IMAGE_IMAGE_HEADER_H
#define RG_IMAGE_IMAGE_HEADER_H

#include <stdint.h>

#include "common/base/str.h"

enum image_format { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF, IMAGE_BMP, IMAGE_FORMATS };

struct image_header {
    enum image_format format;
    uint32_t width, height; /* size as coded: the orientation is not applied */
    uint8_t orientation;    /* EXIF orientation, 1 to 8; 1 if the file has none */
};

/* "png", "jpeg", "webp", "gif", "bmp"; also the subtype of the media type image/... */
const char *image_format_name(enum image_format f);

/* Number of bytes that determine the format, and whether they do. */
enum { IMAGE_START = 12 };

bool image_format_of(struct str start, enum image_format *ret);

/* Reads the header, by its bytes whatever the sender called them, and walks to the end. NULL, or
 * why it is no picture that an engine could decode. */
const char *image_header_read(struct str bytes, struct image_header *ret);

#endif
