#include "worker/api/call.h"

#include "testing.h"

static bool same(const char *a, const char *b)
{
    uint64_t x[2];
    uint64_t y[2];

    call_hash(str_cstr(a), x);
    call_hash(str_cstr(b), y);
    return x[0] == y[0] && x[1] == y[1];
}

TEST(call_hash, ignores_how_the_answer_is_to_come)
{
    const char *plain = "{\"model\":\"m\",\"messages\":[]}";

    cr_assert(same(plain, "{\"model\":\"m\",\"messages\":[],\"stream\":true}"));
    cr_assert(same(plain, "{\"model\":\"m\",\"stream\":false,\"messages\":[]}"));
    cr_assert(same(plain, "{\"stream\":true,\"model\":\"m\",\"messages\":[]}"));
    cr_assert(same(plain, "{\"model\":\"m\",\"messages\":[],\"stream\":true,"
                          "\"stream_options\":{\"include_usage\":true}}"));
}

TEST(call_hash, tells_other_requests_apart)
{
    cr_assert_not(same("{\"a\":1}", "{\"a\":2}"));
    cr_assert_not(same("{\"a\":\"\\\"stream\\\":true\"}", "{\"a\":\"\"}"));
    cr_assert_not(same("{\"stream\":\"x\"}", "{}"));
    cr_assert_not(same("{\"streams\":true}", "{}"));
    cr_assert(same("", ""));
}
