#include "common/base/limits.h"
#include "worker/text/request/request_limits.h"

#include "common/codec/json.h"
#include "testing.h"

static const struct request_limits LIMITS = {.memory_bytes = 1 << 30,
                                             .growth = 10,
                                             .schema_bytes = 40,
                                             .recorded_bytes = 20,
                                             .tools = 3,
                                             .stops = 2,
                                             .messages = 2,
                                             .vocabulary = 3,
                                             .context = 3};

/* Checks the error of a body; "": it is accepted. */
static void expect(const char *body, const char *want)
{
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e = {0};
    int rc;

    (void)json_parse(&a, str_cstr(body), &v, NULL);
    rc = request_limits_lists(&LIMITS, v, &e);
    cr_expect(v && rc == (*want ? -1 : 0) && str_eq_c(str_cstr(e.text), want), "%s: %s", body,
              e.text);
    arena_done(&a);
}

TEST(request_limits, lists_are_counted)
{
    expect("{\"tools\":[1,2,3],\"stop\":[\"a\",\"b\"],\"messages\":[1,2]}", "");
    expect("{\"stop\":\"a text of any length\",\"input\":\"another\"}", "");
    expect("{\"tools\":[1,2,3,4]}", "tools: 4 are too many; --max-tools allows 3 tools");
    expect("{\"tools\":[{\"tools\":[1,2]},3]}",
           "tools: 4 are too many; --max-tools allows 3 tools");
    expect("{\"functions\":[1,2,3,4]}", "functions: 4 are too many; --max-tools allows 3 tools");
    expect("{\"stop\":[1,2,3]}", "stop: 3 are too many; --max-stops allows 2 stop strings or ids");
    expect("{\"stop_sequences\":[1,2,3]}",
           "stop_sequences: 3 are too many; --max-stops allows 2 stop strings or ids");
    expect("{\"messages\":[1,2,3]}",
           "messages: 3 are too many; --max-messages allows 2 messages or input items");
    expect("{\"input\":[1,2,3]}",
           "input: 3 are too many; --max-messages allows 2 messages or input items");
    expect("{\"tools\":[\"01234567890123456789\"],\"response_format\":\"01234567890123456789\"}",
           "response_format: 41 are too many; --max-schema-bytes allows 40 bytes");
    expect("{\"metadata\":{\"key\":\"0123456789012345\"},\"chat_template_kwargs\":{\"key\":1}}",
           "");
    expect("{\"metadata\":{\"key\":\"01234567890123456\"}}",
           "metadata: 21 are too many; --max-metadata-bytes allows 20 bytes");
    expect(
        "{\"chat_template_kwargs\":{\"key\":[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]}}",
        "chat_template_kwargs: 21 are too many; --max-metadata-bytes allows 20 bytes");
}

/* Checks two messages with `one` and `other` parts or calls. */
static void expect_parts(const char *field, uint32_t one, uint32_t other, const char *want)
{
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    struct err e = {0};
    int rc;

    buf_printf(&b, "[{\"role\":\"user\",\"%s\":[1", field);
    for (uint32_t i = 1; i < one; i++)
        buf_puts(&b, ",1");
    buf_printf(&b, "]},{\"%s\":[1", field);
    for (uint32_t i = 1; i < other; i++)
        buf_puts(&b, ",1");
    buf_puts(&b, "]}]");
    (void)json_parse(&a, buf_str(&b), &v, NULL);
    rc = request_limits_parts(v, &e);
    cr_expect(v && rc == (*want ? -1 : 0) && str_eq_c(str_cstr(e.text), want), "%s", e.text);
    arena_done(&a);
    buf_done(&b);
}

TEST(request_limits, parts_and_calls_are_counted)
{
    expect_parts("content", 8192, 8192, "");
    expect_parts("content", 8192, 8193,
                 "content: 16385 are too many; at most 16384 content parts are allowed");
    expect_parts("tool_calls", 2048, 2048, "");
    expect_parts("tool_calls", 2048, 2049,
                 "tool_calls: 4097 are too many; at most 4096 tool calls are allowed");
}

/* Checks a message with a text of `bytes` bytes between `open` and `close`. */
static void expect_text(const char *open, const char *close, size_t bytes, const char *field)
{
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    struct err e = {0};

    buf_puts(&b, open);
    memset(buf_reserve(&b, bytes), 'x', bytes);
    b.len += bytes;
    buf_puts(&b, close);
    (void)json_parse(&a, buf_str(&b), &v, NULL);
    cr_assert(v);
    cr_expect_eq(request_limits_parts(v, &e), *field ? -1 : 0);
    cr_expect_str_eq(e.param, field);
    cr_expect(!*field ||
                  strstr(e.text, "16777217 are too many; at most 16777216 bytes are allowed"),
              "%s", e.text);
    arena_done(&a);
    buf_done(&b);
}

