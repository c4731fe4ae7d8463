/* Tests of utf8, crc32c and base64. */
#include "common/base/attrs.h"
#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "common/codec/crc32c.h"
#include "testing.h"

TEST(utf8, every_character_round_trips)
{
    char bytes[4];
    uint32_t back;

    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        size_t n = utf8_encode(bytes, cp);
        bool surrogate = cp >= 0xd800 && cp < 0xe000;

        cr_assert_eq(utf8_decode(str_of(bytes, n), &back), surrogate ? -1 : (int)n, "%x", cp);
        cr_assert_eq(utf8_valid(str_of(bytes, n)), !surrogate);
        if (surrogate)
            continue;
        cr_assert_eq(back, cp);
        for (size_t cut = 0; cut < n; cut++)
            cr_assert_eq(utf8_decode(str_of(bytes, cut), &back), 0, "%x cut at %zu", cp, cut);
    }
}

/* Checks up to four bytes by the table of the Unicode standard, written in a different way. */
static bool plain_valid(const uint8_t *p, size_t n)
{
    while (n > 0) {
        size_t need = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
        uint32_t cp = need == 1 ? p[0] : p[0] & (0xffu >> (need + 1));

        if (need == 0 || need > n || p[0] >= 0xf8)
            return false;
        for (size_t i = 1; i < need; i++) {
            if (p[i] >> 6 != 2)
                return false;
            cp = cp << 6 | (p[i] & 63);
        }
        if ((need == 2 && cp < 0x80) || (need == 3 && cp < 0x800) || (need == 4 && cp < 0x10000) ||
            cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            return false;
        p += need;
        n -= need;
    }
    return true;
}

TEST(utf8, all_short_sequences_at_all_places)
{
    static const uint8_t picks[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                    0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                    0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff};
    uint8_t text[100];
    const size_t k = sizeof(picks);

    for (size_t i = 0; i < k * k * k * k; i++) {
        uint8_t four[4] = {picks[i % k], picks[i / k % k], picks[i / k / k % k],
                           picks[i / k / k / k]};
        size_t place = i % 90;

        memset(text, 'a', sizeof(text));
        memcpy(text + place, four, 4);
        cr_assert_eq(utf8_valid(str_of((char *)text, sizeof(text))), plain_valid(four, 4),
                     "%02x %02x %02x %02x", four[0], four[1], four[2], four[3]);
    }
}

TEST(utf8, valid_prefix_and_count)
{
    cr_assert_eq(utf8_valid_len(STR("ab\xc3\xa9\xe2\x82")), 4);
    cr_assert_eq(utf8_valid_len(STR("ab\xff")), 2);
    cr_assert_eq(utf8_valid_len((struct str){0}), 0);
    cr_assert_eq(utf8_count(STR("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")), 4);
}

TEST(crc32c, known_answers)
{
    uint8_t bytes[32] = {0};

    cr_assert_eq(crc32c(0, "123456789", 9), 0xe3069283u);
    cr_assert_eq(crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    cr_assert_eq(crc32c(0, bytes, 32), 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    cr_assert_eq(crc32c(0, bytes, 32), 0x46dd794eu);
    cr_assert_eq(crc32c(0, NULL, 0), 0);
}

TEST(crc32c, pieces_and_table_agree)
{
    uint8_t bytes[333];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + i / 7);
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        uint32_t whole = crc32c(0, bytes, n);
        size_t cut = n * 5 / 9;

        cr_assert_eq(crc32c_table(0, bytes, n), whole);
        cr_assert_eq(crc32c(crc32c(0, bytes, cut), bytes + cut, n - cut), whole);
        cr_assert_eq(crc32c_move(crc32c(0, bytes, cut), n - cut) ^ crc32c(0, bytes + cut, n - cut),
                     whole);
    }
}

static int decode(const char *text, char *out, size_t *n)
{
    return base64_decode(str_cstr(text), out, n);
}

TEST(base64, known_answers)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xfe", "+//+"},
    };
    struct buf all = {0};
    char out[32];
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t len = strlen(cases[i][0]);

        base64_encode(cases[i][0], len, out);
        cr_assert_eq(memcmp(out, cases[i][1], base64_encoded_len(len)), 0, "%s", cases[i][1]);
        base64_append(&all, cases[i][0], len);
        cr_assert(str_ends(buf_str(&all), str_cstr(cases[i][1])));
        cr_assert_eq(decode(cases[i][1], out, &n), 0);
        cr_assert(str_eq(str_of(out, n), str_cstr(cases[i][0])));
    }
    cr_assert(str_eq(buf_str(&all), STR("Zg==Zm8=Zm9vZm9vYg==Zm9vYmE=Zm9vYmFy+//+")));
    buf_done(&all);
}

TEST(base64, strict)
{
    static const char *const bad[] = {"Z",    "Zg",   "Zg=",    "Zg==Zg==", "Zh==", "Zm9=", "Zm 9",
                                      "====", "Z===", "Zm9v\n", "Zm-v",     "Zm_v", "Zm=v", "=Zm9"};
    char out[32];
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(decode(bad[i], out, &n), -1, "%s", bad[i]);
}
