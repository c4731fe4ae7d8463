/* The text side of a sample of engines that report messages: ids of its tool calls. */
#include "worker/plane/call/sampled_answer.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

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

#define WITHHELD "2 further tool calls withheld: of an answer's no more than 8 are told"

/* Checks the reported calls of a message after a history, or of a list of its pieces: number, id
 * and name of each; and the warnings. */
static void expect_told(const char *history, const char *message, const char *want,
                        const char *warning)
{
    static const struct answer_sink sink = {
        .tool_begin = on_begin, .tool_args = on_args, .tool_end = on_end};
    struct tokenizer *tokenizer = tokenizer_builtin();
    struct parser_options parser = {.tool = TOOL_NONE};
    struct arena a = {0};
    struct buf told = {0};
    int fresh = 0;
    struct sampled_answer_options o = {.tokenizer = tokenizer,
                                       .max_calls = 8,
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
    for (uint32_t i = 0; json_is(said, JSON_ARRAY) && i < said->n; i++)
        sampled_answer_feed_message(&answer, &said->items[i]);
    if (json_is(said, JSON_OBJECT))
        sampled_answer_feed_message(&answer, said);
    sampled_answer_end_messages(&answer);
    cr_expect(str_eq_c(buf_str(&answer.warning), warning), "%.*s", (int)answer.warning.len,
              answer.warning.p);
    cr_expect(str_eq_c(buf_str(&told), want), "got %.*s want %s", (int)told.len, told.p, want);
    sampled_answer_done(&answer);
    buf_done(&told);
    arena_done(&a);
    tokenizer_free(tokenizer);
}

static void expect_calls(const char *history, const char *message, const char *want)
{
    expect_told(history, message, want, "");
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

/* There are more calls than are checked, so any of them may have the id. */
TEST(sampled_answer, a_call_behind_very_many_gets_a_fresh_id)
{
    struct buf history = {0};

    for (int n = 4096; n <= 4097; n++) {
        buf_clear(&history);
        buf_puts(&history, "[{\"tool_calls\": [" CALL("f:0", "f"));
        for (int i = 1; i < n; i++)
            buf_puts(&history, ", " CALL("f:0", "f"));
        buf_puts(&history, "]}]");
        buf_add_c(&history, 0);
        expect_calls(history.p, "{\"tool_calls\": [" CALL("g:1", "g") "]}",
                     n == 4096 ? "0:g:1:g " : "0:fresh-0:g ");
    }
    buf_done(&history);
}

#define INDEXED "{\"index\": %d, \"function\": {\"name\": \"f\", \"arguments\": \"{\"}}"

/* Eight of ten calls are reported. They arrive in one message, or one by one in two pieces each. */
TEST(sampled_answer, calls_that_are_withheld_are_warned_of)
{
    struct buf whole = {0}, pieces = {0}, want = {0};

    buf_puts(&whole, "{\"tool_calls\": [");
    buf_puts(&pieces, "[");
    for (int i = 0; i < 10; i++) {
        const char *comma = i ? ", " : "";

        buf_printf(&whole, "%s" INDEXED, comma, i);
        buf_printf(&pieces, "%s{\"tool_calls\": [" INDEXED "]}, {\"tool_calls\": [" INDEXED "]}",
                   comma, i, i);
        if (i < 8)
            buf_printf(&want, "%d:fresh-%d:f ", i, i);
    }
    buf_puts(&whole, "]}");
    buf_puts(&pieces, "]");
    buf_add_c(&whole, 0);
    buf_add_c(&pieces, 0);
    buf_add_c(&want, 0);
    expect_told("[]", whole.p, want.p, WITHHELD);
    expect_told("[]", pieces.p, want.p, WITHHELD);
    buf_done(&whole);
    buf_done(&pieces);
    buf_done(&want);
}

/* --- however the ids are cut --- */

/* What is reported of one answer: the texts, joined by kind, and the calls in order. */
struct heard {
    struct buf text, reasoning, calls;
};

static void hear_text(void *ctx, uint32_t index, struct str delta)
{
    (void)index;
    buf_add_str(&((struct heard *)ctx)->text, delta);
}

static void hear_reasoning(void *ctx, uint32_t index, struct str delta)
{
    (void)index;
    buf_add_str(&((struct heard *)ctx)->reasoning, delta);
}

static void hear_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    (void)id;
    (void)index;
    buf_printf(&((struct heard *)ctx)->calls, "\n%u %.*s ", tool, (int)name.len, name.p);
}

static void hear_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    (void)index;
    (void)tool;
    buf_add_str(&((struct heard *)ctx)->calls, delta);
}

