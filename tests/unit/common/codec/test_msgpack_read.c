#include "testing.h"

#include "common/codec/msgpack_read.h"

/* Compares the value of the bytes with the JSON text `want`, or the error with `want`. */
#define READ(bytes, want) check_read(str_of((bytes), sizeof(bytes) - 1), (want), false)
#define REFUSED(bytes, want) check_read(str_of((bytes), sizeof(bytes) - 1), (want), true)

static void check_read(struct str bytes, const char *want, bool refused)
{
    struct arena a = {0};
    struct buf out = {0};
    struct str left = bytes;
    const struct json *v = NULL;
    struct err e = {0};
    int rc = msgpack_read(&a, &left, &v, &e);

    if (rc == 0)
        json_write(&out, v);
    else
        buf_puts(&out, e.text);
    cr_expect_eq(rc != 0, refused, "%.*s", (int)out.len, out.p);
    cr_expect(str_eq_c(buf_str(&out), want), "got %.*s, want %s", (int)out.len, out.p, want);
    cr_expect_eq(left.len, refused ? bytes.len : 0);
    buf_done(&out);
    arena_done(&a);
}

TEST(msgpack_read, reads_every_kind)
{
    READ("\x07", "7");
    READ("\xff", "-1");
    READ("\xcd\xff\xfe", "65534");
    READ("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615");
    READ("\xd1\xff\xfe", "-2");
    READ("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "-9223372036854775808");
    READ("\xca\x3f\x00\x00\x00", "0.5");
    READ("\xcb\xbf\xf0\x00\x00\x00\x00\x00\x00", "-1.0");
    READ("\xca\x7f\xc0\x00\x00", "null");
    READ("\x93\xc0\xc2\xc3", "[null,false,true]");
    READ("\x82\xa1"
         "a\x01\xa1"
         "b\x90",
         "{\"a\":1,\"b\":[]}");
    READ("\xd9\x02hi", "\"hi\"");
    READ("\xdc\x00\x02\x01\x02", "[1,2]");
    READ("\xde\x00\x01\xa1"
         "k\xdd\x00\x00\x00\x01\x05",
         "{\"k\":[5]}");
}

TEST(msgpack_read, keeps_arrays_of_tokens_as_bytes)
{
    struct arena a = {0};
    struct str bytes = STR_LIT("\x94\xc7\x04\x01\x05\x00\x00\x00\xd5\x02\x01\x00\xd6\x03"
                               "abcd\xc4\x01x");
    const struct json *v = NULL;
    struct err e = {0};
    const uint8_t flags[] = {MSGPACK_IDS, MSGPACK_MASK, MSGPACK_FLOATS, MSGPACK_BYTES};

    bytes.len = 22;
    cr_assert_eq(msgpack_read(&a, &bytes, &v, &e), 0, "%s", e.text);
    cr_assert(json_is(v, JSON_ARRAY) && v->n == 4);
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(v->items[i].flags, flags[i]);
    cr_expect_eq(v->items[0].n, 4);
    cr_expect_eq(v->items[0].text[0], 5);
    arena_done(&a);
}

TEST(msgpack_read, refuses_what_is_broken_with_its_place)
{
    REFUSED("", "msgpack at byte 0: it ends inside a value");
    REFUSED("\xc1", "msgpack at byte 1: 0xc1 begins no value");
    REFUSED("\xda\x00\x05hi", "msgpack at byte 3: it ends inside a value");
    REFUSED("\xdd\xff\xff\xff\xff", "msgpack at byte 5: it ends inside a list");
    REFUSED("\x81\x01\x01", "msgpack at byte 2: the key before is no text");
    REFUSED("\xa1\xff", "msgpack at byte 2: the text before is not UTF-8");
    REFUSED("\xd6\x05"
            "abcd",
            "msgpack at byte 2: it is no array of ids, masks or logprobs (ext types 1, 2, 3)");
}
