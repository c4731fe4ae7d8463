/* Each request of tests/data/api/bad_requests.jsonl is refused, and the error names the field. */
#include <stdlib.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "file_text.h"
#include "testing.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

static const struct dialect *dialect_named(struct str name)
{
    static const struct dialect *const all[] = {&dialect_chat, &dialect_messages,
                                                &dialect_count_tokens, &dialect_responses,
                                                &dialect_completions};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (str_eq_c(name, all[i]->name))
            return all[i];
    return NULL;
}

static const struct json *no_past(void *ctx, struct arena *a, struct str id,
                                  struct str *ret_instructions)
{
    (void)ctx, (void)a, (void)id;
    *ret_instructions = (struct str){0};
    return NULL;
}

static void check_line(struct str line)
{
    struct arena a = {0};
    const struct json *row;
    const struct dialect_past past = {.response = no_past};
    struct chat_request req;
    struct err e = {0};
    const struct dialect *d;
    struct str want;

    cr_assert_eq(json_parse(&a, line, &row, &e), 0, "%.*s: %s", (int)line.len, line.p, e.text);
    want = json_string(json_get(row, "param"));
    d = dialect_named(json_string(json_get(row, "dialect")));
    cr_assert(d && want.p);
    cr_expect_eq(d->parse(&a, json_get(row, "body"), NULL, &past, &req, &e), -1, "accepted: %.*s",
                 (int)line.len, line.p);
    cr_expect(str_eq(str_cstr(e.param), want), "%.*s\n%s: %s", (int)line.len, line.p, e.param,
              e.text);
    /* The text also has the field's name: many clients show only the text. */
    cr_expect_neq(str_find(str_cstr(e.text), str_sub(want, 0, str_find(want, STR("."), 0)), 0),
                  SIZE_MAX, "%s does not name %s", e.text, e.param);
    arena_done(&a);
}

TEST(bad_requests, each_names_its_field)
{
    struct arena a = {0};
    struct str rest = file_text(&a, RG_TEST_DATA "/api/bad_requests.jsonl");
    int n = 0;

    while (rest.len) {
        struct str line = str_sub(rest, 0, str_find(rest, STR("\n"), 0));

        check_line(line);
        rest = str_sub(rest, line.len + 1, rest.len);
        n++;
    }
    cr_assert_geq(n, 120);
    arena_done(&a);
}

/* Checks id and name of a call at each position where a client can write them: at the limit, and
 * one byte above it. */
static void check_call_text(const struct dialect *d, const char *format, const char *param)
{
    for (int over = 0; over < 2; over++) {
        size_t n = REQUEST_CALL_TEXT_MAX + (size_t)over;
        char *name = mem_alloc(n + 1);
        const struct dialect_past past = {.response = no_past};
        struct arena a = {0};
        struct buf body = {0};
        const struct json *v;
        struct chat_request req;
        struct err e = {0};
        struct str rest = str_cstr(format);
        size_t at = str_find(rest, STR("@"), 0);

        memset(name, 'x', n);
        buf_add_str(&body, str_sub(rest, 0, at));
        buf_add(&body, name, n);
        buf_add_str(&body, str_sub(rest, at + 1, rest.len));
        cr_assert_eq(json_parse(&a, buf_str(&body), &v, &e), 0, "%s", e.text);
        cr_expect_eq(d->parse(&a, v, NULL, &past, &req, &e), over ? -1 : 0, "%s: %s", format,
                     e.text);
        cr_expect_str_eq(e.param, over ? param : "", "%s", format);
        if (over)
            cr_expect_neq(
                str_find(str_cstr(e.text), STR("has 65537 bytes, but may have 65536 at most"), 0),
                SIZE_MAX, "%s", e.text);
        buf_done(&body);
        arena_done(&a);
        free(name);
    }
}

TEST(bad_requests, ids_and_names_of_calls_have_an_end)
{
#define CHAT(m) "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," m "]}"
#define CHAT_CALL(id, name)                                      \
    CHAT("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"" id \
         "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"{}\"}}]}")
#define BLOCK(role, b)                                                                        \
    "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"" role "\",\"content\":[{" b \
    "}]}]}"
#define ITEM(i) "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{" i "}]}"

    check_call_text(&dialect_chat, CHAT_CALL("@", "f"), "messages[1].tool_calls[0].id");
    check_call_text(&dialect_chat, CHAT_CALL("1", "@"), "messages[1].tool_calls[0].function.name");
    check_call_text(&dialect_chat,
                    CHAT("{\"role\":\"tool\",\"tool_call_id\":\"@\",\"content\":\"r\"}"),
                    "messages[1].tool_call_id");
    check_call_text(&dialect_chat,
                    CHAT("{\"role\":\"assistant\",\"function_call\":{\"name\":\"@\"}}"),
                    "messages[1].function.name");
    check_call_text(&dialect_messages,
                    BLOCK("assistant", "\"type\":\"tool_use\",\"id\":\"@\",\"name\":\"f\""),
                    "messages[0].content[0].id");
    check_call_text(&dialect_messages,
                    BLOCK("assistant", "\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"@\""),
                    "messages[0].content[0].name");
    check_call_text(&dialect_messages,
                    BLOCK("user", "\"type\":\"tool_result\",\"tool_use_id\":\"@\""),
                    "messages[0].content[0].tool_use_id");
    check_call_text(&dialect_responses,
                    ITEM("\"type\":\"function_call\",\"call_id\":\"@\",\"name\":\"f\","
                         "\"arguments\":\"{}\""),
                    "input[1].call_id");
    check_call_text(&dialect_responses,
                    ITEM("\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"@\","
                         "\"arguments\":\"{}\""),
                    "input[1].name");
    check_call_text(&dialect_responses,
                    ITEM("\"type\":\"function_call_output\",\"call_id\":\"@\",\"output\":\"r\""),
                    "input[1].call_id");
    check_call_text(
        &dialect_responses,
        ITEM("\"type\":\"local_shell_call\",\"call_id\":\"@\",\"action\":{\"command\":[]}"),
        "input[1].call_id");
}
