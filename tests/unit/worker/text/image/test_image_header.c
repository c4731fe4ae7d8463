#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/os/file.h"
#include "worker/text/image/image_header.h"

struct picture {
    char name[64], format[16];
    unsigned width, height, orientation;
    struct str bytes;
};

static unsigned number(struct str *rest)
{
    uint64_t v = 0;

    cr_assert_eq(str_to_u64(str_cut(rest, ' '), UINT32_MAX, &v), 0);
    return (unsigned)v;
}

static void picture_of(struct str line, struct picture *p)
{
    struct str name = str_cut(&line, ' '), format = str_cut(&line, ' ');
    char *bytes;
    size_t n;

    *p = (struct picture){.width = number(&line)};
    p->height = number(&line);
    p->orientation = number(&line);
    memcpy(p->name, name.p, name.len);
    memcpy(p->format, format.p, format.len);
    bytes = mem_calloc(base64_room(line.len) + 1, 1);
    cr_assert_eq(base64_decode(line, bytes, &n), 0);
    p->bytes = str_of(bytes, n);
}

static int each_picture(void (*fn)(const struct picture *p))
{
    struct buf text = {0};
    struct err e = {0};
    int n = 0;

    cr_assert_eq(file_read(RG_TEST_DATA "/vision/pictures.txt", 1 << 24, &text, &e), 0, "%s",
                 e.text);
    for (size_t at = str_find(buf_str(&text), STR("\n"), 0) + 1; at < text.len;) {
        size_t end = str_find(buf_str(&text), STR("\n"), at);
        struct picture p;

        picture_of(str_sub(buf_str(&text), at, end - at), &p);
        fn(&p);
        free((void *)(uintptr_t)p.bytes.p);
        at = end + 1;
        n++;
    }
    buf_done(&text);
    return n;
}

static void is_read(const struct picture *p)
{
    struct image_header h;
    const char *why = image_header_read(p->bytes, &h);

    cr_assert_null(why, "%s: %s", p->name, why);
    cr_expect_str_eq(image_format_name(h.format), p->format);
    cr_expect_eq(h.width, p->width, "%s: %u", p->name, h.width);
    cr_expect_eq(h.height, p->height, "%s: %u", p->name, h.height);
    cr_expect_eq(h.orientation, p->orientation, "%s: %u", p->name, h.orientation);
}

TEST(image_header, tells_what_a_decoder_tells)
{
    cr_assert_eq(each_picture(is_read), 101);
}

/* Checks that every prefix is refused. Copies have the exact size, so that sanitizers detect reads
 * after the end. */
static void is_refused_cut(const struct picture *p)
{
    struct image_header h;

    for (size_t n = 0; n < p->bytes.len; n++) {
        char *cut = mem_calloc(n + 1, 1);
        char *tight = realloc(cut, n ? n : 1);
        const char *why;

        memcpy(tight, p->bytes.p, n);
        why = image_header_read(str_of(tight, n), &h);
        /* the last byte of a WebP may be padding, and the last ones of a BMP its rows */
        cr_expect(why || n + 2 > p->bytes.len, "%s, %zu of %zu bytes", p->name, n, p->bytes.len);
        free(tight);
    }
}

TEST(image_header, refuses_what_is_cut_anywhere)
{
    cr_assert_eq(each_picture(is_refused_cut), 101);
}

static const char *read_bytes(const char *bytes, size_t n, struct image_header *h)
{
    return image_header_read(str_of(bytes, n), h);
}

#define READ(literal, h) read_bytes(literal, sizeof(literal) - 1, h)

TEST(image_header, hostile_files)
{
    struct image_header h;

    cr_expect(READ("", &h));
    cr_expect(READ("<svg xmlns='http://www.w3.org/2000/svg'/>", &h));
    /* lengths that exceed the file, or are too small */
    cr_expect(READ("\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR\0\0\0\1\0\0\0\1", &h));
    cr_expect(READ("\x89PNG\r\n\x1a\n\0\0\0\0IEND\xae\x42\x60\x82", &h));
    cr_expect(READ("\xff\xd8\xff\xe0\0\0\xff\xd9", &h));
    cr_expect(READ("\xff\xd8\xff\xd9", &h));
    cr_expect(READ("RIFF\xff\xff\xff\xffWEBPVP8X\x0a\0\0\0", &h));
    cr_expect(READ("GIF89a\1\0\1\0\0\0\0;", &h));
    cr_expect(READ(
        "BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f\1\0\x18\0", &h));
    /* a height after the picture */
    cr_expect_str_eq(
        READ("\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\x10\1\1\x11\0\xff\xda\0\x08\1\1\0\0\x3f\0"
             "\x12\xff\xd9",
             &h),
        "the JPEG tells its height behind the picture (DNL), which is not read");
}

/* The thumbnail in a long APP1 segment has its own frame and end. */
TEST(image_header, takes_no_thumbnail_for_the_picture)
{
    static const char thumb[] = "\xff\xd8\xff\xc0\0\x0b\x08\0\x02\0\x02\1\1\x11\0\xff\xd9";
    static const char rest[] =
        "\xff\xc2\0\x0b\x08\0\x40\0\x50\1\1\x11\0\xff\xda\0\x08\1\1\0\0\x3f\0"
        "\x12\xff\0\xff\xd0\x34\xff\xc4\0\x03\0\xff\xda\0\x02\x77\xff\xd9";
    struct buf file = {0};
    struct image_header h;

    buf_add(&file, "\xff\xd8", 2);
    for (int i = 0; i < 4; i++) { /* 200 KB of them */
        buf_add(&file, "\xff\xe1\xfd\xe8", 4);
        buf_add(&file, thumb, sizeof(thumb) - 1);
        for (size_t k = sizeof(thumb) - 1; k < 0xfde8 - 2; k++)
            buf_add_c(&file, 'x');
    }
    buf_add(&file, rest, sizeof(rest) - 1);
    cr_assert_null(image_header_read(buf_str(&file), &h));
    cr_expect(h.width == 80 && h.height == 64);
    cr_expect(image_header_read(str_sub(buf_str(&file), 0, file.len - 2), &h) != NULL);
    buf_done(&file);
}
