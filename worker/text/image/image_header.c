/*
 * One reader for each format, all in the same way: walk from block to block by the lengths in the
 * file, read size and orientation, and stop at the format's own end. A block that is longer than
 * the rest is "cut off or damaged". Walking to the end detects files that were cut in transit,
 * before an engine gets them.
 *
 * Every step checks that its bytes exist (has, skip). Numbers are read byte by byte, so alignment
 * and byte order do not matter. The bytes decide the format, never the name that a sender gave it.
 */
#include "worker/text/image/image_header.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/base/limits.h"

static const char *const names[IMAGE_FORMATS] = {"png", "jpeg", "webp", "gif", "bmp"};

const char *image_format_name(enum image_format f)
{
    return names[f];
}

static const char truncated[] = "the file is cut off or damaged";

/* The bytes, and the position of the next one. No read goes beyond the end. */
struct image_in {
    const uint8_t *p;
    size_t n, at;
};

static bool has_bytes(const struct image_in *in, size_t n)
{
    return n <= in->n - in->at;
}

static bool skip_image_bytes(struct image_in *in, uint64_t n)
{
    if (n > in->n - in->at)
        return false;
    in->at += (size_t)n;
    return true;
}

static uint32_t read_big_number(const uint8_t *p, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return v;
}

static uint32_t read_little_number(const uint8_t *p, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* --- EXIF --- */

enum { EXIF_ORIENTATION = 0x0112, EXIF_ENTRY = 12 };

/* Returns the orientation in a TIFF block, or 0. */
static uint8_t tiff_orientation(const uint8_t *p, size_t n)
{
    uint32_t (*number)(const uint8_t *p, unsigned bytes) = read_little_number;
    uint32_t at, entries;

    if (n < 10)
        return 0;
    if (p[0] == 'M' && p[1] == 'M')
        number = read_big_number;
    else if (p[0] != 'I' || p[1] != 'I')
        return 0;
    at = number(p + 4, 4);
    if (at > n - 2)
        return 0;
    entries = number(p + at, 2);
    at += 2;
    for (; entries > 0 && at <= n && n - at >= EXIF_ENTRY; entries--, at += EXIF_ENTRY) {
        uint32_t value = number(p + at + 8, 2);

        if (number(p + at, 2) == EXIF_ORIENTATION && number(p + at + 2, 2) == 3 && value >= 1 &&
            value <= 8)
            return (uint8_t)value;
    }
    return 0;
}

static void read_exif(struct image_header *h, const uint8_t *p, size_t n)
{
    uint8_t said;

    if (n >= 6 && memcmp(p, "Exif\0\0", 6) == 0) {
        p += 6;
        n -= 6;
    }
    said = tiff_orientation(p, n);
    if (said)
        h->orientation = said;
}

/* --- PNG --- */

static const char *read_png(struct image_in *in, struct image_header *h)
{
    bool first = true;

    in->at = 8;
    while (has_bytes(in, 12)) {
        const uint8_t *chunk = in->p + in->at;
        uint32_t len = read_big_number(chunk, 4);

        if (len > INT32_MAX || !skip_image_bytes(in, 12 + (uint64_t)len))
            return truncated;
        if (first && (len != 13 || memcmp(chunk + 4, "IHDR", 4) != 0))
            return "the PNG does not begin with its header";
        if (first) {
            h->width = read_big_number(chunk + 8, 4);
            h->height = read_big_number(chunk + 12, 4);
        }
        first = false;
        if (memcmp(chunk + 4, "eXIf", 4) == 0)
            read_exif(h, chunk + 8, len);
        if (memcmp(chunk + 4, "IEND", 4) == 0)
            return NULL;
    }
    return truncated;
}

/* --- JPEG --- */

enum { SOI = 0xd8, EOI = 0xd9, SOS = 0xda, APP1 = 0xe1 };

static bool is_sof(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Matches markers without a length: restarts, and TEM. */
static bool stands_alone(uint8_t marker)
{
    return (marker >= 0xd0 && marker <= 0xd7) || marker == 0x01;
}

/* Returns the next marker, skipping the bytes before it (coded data, 0xff); -1: there is none. */
static int next_marker(struct image_in *in)
{
    while (has_bytes(in, 2)) {
        const uint8_t *ff = memchr(in->p + in->at, 0xff, in->n - in->at);

        if (!ff)
            return -1;
        in->at = (size_t)(ff - in->p) + 1;
        while (has_bytes(in, 1) && in->p[in->at] == 0xff)
            in->at++;
        if (!has_bytes(in, 1))
            return -1;
        if (in->p[in->at++] != 0)
            return in->p[in->at - 1];
    }
    return -1;
}

/* Reads one segment with a length, for its size and orientation. */
static bool jpeg_segment(struct image_in *in, uint8_t marker, struct image_header *h)
{
    const uint8_t *p = in->p + in->at;
    uint32_t len;

    if (!has_bytes(in, 2))
        return false;
    len = read_big_number(p, 2);
    if (len < 2 || !skip_image_bytes(in, len))
        return false;
    if (is_sof(marker) && len >= 8 && h->width == 0) {
        h->height = read_big_number(p + 3, 2);
        h->width = read_big_number(p + 5, 2);
    }
    if (marker == APP1 && len > 8 && memcmp(p + 2, "Exif\0\0", 6) == 0)
        read_exif(h, p + 2, len - 2);
    return true;
}

static const char *read_jpeg(struct image_in *in, struct image_header *h)
{
    bool scanned = false;
    int marker;

    in->at = 2;
    while ((marker = next_marker(in)) >= 0) {
        if (marker == EOI)
            return scanned && h->width ? NULL : "the JPEG holds no picture";
        if (stands_alone((uint8_t)marker))
            continue;
        if (!jpeg_segment(in, (uint8_t)marker, h))
            return truncated;
        if (marker == SOS && h->height == 0)
            return "the JPEG tells its height behind the picture (DNL), which is not read";
        scanned = scanned || marker == SOS;
    }
    return truncated;
}

/* --- WebP --- */

static bool webp_chunk(const uint8_t *name, const uint8_t *p, uint32_t len, struct image_header *h)
{
    if (memcmp(name, "VP8X", 4) == 0 && len >= 10) {
        h->width = read_little_number(p + 4, 3) + 1;
        h->height = read_little_number(p + 7, 3) + 1;
    } else if (memcmp(name, "VP8 ", 4) == 0 && len >= 10) {
        if (memcmp(p + 3, "\x9d\x01\x2a", 3) != 0)
            return false;
        if (h->width == 0) {
            h->width = read_little_number(p + 6, 2) & 0x3fff;
            h->height = read_little_number(p + 8, 2) & 0x3fff;
        }
    } else if (memcmp(name, "VP8L", 4) == 0 && len >= 5) {
        uint32_t bits = read_little_number(p + 1, 4);

        if (p[0] != 0x2f)
            return false;
        if (h->width == 0) {
            h->width = (bits & 0x3fff) + 1;
            h->height = (bits >> 14 & 0x3fff) + 1;
        }
    } else if (memcmp(name, "EXIF", 4) == 0) {
        read_exif(h, p, len);
    }
    return true;
}

static const char *read_webp(struct image_in *in, struct image_header *h)
{
    uint32_t size = read_little_number(in->p + 4, 4);

    if (size < 4 || size > in->n - 8)
        return truncated;
    in->n = 8 + (size_t)size;
    in->at = 12;
    while (has_bytes(in, 8)) {
        const uint8_t *chunk = in->p + in->at;
        uint32_t len = read_little_number(chunk + 4, 4);

        if (!skip_image_bytes(in, 8 + (uint64_t)len))
            return truncated;
        if (!webp_chunk(chunk, chunk + 8, len, h))
            return "the WebP's picture has no header";
        (void)skip_image_bytes(in, len & 1); /* the last block may lack its padding */
    }
    return h->width ? NULL : "the WebP holds no picture";
}

/* --- GIF --- */

/* Walks a list of blocks, each with its length before it. */
static bool gif_blocks(struct image_in *in)
{
    while (has_bytes(in, 1)) {
        uint8_t n = in->p[in->at++];

        if (n == 0)
            return true;
        if (!skip_image_bytes(in, n))
            return false;
    }
    return false;
}

static uint64_t gif_table(uint8_t flags)
{
    return flags & 0x80 ? (uint64_t)3 << ((flags & 7) + 1) : 0;
}

static bool gif_frame(struct image_in *in, struct image_header *h, bool first)
{
    const uint8_t *p = in->p + in->at;

    if (!has_bytes(in, 9))
        return false;
    if (first) { /* a first frame that is larger than the screen enlarges it */
        h->width = MAX_OF(h->width, read_little_number(p, 2) + read_little_number(p + 4, 2));
        h->height = MAX_OF(h->height, read_little_number(p + 2, 2) + read_little_number(p + 6, 2));
    }
    return skip_image_bytes(in, 9 + gif_table(p[8]) + 1) && gif_blocks(in);
}

static const char *read_gif(struct image_in *in, struct image_header *h)
{
    bool first = true;

    if (!has_bytes(in, 13))
        return truncated;
    h->width = read_little_number(in->p + 6, 2);
    h->height = read_little_number(in->p + 8, 2);
    if (!skip_image_bytes(in, 13 + gif_table(in->p[10])))
        return truncated;
    while (has_bytes(in, 1)) {
        uint8_t kind = in->p[in->at++];

        if (kind == 0x3b)
            return first ? "the GIF holds no picture" : NULL;
        if (kind == 0x2c) {
            if (!gif_frame(in, h, first))
                return truncated;
            first = false;
        } else if (kind != 0x21 || !skip_image_bytes(in, 1) || !gif_blocks(in)) {
            return truncated;
        }
    }
    return truncated;
}

/* --- BMP --- */

enum { BMP_HEAD = 14, BMP_RLE8 = 1, BMP_RLE4 = 2 };

/* Returns the size of the pixels in bytes; 0: unknown. */
static uint64_t bmp_pixels(const uint8_t *p, uint32_t head, const struct image_header *h)
{
    uint32_t bits = read_little_number(p + (head == 12 ? 10 : 14), 2);
    uint32_t kind = head == 12 ? 0 : read_little_number(p + 16, 4);

    if (kind == BMP_RLE8 || kind == BMP_RLE4)
        return read_little_number(p + 20, 4);
    return ((uint64_t)h->width * bits + 31) / 32 * 4 * h->height;
}

static const char *read_bmp(struct image_in *in, struct image_header *h)
{
    const uint8_t *p = in->p + BMP_HEAD;
    uint32_t from, head;
    uint64_t pixels;

    if (!has_bytes(in, BMP_HEAD + 12))
        return truncated;
    from = read_little_number(in->p + 10, 4);
    head = read_little_number(p, 4);
    if (head != 12 && (head < 40 || !has_bytes(in, BMP_HEAD + 40)))
        return truncated;
    h->width = read_little_number(p + 4, head == 12 ? 2 : 4);
    h->height = head == 12 ? read_little_number(p + 6, 2) : read_little_number(p + 8, 4);
    if (head != 12 && h->height > INT32_MAX) /* the height is negative: rows are stored top down */
        h->height = 0 - h->height;
    if (h->width > IMAGE_SIDE_MAX || h->height > IMAGE_SIDE_MAX)
        return NULL; /* an orientation of 0 would be refused */
    pixels = bmp_pixels(p, head, h);
    if (from < BMP_HEAD + head || from > in->n || pixels == 0 || pixels > in->n - from)
        return truncated;
    return NULL;
}

/* --- choosing the format --- */

static bool begins_with_bytes(const struct image_in *in, const char *text, size_t n)
{
    return in->n >= n && memcmp(in->p, text, n) == 0;
}

bool image_format_of(struct str start, enum image_format *ret)
{
    struct image_in in = {(const uint8_t *)start.p, start.len, 0};

    if (begins_with_bytes(&in, "\x89PNG\r\n\x1a\n", 8))
        *ret = IMAGE_PNG;
    else if (begins_with_bytes(&in, "\xff\xd8\xff", 3))
        *ret = IMAGE_JPEG;
    else if (begins_with_bytes(&in, "RIFF", 4) && in.n >= IMAGE_START &&
             memcmp(in.p + 8, "WEBP", 4) == 0)
        *ret = IMAGE_WEBP;
    else if (begins_with_bytes(&in, "GIF87a", 6) || begins_with_bytes(&in, "GIF89a", 6))
        *ret = IMAGE_GIF;
    else if (begins_with_bytes(&in, "BM", 2))
        *ret = IMAGE_BMP;
    else
        return false;
    return true;
}

static const char *read_any(struct image_in *in, struct image_header *h)
{
    static const char *(*const readers[IMAGE_FORMATS])(struct image_in * in,
                                                       struct image_header * h) = {
        [IMAGE_PNG] = read_png, [IMAGE_JPEG] = read_jpeg, [IMAGE_WEBP] = read_webp,
        [IMAGE_GIF] = read_gif, [IMAGE_BMP] = read_bmp,
    };

    if (!image_format_of(str_of((const char *)in->p, in->n), &h->format))
        return "it is no PNG, JPEG, WebP, GIF or BMP";
    return readers[h->format](in, h);
}

const char *image_header_read(struct str bytes, struct image_header *ret)
{
    struct image_in in = {(const uint8_t *)bytes.p, bytes.len, 0};
    const char *why;

    *ret = (struct image_header){.orientation = 1};
    why = read_any(&in, ret);
    if (why)
        return why;
    if (ret->width == 0 || ret->height == 0)
        return "its width or height is 0";
    if (ret->width > IMAGE_SIDE_MAX || ret->height > IMAGE_SIDE_MAX)
        return "a side is longer than 32768 pixels";
    if ((uint64_t)ret->width * ret->height > IMAGE_PIXELS_MAX)
        return "it has more than 64 Mpx";
    return NULL;
}
