#include "common/net/retry_after.h"

#include "common/base/attrs.h"
#include "testing.h"

enum { NOW = 784111777 }; /* Sun, 06 Nov 1994 08:49:37 GMT */

static uint32_t wait_of(const char *header, const char *ms)
{
    return retry_after_read(header ? str_cstr(header) : (struct str){0},
                            ms ? str_cstr(ms) : (struct str){0}, NOW);
}

TEST(retry_after, seconds_fractions_and_milliseconds_are_rounded_up)
{
    cr_assert_eq(wait_of("37", NULL), 37);
    cr_assert_eq(wait_of(" 37 ", NULL), 37);
    cr_assert_eq(wait_of("0", NULL), 1);
    cr_assert_eq(wait_of("1.0", NULL), 1);
    cr_assert_eq(wait_of("1.01", NULL), 2);
    cr_assert_eq(wait_of(NULL, "1"), 1);
    cr_assert_eq(wait_of("9", "41000.5"), 42);
    cr_assert_eq(wait_of("4000000000", NULL), RETRY_AFTER_MAX_S);
}

TEST(retry_after, a_date_counts_from_now)
{
    cr_assert_eq(wait_of("Sun, 06 Nov 1994 08:51:37 GMT", NULL), 120);
    cr_assert_eq(wait_of("Sun, 06 Nov 1994 08:49:37 GMT", "x"), 1, "it is now");
    cr_assert_eq(wait_of("Sun, 06 Nov 1984 08:49:37 GMT", NULL), 1, "it is past");
    cr_assert_eq(wait_of("Sun, 06 Nov 2094 08:49:37 GMT", NULL), RETRY_AFTER_MAX_S);
}

TEST(retry_after, anything_else_asks_for_no_time)
{
    static const char *const all[] = {"",
                                      " ",
                                      "soon",
                                      "-1",
                                      "1.x",
                                      "1e3",
                                      "99999999999999999999",
                                      "Sun, 06 Nov 1994 08:51:37",
                                      "Sun, 06 Nov 1994 08:51:37 GMT x"};

    cr_assert_eq(wait_of(NULL, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        cr_assert_eq(wait_of(all[i], all[i]), 0, "%s", all[i]);
}
