/* Sets of engines from a file or a router. */
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_source.h"

TEST(engine_source, settings)
{
    static const char *const bad[] = {
        "", "file:", "dir:/x", "/x", "smg", "smg:http://x,weigth=3", "SMG:http://x"};
    struct engine_source s;
    struct arena a = {0};
    struct err e = {0};

    cr_assert_eq(engine_source_parse(&a, "file:/a,b", &s, &e), 0);
    cr_expect(!s.router);
    cr_expect_str_eq(s.where, "/a,b");
    cr_assert_eq(engine_source_parse(&a, "smg:http://h:1,key-file=/k", &s, &e), 0, "%s", e.text);
    cr_expect(s.router);
    cr_expect_str_eq(s.where, "http://h:1");
    cr_expect_str_eq(s.as_engine, "sglang:http://h:1,key-file=/k");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cr_expect_eq(engine_source_parse(&a, bad[i], &s, &e), -1, "%s", bad[i]);
        cr_expect_eq(e.kind, ERR_CONFIG);
    }
    arena_done(&a);
}

static void expect_texts(const struct engine_texts *t, const char *const *want, size_t n)
{
    cr_assert_eq(t->n, n);
    for (size_t i = 0; i < n; i++)
        cr_expect_str_eq(t->at[i], want[i]);
}

TEST(engine_source, lines)
{
    static const char *const want[] = {"a=sglang:http://h:1,weight=2", "vllm:http://h:2"};
    struct engine_texts t;
    struct arena a = {0};
    struct err e = {0};

    cr_assert_eq(engine_source_lines(&a,
                                     STR("# of today\r\n a=sglang:http://h:1,weight=2 \n\n"
                                         "vllm:http://h:2\r\nvllm:http://h:2"),
                                     &t, &e),
                 0, "%s", e.text);
    expect_texts(&t, want, 2);
    cr_expect_not(t.none);
    vec_done(&t);
    cr_assert_eq(engine_source_lines(&a, STR("none\n"), &t, &e), 0);
    cr_expect(t.none && t.n == 0);
    vec_done(&t);
    cr_assert_eq(engine_source_lines(&a, STR(""), &t, &e), 0);
    cr_expect(!t.none && t.n == 0);
    vec_done(&t);
    cr_expect_eq(engine_source_lines(&a, STR("none\nvllm:http://h:2"), &t, &e), -1);
    vec_done(&t);
    cr_expect_eq(engine_source_lines(&a, STR("\nvllm:http://h:2\nvlm:http://h:2"), &t, &e), -1);
    cr_expect_neq(str_find(str_cstr(e.text), STR("line 3"), 0), SIZE_MAX, "%s", e.text);
    vec_done(&t);
    arena_done(&a);
}

TEST(engine_source, workers_of_a_router)
{
    static const char *const want[] = {"sglang:http://a:1,key-file=/k",
                                       "sglang:https://b:1,key-file=/k"};
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"workers\":{}}",
                                      "{\"workers\":[{}]}",
                                      "{\"workers\":[3]}",
                                      "{\"urls\":[\"http://a:1,key-file=/x\"]}"};
    struct engine_source s;
    struct engine_texts t;
    struct arena a = {0};
    struct err e = {0};

    cr_assert_eq(engine_source_parse(&a, "smg:http://h:1,key-file=/k", &s, &e), 0);
    cr_assert_eq(
        engine_source_workers(
            &a, &s,
            STR("{\"workers\":[{\"url\":\"http://a:1@0\"},{\"url\":\"http://a:1@12\"},"
                "{\"url\":\"https://b:1\",\"worker_type\":\"regular\"},"
                "{\"url\":\"http://c:1\",\"worker_type\":\"prefill\"},{\"url\":\"grpc://d:1\"}]}"),
            &t, &e),
        0, "%s", e.text);
    expect_texts(&t, want, 2);
    cr_expect_eq(t.left_out, 2);
    vec_done(&t);
    cr_assert_eq(engine_source_workers(&a, &s, STR("{\"urls\":[\"http://a:1\"]}"), &t, &e), 0);
    expect_texts(&t, want, 1);
    vec_done(&t);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cr_expect_eq(engine_source_workers(&a, &s, str_cstr(bad[i]), &t, &e), -1, "%s", bad[i]);
        vec_done(&t);
    }
    arena_done(&a);
}
