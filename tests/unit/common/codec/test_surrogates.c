#include "common/codec/surrogates.h"

#include "common/base/buf.h"
#include "testing.h"

#define HIGH "\xed\xa0\xbd"
#define LOW "\xed\xb8\x80"
#define FACE "\xf0\x9f\x98\x80"
#define LOST "\xef\xbf\xbd"

static void expect(const char *const *pieces, const char *text, size_t replaced)
{
    struct surrogates s = {0};
    struct buf out = {0};

    for (size_t i = 0; pieces[i]; i++)
        surrogates_add(&s, str_cstr(pieces[i]), &out);
    surrogates_end(&s, &out);
    cr_assert(str_eq_c(buf_str(&out), text), "%.*s", (int)out.len, out.p);
    cr_assert_eq(s.replaced, replaced);
    buf_done(&out);
}

TEST(surrogates, halves_become_their_character_wherever_the_text_is_cut)
{
    expect((const char *const[]){"a" HIGH LOW "b", NULL}, "a" FACE "b", 0);
    expect((const char *const[]){"a" HIGH, LOW "b", NULL}, "a" FACE "b", 0);
    expect((const char *const[]){"a" HIGH, "", LOW, NULL}, "a" FACE, 0);
}

TEST(surrogates, a_half_alone_is_replaced_and_counted)
{
    expect((const char *const[]){HIGH, NULL}, LOST, 1);
    expect((const char *const[]){HIGH "x" LOW, NULL}, LOST "x" LOST, 2);
    expect((const char *const[]){LOW HIGH, HIGH LOW, NULL}, LOST LOST FACE, 2);
}

TEST(surrogates, other_text_stays)
{
    expect((const char *const[]){"\xed\x9f\xbf", "\xed", "\x80\x80", NULL},
           "\xed\x9f\xbf\xed\x80\x80", 0);
    expect((const char *const[]){"", NULL}, "", 0);
}