TEST(request_limits, texts_are_measured)
{
    static const struct {
        const char *open, *close, *field;
    } rows[] = {
        {"[{\"content\":\"", "\"}]", "content"},
        {"[{\"content\":[{\"text\":\"", "\"}]}]", "content"},
        {"[{\"reasoning_content\":\"", "\"}]", "reasoning_content"},
        {"[{\"tool_calls\":[{\"function\":{\"arguments\":\"", "\"}}]}]", "tool_calls"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        expect_text(rows[i].open, rows[i].close, REQUEST_TEXT_MAX, "");
        expect_text(rows[i].open, rows[i].close, REQUEST_TEXT_MAX + 1, rows[i].field);
    }
}

TEST(request_limits, ids_are_counted)
{
    static const struct request_limits any = {.vocabulary = 0};
    struct json list = {.kind = JSON_ARRAY, .n = REQUEST_IDS_MAX + 1};
    struct json_member member = {json_make_string(STR("bad_words")), list};
    struct json body = {.kind = JSON_OBJECT, .n = 1, .members = &member};
    struct err e = {0};

    expect("{\"allowed_token_ids\":[1,2,3],\"logit_bias\":{\"1\":1,\"2\":1,\"3\":1}}", "");
    expect("{\"allowed_token_ids\":[1,2,3,1]}",
           "allowed_token_ids: 4 are too many; this model has 3 ids");
    expect("{\"logit_bias\":{\"1\":1,\"2\":1,\"3\":1,\"4\":1}}",
           "logit_bias: 4 are too many; this model has 3 ids");
    expect("{\"bad_words\":[\"a\",\"b\",\"c\",\"d\"]}",
           "bad_words: 4 are too many; this model has 3 ids");
    cr_expect_eq(request_limits_lists(&any, &body, &e), -1);
    cr_expect_str_eq(e.text,
                     "bad_words: 1048577 are too many; without --model there may be 1048576 ids");
}

/* Checks a body of n members. */
static void expect_members(uint32_t n, const char *want)
{
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    struct err e = {0};
    int rc;

    for (uint32_t i = 0; i < n; i++)
        buf_printf(&b, "%s\"m%u\":1", i ? "," : "{", i);
    buf_puts(&b, "}");
    (void)json_parse(&a, buf_str(&b), &v, NULL);
    rc = request_limits_lists(&LIMITS, v, &e);
    cr_expect(v && rc == (*want ? -1 : 0) && str_eq_c(str_cstr(e.text), want), "%s", e.text);
    arena_done(&a);
    buf_done(&b);
}

TEST(request_limits, members_are_counted)
{
    expect_members(1024, "");
    expect_members(1025, "body: 1025 are too many; at most 1024 members are allowed");
}

/* Checks chat_template_kwargs of n values: a list of lists, each with one value. */
static void expect_arguments(uint32_t n, int want)
{
    struct request_limits all = LIMITS;
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    struct err e = {0};

    all.recorded_bytes = 1 << 20;
    buf_puts(&b, "{\"chat_template_kwargs\":{\"a\":[");
    for (uint32_t i = 1; i + 1 < n; i += 2)
        buf_puts(&b, i > 1 ? ",[1]" : "[1]");
    buf_puts(&b, n % 2 ? "]}}" : ",1]}}");
    (void)json_parse(&a, buf_str(&b), &v, NULL);
    cr_expect(v && request_limits_lists(&all, v, &e) == want, "%u: %s", n, e.text);
    if (want)
        cr_expect_str_eq(
            e.text, "chat_template_kwargs: 4097 are too many; at most 4096 values are allowed");
    arena_done(&a);
    buf_done(&b);
}

TEST(request_limits, template_arguments_are_counted)
{
    expect_arguments(3, 0);
    expect_arguments(4096, 0);
    expect_arguments(4097, -1);
}

TEST(request_limits, bad_words_are_measured)
{
    static char word[REQUEST_WORD_BYTES_MAX];
    struct json item, list = {.kind = JSON_ARRAY, .n = 1, .items = &item};
    struct json_member member = {json_make_string(STR("bad_words")), list};
    struct json body = {.kind = JSON_OBJECT, .n = 1, .members = &member};
    struct err e = {0};

    item = json_make_string(str_of(word, sizeof(word) - 1));
    cr_expect_eq(request_limits_lists(&LIMITS, &body, &e), 0, "%s", e.text);
    item = json_make_string(str_of(word, sizeof(word)));
    cr_expect_eq(request_limits_lists(&LIMITS, &body, &e), -1);
    cr_expect_str_eq(e.param, "bad_words");
    cr_expect_str_eq(e.text, "bad_words: 262145 are too many; at most 262144 bytes are allowed");
}

TEST(request_limits, prompts_of_ids_are_counted)
{
    expect("{\"prompt\":[1,2,3]}", "");
    expect("{\"prompt\":[[1,2,3],[1]]}", "");
    expect("{\"prompt\":[\"a\",\"b\",\"c\",\"d\"]}", "");
    expect("{\"prompt\":[1,2,3,4]}",
           "This model's maximum context length is 3 tokens. However, prompt has 4 token ids.");
    expect("{\"prompt\":[[1],[1,2,3,4]]}",
           "This model's maximum context length is 3 tokens. However, prompt[1] has 4 token ids.");
}

/* Checks a body with n_prompts prompts, one of them long, and n bytes next to them. */
static void expect_beside(uint32_t n_prompts, size_t n, const char *want)
{
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    struct err e = {0};
    int rc;

    buf_puts(&b, "{\"x\":\"");
    for (size_t i = 2; i < n; i++) /* after the member and its key */
        buf_add_c(&b, 'x');
    buf_puts(&b, "\",\"prompt\":[\"");
    for (size_t i = 0; i < 40u << 20; i++)
        buf_add_c(&b, 'p');
    buf_puts(&b, "\"]}");
    (void)json_parse(&a, buf_str(&b), &v, NULL);
    rc = request_limits_batch(v, n_prompts, &e);
    cr_expect(v && rc == (*want ? -1 : 0) && str_eq_c(str_cstr(e.text), want), "%s", e.text);
    cr_expect(rc == 0 || (e.kind == ERR_INVALID && strcmp(e.param, "prompt") == 0));
    arena_done(&a);
    buf_done(&b);
}

TEST(request_limits, what_stands_beside_prompts_is_counted_for_each)
{
    expect_beside(1, 32 << 20, "");
    expect_beside(128, 256 << 10, "");
    expect_beside(128, (256 << 10) + 1,
                  "prompt: 33554560 are too many; at most 33554432 bytes are allowed");
}

/* Reads text within a budget. Returns the used bytes at the end, or 0 if the error is wrong. */
static size_t read_within(size_t max_bytes, struct str text)
{
    struct arena a = {.max_bytes = max_bytes};
    const struct json *v;
    struct err e = {0}, named = {0};
    bool read = json_parse(&a, text, &v, &e) == 0;
    bool within = request_limits_memory(&LIMITS, &a, &named) == 0;
    bool said =
        read || (e.kind == ERR_BODY_TOO_LARGE && strstr(named.text, "--max-request-growth"));
    size_t used = a.used_bytes;

    arena_done(&a);
    return read == within && said ? used : 0;
}

static void expect_bounded(const char *item)
{
    const size_t budget = 1 << 20, n = 400000;
    struct buf b = {0};
    size_t used;

    buf_puts(&b, "[");
    for (size_t i = 0; i < n; i++)
        buf_printf(&b, "%s%s", i ? "," : "", item);
    buf_puts(&b, "]");
    cr_expect_gt(read_within(0, buf_str(&b)), 4 * budget);
    used = read_within(budget, buf_str(&b));
    cr_expect(used > budget && used < 2 * budget, "%s: %zu", item, used);
    buf_done(&b);
}

/* Reading stops soon after the budget is used up, for flat and nested lists. */
TEST(request_limits, memory_of_reading)
{
    expect_bounded("0");
    expect_bounded("[0,0]");
    expect_bounded("{\"a\":0}");
    expect_bounded("[[[]]]");
}

static void expect_budget(const struct request_limits *l, size_t body, size_t want)
{
    cr_expect_eq(request_limits_budget(l, body), want);
}

TEST(request_limits, budget)
{
    struct request_limits none = {0};

    expect_budget(&LIMITS, 1000, REQUEST_MEMORY_FREE + 10000);
    expect_budget(&LIMITS, 1 << 30, (size_t)1 << 30);
    expect_budget(&LIMITS, SIZE_MAX, (size_t)1 << 30);
    expect_budget(&none, 1000, 0);
}
