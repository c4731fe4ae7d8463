#include "common/base/mem.h"
#include "worker/sink/pieces.h"

#include "common/base/buf.h"
#include "testing.h"

static int find(struct str s, struct pieces *ret)
{
    struct err e = {0};
    int rc = pieces_find(s, ret, &e);

    if (rc)
        cr_assert_eq(e.kind, ERR_IO);
    return rc;
}

/* Writes {"session_id":"s","trajectories":[{"a":[1,300]},{}],"summary":{"x":nil}}, with every kind
 * of head inside the first trajectory. */
static void write_envelope(struct buf *b)
{
    static const char inner[] = "\xdf\x00\x00\x00\x0d"
                                "\xa1"
                                "a"
                                "\x92\x01\xcd\x01\x2c"
                                "\xd9\x01"
                                "b"
                                "\xc4\x02"
                                "zz"
                                "\xda\x00\x01"
                                "c"
                                "\xc7\x04\x01"
                                "wxyz"
                                "\xa1"
                                "d"
                                "\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"
                                "\xa1"
                                "e"
                                "\xc0\xa1"
                                "f"
                                "\xc3\xa1"
                                "g"
                                "\xd6\x02"
                                "4444"
                                "\xa1"
                                "h"
                                "\xdc\x00\x02\xff\x7f\xa1"
                                "i"
                                "\xde\x00\x01\xa1"
                                "k"
                                "\xa1"
                                "v"
                                "\xa1"
                                "j"
                                "\xdd\x00\x00\x00\x00\xa1"
                                "l"
                                "\xd3\x00\x00\x00\x00\x00\x00\x00\x01\xa1"
                                "m"
                                "\xc8\x00\x01\x03"
                                "q"
                                "\xa1"
                                "n"
                                "\xdb\x00\x00\x00\x02"
                                "no";

    buf_puts(b, "\x83\xaasession_id\xa1s\xactrajectories\x92");
    buf_add(b, inner, sizeof(inner) - 1);
    buf_puts(b, "\x80\xa7summary\x81\xa1x\xc0");
}

TEST(pieces, finds_each_trajectory)
{
    struct buf b = {0};
    struct pieces p = {0};

    write_envelope(&b);
    cr_assert_eq(find(buf_str(&b), &p), 0);
    cr_assert_eq(p.n, 2);
    cr_assert_eq((unsigned char)b.p[p.at[0].start], 0xdf);
    cr_assert_eq(p.at[1].start, p.at[0].start + p.at[0].len);
    cr_assert_eq(p.at[1].len, 1);
    vec_done(&p);
    buf_done(&b);
}

TEST(pieces, refuses_every_cut)
{
    struct buf b = {0};

    write_envelope(&b);
    for (size_t n = 0; n < b.len; n++) {
        struct pieces p = {0};
        char *copy = mem_strndup(b.p, n); /* sanitizers detect reads after its end */

        cr_assert_eq(find(str_of(copy, n), &p), -1, "cut at %zu", n);
        vec_done(&p);
        free(copy);
    }
    buf_done(&b);
}

TEST(pieces, refuses_what_is_no_envelope)
{
    static const char *const bad[] = {"\x93\x01\x02\x03",
                                      "\x81\x01\x02",
                                      "\x80",
                                      "\x81\xactrajectories\x01",
                                      "\x81\xactrajectories\xdd\xff\xff\xff\xff",
                                      "\x81\xa1x\xdf\xff\xff\xff\xff",
                                      "{\"trajectories\":[]}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct pieces p = {0};

        cr_assert_eq(find(str_cstr(bad[i]), &p), -1, "%zu", i);
        vec_done(&p);
    }
}

static const char *note(struct buf *b, const char *key, struct buf *ret)
{
    buf_clear(ret);
    if (!pieces_note(buf_str(b), key, ret))
        return NULL;
    buf_add_c(ret, '\0');
    return ret->p;
}

TEST(pieces, notes_stand_before_the_trajectories)
{
    struct buf b = {0}, ret = {0};

    buf_puts(&b, "\x87\xaasession_id\xa1s\xa1"
                 "a\x07\xa1"
                 "b\xcd\x01\x2c\xa1"
                 "c\xcf");
    buf_add(&b, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    buf_puts(&b, "\xa1"
                 "d\xd9\x02hi\xa1"
                 "e\x91\x01\xactrajectories\x90");
    cr_expect_str_eq(note(&b, "session_id", &ret), "s");
    cr_expect_str_eq(note(&b, "a", &ret), "7");
    cr_expect_str_eq(note(&b, "b", &ret), "300");
    cr_expect_str_eq(note(&b, "c", &ret), "18446744073709551615");
    cr_expect_str_eq(note(&b, "d", &ret), "hi");
    cr_expect_null(note(&b, "e", &ret)); /* not a scalar */
    cr_expect_null(note(&b, "trajectories", &ret));
    cr_expect_null(note(&b, "x", &ret));
    buf_clear(&b);
    write_envelope(&b);
    cr_expect_null(note(&b, "summary", &ret)); /* after them */
    buf_done(&b);
    buf_done(&ret);
}
