/*
 * tests/data/api/normal.jsonl: what clients send, what they echo of our answers included, and the
 * normalised messages, tools, kwargs and sampling it must become. The stored response "r1" is
 * system "sys", user "hi", then thought, text and a call.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

static const struct json *past_r1(void *ctx, struct arena *a, struct str id,
                                  struct str *ret_instructions)
{
    const struct json *v = NULL;

    (void)ctx;
    *ret_instructions = (struct str){0};
    if (!str_eq_c(id, "r1"))
        return NULL;
    cr_assert_eq(
        json_parse(a,
                   STR("[{\"role\":\"system\",\"content\":\"sys\"},{\"role\":\"user\",\"content\":"
                       "\"hi\"},{\"role\":\"assistant\",\"content\":\"I look.\","
                       "\"reasoning_content\":\"r\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
                       "\"function\",\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\" "
                       ":\\\"a\\\"}\"}}]}]"),
                   &v, NULL),
        0);
    return v;
}

static const struct json *message_r1(void *ctx, struct str id)
{
    struct str instructions;
    const struct json *all = past_r1(NULL, ctx, id, &instructions);

    return json_at(all, 2);
}

static const struct dialect *dialect_named(struct str name)
{
    static const struct dialect *const all[] = {&dialect_chat, &dialect_messages,
                                                &dialect_count_tokens, &dialect_responses};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (str_eq_c(name, all[i]->name))
            return all[i];
    return NULL;
}

static void expect(struct arena *a, const struct json *row, const char *key, const struct json *got)
{
    const struct json *want = json_get(row, key);
    struct buf g = {0};
    struct buf w = {0};

    if (!want)
        return;
    if (got)
        json_write(&g, got);
    json_write(&w, want);
    cr_expect(got && json_equal(got, want), "%s: %s\n got: %.*s\nwant: %.*s",
              arena_cstr(a, json_string(json_get(row, "name"))), key, (int)g.len, g.p, (int)w.len,
              w.p);
    buf_done(&g);
    buf_done(&w);
}

static void check_line(struct str line)
{
    struct arena a = {0};
    const struct json *row;
    const struct dialect_past past = {.response = past_r1, .message = message_r1, .ctx = &a};
    const struct dialect *d;
    struct chat_request req;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, line, &row, &e), 0, "%s", e.text);
    d = dialect_named(json_string(json_get(row, "dialect")));
    cr_assert_not_null(d);
    if (d->parse(&a, json_get(row, "body"), NULL, &past, &req, &e) == 0) {
        expect(&a, row, "messages", req.chat->messages);
        expect(&a, row, "tools", req.chat->tools);
        expect(&a, row, "callable", req.callable);
        expect(&a, row, "kwargs", req.chat->kwargs);
        expect(&a, row, "sampling", req.sampling_given);
    } else {
        cr_expect(false, "%.*s\n%s", (int)line.len, line.p, e.text);
    }
    arena_done(&a);
}

TEST(normal, what_clients_send)
{
    static char line[65536];
    FILE *f = fopen(RG_TEST_DATA "/api/normal.jsonl", "rb");
    int n = 0;

    cr_assert_not_null(f);
    while (fgets(line, sizeof(line), f)) {
        check_line(str_trim(str_cstr(line)));
        n++;
    }
    fclose(f);
    cr_assert_gt(n, 20);
}

static struct str header_of(const void *ctx, const char *name)
{
    const char *const *pairs = ctx;

    for (; pairs[0]; pairs += 2)
        if (strcmp(pairs[0], name) == 0)
            return str_cstr(pairs[1]);
    return (struct str){0};
}

TEST(normal, labels_and_retries_from_headers)
{
    static const char *const pairs[] = {"x-claude-code-agent-id",
                                        "a1",
                                        "x-stainless-retry-count",
                                        "2",
                                        "idempotency-key",
                                        "k",
                                        NULL};
    const struct dialect_headers headers = {header_of, pairs};
    struct arena a = {0};
    const struct json *body;
    struct chat_request req;
    struct err e = {0};

    cr_assert_eq(
        json_parse(&a, STR("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"), &body, &e),
        0);
    cr_assert_eq(dialect_chat.parse(&a, body, &headers, NULL, &req, &e), 0);
    cr_assert(str_eq_c(req.label, "a1"));
    cr_assert(str_eq_c(req.idempotency_key, "k"));
    cr_assert_eq(req.retry_count, 2);
    arena_done(&a);
}
