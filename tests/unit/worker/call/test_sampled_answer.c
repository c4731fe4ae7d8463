/* The text side of a sample, as engines that tell messages feed it: ids of its tool calls. */
#include "worker/call/sampled_answer.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/parsers/parser.h"
#include "worker/request/answer_sink.h"
#include "worker/tokens/tokenizer.h"

static void fresh_id(void *ctx, char *out, size_t size)
{
    (void)snprintf(out, size, "fresh-%d", (*(int *)ctx)++);
}

static void on_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    (void)index;
    buf_printf(ctx, "%u:%.*s:%.*s ", tool, (int)id.len, id.p, (int)name.len, name.p);
}

static void on_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    (void)ctx;
    (void)index;
    (void)tool;
    (void)delta;
}

static void on_end(void *ctx, uint32_t index, uint32_t tool)
{
    (void)ctx;
    (void)index;
    (void)tool;
}

/* The calls of a message behind a history, as they are told: number, id and name of each. */
static void expect_calls(const char *history, const char *message, const char *want)
{
    static const struct answer_sink sink = {
        .tool_begin = on_begin, .tool_args = on_args, .tool_end = on_end};
    struct tokenizer *tokenizer = tokenizer_builtin();
    struct parser_options parser = {.tool = TOOL_NONE};
    struct arena a = {0};
    struct buf told = {0};
    int fresh = 0;
    struct sampled_answer_options o = {.tokenizer = tokenizer,
                                       .parser = &parser,
                                       .sink = &sink,
                                       .sink_ctx = &told,
                                       .fresh_id = fresh_id,
                                       .fresh_ctx = &fresh};
    struct sampled_answer answer;
    const struct json *said;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, str_cstr(history), &o.history, &e), 0, "%s", e.text);
    cr_assert_eq(json_parse(&a, str_cstr(message), &said, &e), 0, "%s", e.text);
    sampled_answer_init(&answer, &o);
    sampled_answer_take(&answer, said);
    sampled_answer_take_end(&answer);
    cr_expect(str_eq_c(buf_str(&told), want), "got %.*s want %s", (int)told.len, told.p, want);
    sampled_answer_done(&answer);
    buf_done(&told);
    arena_done(&a);
    tokenizer_free(tokenizer);
}

#define CALL(id, name) "{\"id\": \"" id "\", \"function\": {\"name\": \"" name "\"}}"

TEST(sampled_answer, a_call_keeps_its_own_id_where_no_other_has_it)
{
    static const char *const history =
        "[{\"role\": \"assistant\", \"tool_calls\": [" CALL("f:0", "f") "]}]";

    expect_calls("[]", "{\"tool_calls\": [" CALL("f:0", "f") ", " CALL("g:1", "g") "]}",
                 "0:f:0:f 1:g:1:g ");
    expect_calls(history, "{\"tool_calls\": [" CALL("f:0", "f") ", " CALL("g:1", "g") "]}",
                 "0:fresh-0:f 1:g:1:g ");
    expect_calls("[]", "{\"tool_calls\": [" CALL("f:0", "f") ", " CALL("f:0", "f") "]}",
                 "0:f:0:f 1:fresh-0:f ");
}
