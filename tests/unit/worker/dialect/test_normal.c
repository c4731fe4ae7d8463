/*
 * Cases of tests/data/api/normal.jsonl: requests of clients, including echoes of our answers, and
 * the expected normalised messages, tools, kwargs and sampling. The stored response "r1" has system
 * "sys", user "hi", then a thought, a text and a call; "r2"
 * has two calls.
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
                       "\"reasoning_content\":\"why\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
                       "\"function\",\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\" "
                       ":\\\"a\\\"}\"}}]}]"),
                   &v, NULL),
        0);
    return v;
}

/* Answers of which some have few items. "comp" answers a compaction. */
static const struct {
    const char *id, *message;
} stored[] = {
    {"r2",
     "{\"content\":\"Second.\",\"reasoning_content\":\"how\",\"tool_calls\":[{\"id\":\"call_1\","
     "\"type\":\"function\",\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\" :"
     "\\\"a\\\"}\"}},{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"write\","
     "\"arguments\":\"{}\"}}]}"},
    {"comp", "{\"content\":\"A summary.\",\"reasoning_content\":\"why\"}"},
    {"text", "{\"content\":\"A text.\"}"},
    {"none", "{\"content\":\"\"}"},
    {"calls",
     "{\"content\":\" \",\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":"
     "{\"name\":\"read\",\"arguments\":\"{}\"}}]}"},
    {"mind", "{\"content\":null,\"reasoning_content\":\"hm\"}"},
    {"seal",
     "{\"content\":\"\",\"thinking_blocks\":[{\"type\":\"redacted_thinking\",\"data\":\"s\"}]}"}};

static const struct json *stored_message(void *ctx, struct str id, bool *ret_compacts)
{
    struct str instructions;
    const struct json *v = NULL;

    *ret_compacts = str_eq_c(id, "comp");
    for (size_t i = 0; i < ARRAY_LEN(stored); i++)
        if (str_eq_c(id, stored[i].id))
            cr_assert_eq(json_parse(ctx, str_cstr(stored[i].message), &v, NULL), 0);
    return v ? v : json_at(past_r1(NULL, ctx, id, &instructions), 2);
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
    const struct dialect_past past = {.response = past_r1, .message = stored_message, .ctx = &a};
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

static int parse_items(struct arena *a, const char *items, struct err *e)
{
    const struct json *body = NULL;
    const struct dialect_past past = {.response = past_r1, .message = stored_message, .ctx = a};
    struct chat_request req;

    cr_assert_eq(json_parse(a, arena_printf(a, "{\"input\":[%s]}", items), &body, e), 0, "%s: %s",
                 items, e->text);
    return dialect_responses.parse(a, body, NULL, &past, &req, e);
}

/* Refuses an id that the gateway did not give to an item, and one that is there already. */
static void expect_bad_reference(const char *ids)
{
    struct arena a = {0};
    struct err e = {0};

    cr_expect_eq(parse_items(&a, ids, &e), -1, "%s", ids);
    cr_expect(str_ends(str_cstr(e.param), STR("].id")) && e.kind == ERR_INVALID, "%s: %s", ids,
              e.text);
    arena_done(&a);
}

TEST(normal, references_name_an_item)
{
    static const char *const bad[] = {
        "fc_r1_1",    "fc_r1",     "fc_r1_x",     "fc_r1_",     "fc_r1_00", "ctc_r1_9", "tsc_",
        "fc_r1_-1",   "r1",        "resp_r1",     "msg_r1_0",   "msg_",     "rs_r1_x",  "cmp_r1_1",
        "msg_r1_1_2", "msg_r3",    "chatcmpl-r1", "rs_r1_9",    "msg_r1_9", "rs_text",  "rs_none",
        "rs_calls",   "msg_calls", "msg_mind",    "msg_text_1", "cmp_r1",   "cmp_none", "msg_comp",
        "rs_comp",    "rs_seal_1", "msg_seal_1"};
    char item[64];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        (void)snprintf(item, sizeof(item), "{\"type\":\"item_reference\",\"id\":\"%s\"}", bad[i]);
        expect_bad_reference(item);
    }
#define REFERENCE(id) "{\"type\":\"item_reference\",\"id\":\"" id "\"}"
    expect_bad_reference(REFERENCE("fc_r1_0") "," REFERENCE("fc_r1_0"));
    expect_bad_reference(REFERENCE("fc_r1_0") "," REFERENCE("ctc_r1_0"));
    expect_bad_reference(REFERENCE("tsc_r1_0") "," REFERENCE("fc_r1_0"));
    expect_bad_reference(REFERENCE("msg_r1") "," REFERENCE("msg_r2") "," REFERENCE("msg_r1"));
}

TEST(normal, references_to_the_items_that_an_answer_has)
{
    static const char *const good[] = {"msg_text", "msg_none", "fc_calls_0", "rs_mind",
                                       "rs_seal",  "msg_seal", "cmp_comp",   "msg_r2_2"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct arena a = {0};
        struct err e = {0};
        struct str item =
            arena_printf(&a, "{\"id\":\"%s\"},{\"role\":\"user\",\"content\":\"x\"}", good[i]);

        cr_expect_eq(parse_items(&a, item.p, &e), 0, "%s: %s", good[i], e.text);
        arena_done(&a);
    }
}

TEST(normal, an_unknown_item_is_named)
{
    struct arena a = {0};
    struct err e = {0};

    cr_expect_eq(parse_items(&a, "{\"type\":\"riddle\",\"id\":\"p\"}", &e), -1);
    cr_expect(
        str_eq_c(str_cstr(e.text), "input[0].type must be a known kind of item, not 'riddle'"),
        "%s", e.text);
    arena_done(&a);
}

TEST(normal, labels_and_retries_from_headers)
{
    static const struct dialect_header all[] = {
        {STR_LIT("x-claude-code-agent-id"), STR_LIT("a1")},
        {STR_LIT("x-stainless-retry-count"), STR_LIT("2")},
        {STR_LIT("idempotency-key"), STR_LIT("k")},
    };
    const struct dialect_headers headers = {all, ARRAY_LEN(all)};
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
