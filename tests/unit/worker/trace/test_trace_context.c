#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "common/base/attrs.h"
#include "worker/trace/trace_context.h"

#define IDS "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"

TEST(trace_context, round_trip)
{
    struct trace_context c;
    char text[TRACE_PARENT_LEN + 1];

    cr_assert_eq(trace_parent_read(STR("00-" IDS "-01"), &c), 0);
    cr_assert_eq(c.flags, TRACE_SAMPLED);
    trace_parent_write(&c, text);
    cr_assert_str_eq(text, "00-" IDS "-01");
    cr_assert_eq(trace_parent_read(STR("fe-" IDS "-ff-more"), &c), 0);
    trace_parent_write(&c, text);
    cr_assert_str_eq(text, "00-" IDS "-03", "only known flags go on");
}

TEST(trace_context, what_is_none)
{
    static const char *const none[] = {
        "",
        "00",
        "00-" IDS "-1",
        "00-" IDS "-01-",
        "00-" IDS "-01 ",
        "ff-" IDS "-01",
        "0-" IDS "-01",
        "00_" IDS "-01",
        "01-" IDS "-01.x",
        "00-" IDS "-0A",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    };
    struct trace_context c;

    cr_assert_eq(trace_parent_read((struct str){0}, &c), -1);
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        cr_assert_eq(trace_parent_read(str_cstr(none[i]), &c), -1, "%s", none[i]);
}

TEST(trace_context, states)
{
    static const char *const good[] = {"a=b",      "a=b,c=d",    "a=b , c=d",
                                       "a=b,,c=d", "0t@sys=x y", "k_-*/1=!~"};
    static const char *const bad[] = {"",      ",",     "a",      "a=",      "=b",
                                      "A=b",   "_a=b",  "@a=b",   "a@=b",    "a@b@c=d",
                                      "a b=c", "a=b=c", "a=\x7f", "a=b,a=c", "a=\t"};
    char many[400] = "";

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_assert(trace_state_valid(str_cstr(good[i])), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not(trace_state_valid(str_cstr(bad[i])), "%s", bad[i]);
    for (size_t i = 0; i < 32; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "%sk%zu=v", i ? "," : "",
                       i);
    cr_assert(trace_state_valid(str_cstr(many)));
    strcat(many, ",more=v");
    cr_assert_not(trace_state_valid(str_cstr(many)), "33 members");
}

TEST(trace_context, a_session_has_one_trace)
{
    uint8_t a[TRACE_ID_BYTES], again[TRACE_ID_BYTES], b[TRACE_ID_BYTES];

    trace_of_session(STR("w0-1"), a);
    trace_of_session(STR("w0-1"), again);
    trace_of_session(STR("w0-2"), b);
    cr_assert_eq(memcmp(a, again, sizeof(a)), 0);
    cr_assert_neq(memcmp(a, b, sizeof(a)), 0);
}
