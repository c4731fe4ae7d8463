/*
 * No event is held longer than its parser needs. For every family, a thought, a text and a call
 * with long arguments are fed in random pieces. After each piece the output is compared with the
 * input. After a call's first hold_bytes, only text that may become a mark, a part of an escape or
 * a number may be missing.
 */
#include "call_texts.h"
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/text/parsers/parser.h"

enum {
    PAYLOAD_BYTES = 16000, /* 4,000 tokens of four letters */
    MARK_BYTES = 96,       /* the longest mark, with the white space around it */
#ifdef __SANITIZE_ADDRESS__
    ROUNDS = 8,
#else
    ROUNDS = 40,
#endif
};

static struct arena arena;
static uint32_t rng = 4711;

static uint32_t next_random(void)
{
    rng = rng * 1664525u + 1013904223u;
    return rng >> 8;
}

struct seen {
    size_t text, thought, args; /* numbers of bytes that came out */
    int calls, broken, pieces;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct seen *s = ctx;

    s->text += ev->kind == PARSE_TEXT ? ev->text.len : 0;
    s->thought += ev->kind == PARSE_REASONING ? ev->text.len : 0;
    s->args += ev->kind == PARSE_CALL_ARGS ? ev->text.len : 0;
    s->pieces += ev->kind == PARSE_CALL_ARGS;
    s->calls += ev->kind == PARSE_CALL_END;
    s->broken += ev->broken;
}

static const struct json *tools_of(void)
{
    static const char text[] =
        "[{\"name\":\"write\",\"parameters\":{\"properties\":{\"content\":{\"type\":\"string\"}}}},"
        "{\"name\":\"read_file\",\"parameters\":{\"properties\":{\"lines\":{\"type\":\"array\"},"
        "\"filter\":{\"type\":\"object\"}}}}]";
    const struct json *v = NULL;

    cr_assert_eq(json_parse(&arena, str_cstr(text), &v, NULL), 0);
    return v;
}

static void add_payload(struct buf *b, size_t n, bool raw)
{
    static const char letters[] = "abc de fg hi jk lm no pq <rs [tu {vw ";

    for (size_t i = 0; i < n; i++) {
        uint32_t r = next_random();

        buf_add_c(b, raw && r % 61 == 0 ? '\n' : letters[r % (sizeof(letters) - 1)]);
    }
}

struct bounds {
    size_t from, to; /* range of the watched value in the text */
    size_t hold;     /* bytes that may be missing until more have been fed */
};

/* Feeds text in random pieces. `*count` must not lag by more than a mark after more than b->hold
 * bytes. */
static void feed(struct parser *p, const char *what, struct str text, const struct bounds *b,
                 const size_t *count)
{
    size_t piece = 1 + next_random() % 60;

    for (size_t at = 0; at < text.len;) {
        struct str part = str_sub(text, at, 1 + next_random() % piece);
        size_t fed;

        parser_feed(p, part);
        at += part.len;
        fed = MIN_OF(at, b->to);
        if (fed <= b->from)
            continue;
        fed -= b->from;
        cr_assert_leq(fed, *count + (fed > b->hold ? MARK_BYTES : b->hold), "%s: %zu fed, %zu out",
                      what, fed, *count);
    }
}

static void one_call(const struct call_text *f, size_t hold, const struct json *tools)
{
    struct seen s = {0};
    struct buf text = {0};
    struct parser_options o = {.tool = f->kind, .hold_bytes = hold, .tools = tools};
    struct parser *p = parser_new(&o, (struct parse_sink){on_event, &s});
    struct bounds b = {.hold = f->kind == TOOL_MINICPM5 ? SIZE_MAX : hold};

    /* Composed arguments are longer than the payload by the text before it, and never shorter. */
    buf_puts(&text, f->before);
    b.from = text.len;
    add_payload(&text, PAYLOAD_BYTES, f->raw);
    b.to = text.len;
    buf_puts(&text, f->behind);
    feed(p, tool_kind_name(f->kind), buf_str(&text), &b, &s.args);
    parser_finish(p);
    parser_free(p);
    cr_assert_eq(s.calls, 1, "%s", tool_kind_name(f->kind));
    cr_assert_eq(s.broken, 0);
    cr_assert_geq(s.args, (size_t)PAYLOAD_BYTES);
    if (f->kind != TOOL_MINICPM5)
        cr_assert_gt(s.pieces, 100, "%s: %d pieces", tool_kind_name(f->kind), s.pieces);
    buf_done(&text);
}

TEST(held, arguments_of_every_family_stream)
{
    const struct json *tools = tools_of();
    bool met[TOOL_KIND_COUNT] = {0};

    for (size_t i = 0; i < ARRAY_LEN(call_texts); i++) {
        met[call_texts[i].kind] = true;
        for (int k = 0; k < ROUNDS; k++) {
            one_call(&call_texts[i], 0, tools);
            one_call(&call_texts[i], PARSER_HOLD_BYTES, tools);
        }
    }
    for (int kind = TOOL_NONE + 1; kind < TOOL_KIND_COUNT; kind++)
        cr_assert(met[kind], "%s", tool_kind_name((enum tool_kind)kind));
    arena_done(&arena);
}

/* Text and thoughts wait only for a mark. */
TEST(held, text_and_thoughts_of_every_family_stream)
{
    for (int k = 0; k < TOOL_KIND_COUNT * REASONING_KIND_COUNT; k++) {
        struct parser_options o = {.tool = (enum tool_kind)(k % TOOL_KIND_COUNT),
                                   .reasoning = (enum reasoning_kind)(k / TOOL_KIND_COUNT),
                                   .thought = THOUGHT_OPEN};
        bool channels = o.tool == TOOL_GPT_OSS || o.reasoning == REASONING_HARMONY;
        struct seen s = {0};
        struct parser *p = parser_new(&o, (struct parse_sink){on_event, &s});
        struct bounds b = {0};
        struct buf text = {0};
        bool thinks = o.reasoning != REASONING_NONE;

        buf_puts(&text, !channels ? "Well. "
                        : thinks  ? "<|channel|>analysis<|message|>"
                                  : "<|channel|>final<|message|>");
        b.from = text.len;
        add_payload(&text, PAYLOAD_BYTES, true);
        b.to = text.len;
        feed(p, tool_kind_name(o.tool), buf_str(&text), &b, thinks ? &s.thought : &s.text);
        parser_finish(p);
        parser_free(p);
        cr_assert_geq(s.text + s.thought, (size_t)PAYLOAD_BYTES - MARK_BYTES);
        buf_done(&text);
    }
}
