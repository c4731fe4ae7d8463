#include "common/codec/json.h"
#include "common/serve/exchange.h"
#include "testing.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"

static void hash_of(const char *body, uint64_t ret[2])
{
    struct arena a = {0};
    const struct json *parsed = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, str_cstr(body), &parsed, &e), 0, "%s", e.text);
    request_hash(&(struct body_text){.whole = str_cstr(body), .tail = str_cstr(body)}, parsed, ret);
    arena_done(&a);
}

static bool same(const char *a, const char *b)
{
    uint64_t x[2];
    uint64_t y[2];

    hash_of(a, x);
    hash_of(b, y);
    return x[0] == y[0] && x[1] == y[1];
}

TEST(request_hash, ignores_how_the_answer_is_to_come)
{
    const char *plain = "{\"model\":\"m\",\"messages\":[]}";

    cr_assert(same(plain, "{\"model\":\"m\",\"messages\":[],\"stream\":true}"));
    cr_assert(same(plain, "{\"model\":\"m\",\"stream\":false,\"messages\":[]}"));
    cr_assert(same(plain, "{\"stream\":true,\"model\":\"m\",\"messages\":[]}"));
    cr_assert(same(plain, "{\"model\":\"m\",\"messages\":[],\"stream\":true,"
                          "\"stream_options\":{\"include_usage\":true}}"));
}

TEST(request_hash, tells_other_requests_apart)
{
    cr_assert_not(same("{\"a\":1}", "{\"a\":2}"));
    cr_assert_not(same("{\"a\":\"\\\"stream\\\":true\"}", "{\"a\":\"\"}"));
    cr_assert_not(same("{\"stream\":\"x\"}", "{}"));
    cr_assert_not(same("{\"streams\":true}", "{}"));
    cr_assert_not(same("{\"a\":{\"stream\":true}}", "{\"a\":{}}"));
    cr_assert(same("{}", "{}"));
}
