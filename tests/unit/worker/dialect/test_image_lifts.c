/* Pictures are removed from a body before it is read, and inserted again. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/codec/base64.h"
#include "common/codec/sha256.h"
#include "worker/dialect/image_lifts.h"

enum { BYTES = 30000 };

struct gone {
    size_t n, bytes;
};

/* Inverts the bytes of a part that was not reached yet. */
static void turn(struct str part)
{
    char *p = (char *)(uintptr_t)part.p;

    for (size_t i = 0; i < part.len; i++)
        p[i] = (char)~p[i];
}

static void on_reach(void *ctx, struct str part)
{
    (void)ctx;
    turn(part);
}

static void on_gone(void *ctx, struct str part)
{
    struct gone *g = ctx;

    g->n++;
    g->bytes += part.len;
    memset((void *)(uintptr_t)part.p, 0, part.len); /* this part must not be read again */
}

/* Appends base64 of n bytes that begin with `first`. */
static void put_picture(struct buf *b, char first, size_t n)
{
    char *bytes = calloc(n, 1);

    bytes[0] = first;
    base64_encode(bytes, n, buf_reserve(b, base64_encoded_len(n)));
    b->len += base64_encoded_len(n);
    free(bytes);
}

/* Appends text with a picture instead of each '@'; the picture's number is its first byte. */
static void make_body(struct buf *b, const char *text, size_t n)
{
    char next = 'a';

    for (; *text; text++) {
        if (*text == '@')
            put_picture(b, next++, n);
        else
            buf_add_c(b, *text);
    }
}

/* Lifts the pictures of `text` and inserts them again, which must give the same body. Returns their
 * number. */
static size_t lifted(const char *text, size_t n)
{
    struct gone gone = {0};
    struct image_lifts l = {.least = IMAGE_LIFT_LEAST,
                            .max_bytes = 1 << 20,
                            .reach = on_reach,
                            .gone = on_gone,
                            .ctx = &gone};
    struct arena a = {0}, b = {0};
    struct buf body = {0}, copy = {0};
    struct str rest;

    make_body(&body, text, n);
    buf_add_str(&copy, buf_str(&body));
    turn(buf_str(&copy));
    rest = image_lifts_lift(&l, &a, buf_str(&copy));
    cr_expect_eq(gone.n, l.n);
    cr_expect(l.n == 0 || image_lifts_any(buf_str(&body), 0), "%s", text);
    cr_expect_eq(rest.len + gone.bytes, body.len + l.n * (1 + SHA256_HEX_LEN));
    cr_expect(str_eq(image_lifts_undo(&l, &b, rest), buf_str(&body)), "%s", text);
    arena_done(&a);
    arena_done(&b);
    buf_done(&body);
    buf_done(&copy);
    return l.n;
}

TEST(image_lifts, what_is_lifted)
{
    const struct {
        const char *text;
        size_t n;
    } cases[] = {
        {"{\"url\":\"data:image/png;base64,@\"}", 1},
        {"{\"url\":\"DATA:image/png;name=x;BASE64,@\",\"more\":[\"data:;base64,@\"]}", 2},
        {"{\"source\":{\"data\" : \n \"@\"}, \"t\":\"a\\\"b\\\\\",\"data\":\"@\"}", 2},
        /* not lifted: other members, escapes, no base64, a key, no end, data within a text */
        {"{\"date\":\"@\"}", 0},
        {"{\"url\":\"data:image/png;base64,\\n@\"}", 0},
        {"{\"url\":\"data:image/png;base64, @\"}", 0},
        {"{\"url\":\"data:image/png,@\"}", 0},
        {"{\"data:;base64,@x\":1}", 0},
        {"{\"url\":\"data:image/png;base64,@", 1}, /* its end is missing: no JSON */
        {"\"data\":@", 0},
        {"", 0},
        {"\"", 0},
        {"\"\\", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (size_t n = BYTES; n < BYTES + 3; n++)
            cr_expect_eq(lifted(cases[i].text, n), cases[i].n, "case %zu of %zu bytes", i, n);
    cr_expect_eq(lifted("{\"url\":\"data:image/png;base64,@\"}", 300), 0, "short ones stay");
    cr_expect_eq(lifted("{\"url\":\"data:image/png;base64,@\"}", 2 << 20), 0,
                 "so do too long ones");
}

TEST(image_lifts, may_be_looked_for_behind_a_place)
{
    struct buf body = {0};
    size_t last;

    make_body(&body, "[{\"data\":\"@\"},{\"url\":\"data:;base64,@\"},{\"date\":\"@\"}]", BYTES);
    last = str_find(buf_str(&body), STR(",{\"date\""), 0);
    cr_expect(image_lifts_any(buf_str(&body), 0));
    cr_expect(image_lifts_any(buf_str(&body), str_find(buf_str(&body), STR(",{\"url"), 0)));
    cr_expect_not(image_lifts_any(buf_str(&body), last));
    cr_expect_not(image_lifts_any(buf_str(&body), body.len));
    buf_done(&body);
}

TEST(image_lifts, are_known_by_where_they_stand)
{
    struct image_lifts l = {.least = IMAGE_LIFT_LEAST, .max_bytes = 1 << 20};
    struct arena a = {0};
    struct buf body = {0};
    struct str rest;
    char hash[SHA256_HEX_LEN + 1];

    make_body(&body, "[{\"data\":\"@\"},{\"data\":\"@\"}]", BYTES);
    rest = image_lifts_lift(&l, &a, buf_str(&body));
    cr_assert_eq(l.n, 2);
    for (size_t i = 0; i < l.n; i++) {
        struct image_lift *x = &l.all[i];

        cr_expect_eq(image_lifts_find(&l, x->stand_in), x);
        cr_expect_eq(x->image.bytes.len, BYTES);
        cr_expect_eq(x->image.bytes.p[0], (char)('a' + i));
        sha256_hex(x->image.bytes, hash);
        cr_expect(str_eq_c(x->image.media, hash));
        cr_expect(str_eq(str_sub(x->stand_in, 1, SIZE_MAX), x->image.media));
        cr_expect_eq(x->stand_in.p[0], '#');
        /* an equal text at a different address, or a part of it, is not found */
        cr_expect_null(image_lifts_find(&l, arena_str(&a, x->stand_in)));
        cr_expect_null(image_lifts_find(&l, str_sub(x->stand_in, 0, 9)));
        cr_expect_not(image_lifts_used(&l));
        x->used = true;
    }
    cr_expect(image_lifts_used(&l));
    cr_expect_null(image_lifts_find(&l, rest));
    cr_expect_null(image_lifts_find(NULL, rest));
    arena_done(&a);
    buf_done(&body);
}
