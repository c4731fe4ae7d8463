/* A listener that joins a running answer gets everything from before, in steps between which the
 * answer grows, and then new pieces. */
#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/tokens/tokenizer.h"

enum { CALLS = 3 };

/* What a listener received. */
struct heard {
    bool away; /* it receives no pieces while they arrive */
    struct buf text, reasoning, args[CALLS];
    int ends[CALLS];
    size_t pieces;
};

static void add(struct heard *h, struct buf *b, struct str said)
{
    cr_expect(utf8_valid(said), "whole characters");
    buf_add_str(b, said);
    h->pieces++;
}

static void on_text(void *ctx, uint32_t index, struct str delta)
{
    struct heard *h = ctx;

    (void)index;
    if (!h->away)
        add(h, &h->text, delta);
}

static void on_reasoning(void *ctx, uint32_t index, struct str delta)
{
    struct heard *h = ctx;

    (void)index;
    if (!h->away)
        add(h, &h->reasoning, delta);
}

static void on_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    struct heard *h = ctx;

    (void)index;
    (void)id;
    cr_assert_lt(tool, CALLS);
    if (h->away)
        return;
    cr_expect_eq(h->args[tool].len, 0, "begun once");
    add(h, &h->args[tool], name);
    add(h, &h->args[tool], STR(":"));
}

static void on_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    struct heard *h = ctx;

    (void)index;
    if (!h->away)
        add(h, &h->args[tool], delta);
}

static void on_end(void *ctx, uint32_t index, uint32_t tool)
{
    struct heard *h = ctx;

    (void)index;
    if (!h->away)
        h->ends[tool]++;
}

static const struct answer_sink sink = {.text = on_text,
                                        .reasoning = on_reasoning,
                                        .tool_begin = on_begin,
                                        .tool_args = on_args,
                                        .tool_end = on_end};

/* Two listeners of one answer. The first one listens from the start. */
struct both {
    struct heard first, joins;
};

#define TO_BOTH(call, ...)             \
    do {                               \
        struct both *b_ = ctx;         \
        call(&b_->first, __VA_ARGS__); \
        call(&b_->joins, __VA_ARGS__); \
    } while (0)

static void both_text(void *ctx, uint32_t i, struct str s)
{
    TO_BOTH(on_text, i, s);
}

static void both_reasoning(void *ctx, uint32_t i, struct str s)
{
    TO_BOTH(on_reasoning, i, s);
}

static void both_begin(void *ctx, uint32_t i, uint32_t tool, struct str id, struct str name)
{
    TO_BOTH(on_begin, i, tool, id, name);
}

static void both_args(void *ctx, uint32_t i, uint32_t tool, struct str s)
{
    TO_BOTH(on_args, i, tool, s);
}

static void both_end(void *ctx, uint32_t i, uint32_t tool)
{
    TO_BOTH(on_end, i, tool);
}

static const struct answer_sink both_sink = {.text = both_text,
                                             .reasoning = both_reasoning,
                                             .tool_begin = both_begin,
                                             .tool_args = both_args,
                                             .tool_end = both_end};

/* Messages of an answer in normalised form. LONG: 300 bytes of characters with three bytes. */
#define L10 "\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac\u20ac"
#define LONG L10 L10 L10 L10 L10 L10 L10 L10 L10 L10
#define ARGS(i, text) \
    "{\"tool_calls\":[{\"index\":" #i ",\"function\":{\"arguments\":\"" text "\"}}]}"
#define BEGIN(i, name)                                                                      \
    "{\"tool_calls\":[{\"index\":" #i ",\"id\":\"" name "\",\"function\":{\"name\":\"" name \
    "\",\"arguments\":\"\"}}]}"

static const char *const PIECES[] = {
    "{\"reasoning_content\":\"" LONG "\"}",
    "{\"reasoning_content\":\"" LONG "\"}",
    "{\"content\":\"" LONG LONG "\"}",
    "{\"reasoning_content\":\"late\"}",
    "{\"content\":\"more\"}",
    BEGIN(0, "f"),
    ARGS(0, LONG LONG),
    ARGS(0, LONG),
    ARGS(0, LONG),
    BEGIN(1, "g"),
    ARGS(1, LONG),
    ARGS(1, LONG),
    BEGIN(2, "h"),
    ARGS(2, LONG LONG),
};

enum { N_PIECES = sizeof(PIECES) / sizeof(*PIECES) };

static void expect_same(const struct buf *a, const struct buf *b, const char *what, const char *at)
{
    cr_expect(str_eq(buf_str(a), buf_str(b)), "%s of %s: %zu and %zu bytes", what, at, a->len,
              b->len);
}

static void heard_done(struct heard *h)
{
    buf_done(&h->text);
    buf_done(&h->reasoning);
    for (int i = 0; i < CALLS; i++)
        buf_done(&h->args[i]);
}

/* Lets a listener join after `after` pieces. It gets the earlier ones in steps of `room`, with one
 * new piece between two steps. Returns the number of steps. */
static size_t join(size_t after, size_t room)
{
    struct tokenizer *tokenizer = tokenizer_builtin();
    struct parser_options parser = {.tool = TOOL_NONE};
    struct both b = {.joins.away = true};
    struct sampled_answer_options o = {.tokenizer = tokenizer,
                                       .max_calls = CALLS,
                                       .parser = &parser,
                                       .sink = &both_sink,
                                       .sink_ctx = &b};
    struct sampled_answer answer;
    struct repeat_place at = {0};
    struct arena a = {0};
    char how[64];
    size_t steps = 0;

    sampled_answer_init(&answer, &o);
    for (size_t i = 0; i < N_PIECES || b.joins.away; i++) {
        const struct json *said;
        struct err e = {0};

        if (i < N_PIECES) {
            cr_assert_eq(json_parse(&a, str_cstr(PIECES[i]), &said, &e), 0, "%s", e.text);
            sampled_answer_feed_message(&answer, said);
        }
        if (i + 1 >= after && b.joins.away) {
            size_t left = room;

            b.joins.away = false;
            b.joins.away = !sampled_answer_repeat(&answer, &at, &left, &sink, &b.joins);
            cr_expect_leq(left, room);
            steps++;
        }
    }
    sampled_answer_end_messages(&answer);
    (void)snprintf(how, sizeof(how), "joined behind %zu, %zu a step", after, room);
    expect_same(&b.first.text, &b.joins.text, "text", how);
    expect_same(&b.first.reasoning, &b.joins.reasoning, "reasoning", how);
    for (int i = 0; i < CALLS; i++)
        expect_same(&b.first.args[i], &b.joins.args[i], "a call", how);
    cr_expect_arr_eq(b.first.ends, b.joins.ends, sizeof(b.first.ends), "%s", how);
    sampled_answer_done(&answer);
    heard_done(&b.first);
    heard_done(&b.joins);
    arena_done(&a);
    tokenizer_free(tokenizer);
    return steps;
}

TEST(repeat, who_joins_hears_all_whenever_it_joins_and_in_whatever_steps)
{
    static const size_t rooms[] = {1, 2, 3, 5, 8, 20, 1000};

    for (size_t after = 1; after <= N_PIECES; after++)
        for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++)
            (void)join(after, rooms[i]);
}

TEST(repeat, a_step_tells_no_more_than_its_room)
{
    cr_expect_eq(join(5, 1000), 1);
    cr_expect_geq(join(5, 4), 5, "1,200 bytes of text, 256 a step");
}