static void heard_done(struct heard *h)
{
    buf_done(&h->text);
    buf_done(&h->reasoning);
    buf_done(&h->calls);
}

/* Feeds `said`, one id for each byte, `step` ids at a time. 0: all at once, but each is checked, as
 * after a turn that ends with an id of text. Returns the number of thought tokens. */
static uint32_t hear(const struct tokenizer *tokenizer, const struct parser_options *parser,
                     struct str said, size_t step, struct heard *ret)
{
    static const int32_t text_id = 1;
    static const struct answer_sink sink = {.text = hear_text,
                                            .reasoning = hear_reasoning,
                                            .tool_begin = hear_begin,
                                            .tool_args = hear_args,
                                            .tool_end = on_end};
    int fresh = 0;
    struct sampled_answer_options o = {.tokenizer = tokenizer,
                                       .max_calls = 8,
                                       .parser = parser,
                                       .sink = &sink,
                                       .sink_ctx = ret,
                                       .fresh_id = fresh_id,
                                       .fresh_ctx = &fresh,
                                       .stop_ids = &text_id,
                                       .n_stop_ids = step == 0};
    struct sampled_answer answer;
    int32_t ids[1024];
    uint32_t thought;

    if (step == 0)
        step = said.len;

    for (size_t i = 0; i < said.len; i++)
        ids[i] = (unsigned char)said.p[i];
    sampled_answer_init(&answer, &o);
    for (size_t i = 0; i < said.len; i += step)
        sampled_answer_feed(&answer, (struct token_span){ids + i, MIN_OF(step, said.len - i)});
    sampled_answer_finish(&answer, (struct token_span){ids, said.len}, -1);
    thought = answer.reasoning_tokens;
    sampled_answer_done(&answer);
    return thought;
}

static void expect_same(const struct tokenizer *tokenizer, const struct parser_options *parser,
                        struct str said)
{
    const size_t steps[] = {1, 7, said.len};
    struct heard want = {0};
    uint32_t thought = hear(tokenizer, parser, said, 0, &want);

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct heard got = {0};
        uint32_t n = hear(tokenizer, parser, said, steps[i], &got);

        cr_expect(n == thought && str_eq(buf_str(&want.text), buf_str(&got.text)) &&
                      str_eq(buf_str(&want.reasoning), buf_str(&got.reasoning)) &&
                      str_eq(buf_str(&want.calls), buf_str(&got.calls)),
                  "tools %d, thoughts %d: %u tokens thought, %u by %zu ids, of: %.*s", parser->tool,
                  parser->reasoning, thought, n, steps[i], (int)said.len, said.p);
        heard_done(&got);
    }
    heard_done(&want);
}

/* Marks of several families, parts of marks, and plain text. */
static const char *const PARTS[] = {"<think>",
                                    "</think>",
                                    "\n",
                                    " ",
                                    "plain text ",
                                    "a < b ",
                                    "<tool_call>",
                                    "</tool_call>",
                                    "{\"name\": \"f\", \"arguments\": {}}",
                                    "[THINK]",
                                    "[/THINK]",
                                    "<|tool_call>",
                                    "[f(x=1)]",
                                    "</",
                                    "more words, ",
                                    "\xc3\xa4rger ",
                                    "\xf0\x9f\x99",
                                    "over as many words as are taken at once, and then more"};

TEST(sampled_answer, thoughts_are_counted_alike_however_the_ids_are_cut)
{
    struct tokenizer *tokenizer = tokenizer_builtin();
    uint64_t seed = 7;

    for (int reasoning = REASONING_NONE; reasoning < REASONING_KIND_COUNT; reasoning++) {
        for (int i = 0; i < 200; i++) {
            struct parser_options parser = {.tool = (enum tool_kind)(i % TOOL_KIND_COUNT),
                                            .reasoning = (enum reasoning_kind)reasoning,
                                            .thought = reasoning == REASONING_NONE
                                                           ? THOUGHT_MAYBE
                                                           : (enum thought_state)(i % 3),
                                            .hold_bytes = 64};
            struct buf said = {0};

            for (int k = 0; k < 9; k++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                buf_puts(&said, PARTS[(seed >> 33) % ARRAY_LEN(PARTS)]);
            }
            expect_same(tokenizer, &parser, buf_str(&said));
            buf_done(&said);
        }
    }
    tokenizer_free(tokenizer);
}
