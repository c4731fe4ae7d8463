/*
 * The text of a model is read once, or a few times. In every family, whole or token by token, an
 * answer of twice the length costs twice as much, whatever its content.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call_texts.h"
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"
#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/parser.h"

/* An answer: `before`, `item` repeated, `behind`; fed in pieces of `piece` bytes. */
struct answer_text {
    struct parser_options o;
    const char *before, *item, *behind;
    size_t piece; /* 0: all at once */
    size_t events, warnings;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct answer_text *t = ctx;

    t->events++;
    t->warnings += ev->kind == PARSE_WARNING;
}

static struct cost read_answer(const void *ctx, uint32_t n)
{
    struct answer_text t = *(const struct answer_text *)ctx;
    struct parser *p = parser_new(&t.o, (struct parse_sink){on_event, &t});
    struct buf text = {0};
    double start;

    buf_puts(&text, t.before);
    for (uint32_t i = 0; i < n; i++)
        buf_puts(&text, t.item);
    buf_puts(&text, t.behind);
    start = cost_now_s();
    for (size_t at = 0, by = t.piece ? t.piece : text.len; at < text.len; at += by)
        parser_feed(p, str_sub(buf_str(&text), at, by));
    parser_finish(p);
    parser_free(p);
    start = cost_now_s() - start;
    cr_assert_leq(t.warnings, 8u, "%s: %zu warnings", t.item, t.warnings);
    buf_done(&text);
    return (struct cost){start, 0};
}

static void expect_read_once(struct answer_text *t, uint32_t n)
{
    char name[300];

    (void)snprintf(name, sizeof(name), "%s, %s: %s%s%s", tool_kind_name(t->o.tool),
                   reasoning_kind_name(t->o.reasoning), t->before, t->item, t->behind);
    expect_linear(name, read_answer, t, n);
}

/* --- white space --- */

/* Tests white space token by token, at positions where the parser waits for what follows it. */
static void blanks_behind(enum tool_kind tool, enum reasoning_kind reasoning, const char *before)
{
    struct answer_text t = {
        .o = {.tool = tool, .reasoning = reasoning, .hold_bytes = SIZE_MAX},
        .before = before,
        .item = " \n\t ",
        .behind = "",
        .piece = 4,
    };

    expect_read_once(&t, 1500);
    t.o.thought = THOUGHT_OPEN;
    expect_read_once(&t, 1500);
}

TEST(parser_growth, blanks_of_every_tool_parser)
{
    for (int kind = 0; kind < TOOL_KIND_COUNT; kind++) {
        blanks_behind((enum tool_kind)kind, REASONING_NONE, "");
        blanks_behind((enum tool_kind)kind, REASONING_QWEN3, "<think>");
        blanks_behind((enum tool_kind)kind, REASONING_QWEN3, "<think>x</think>");
    }
}

TEST(parser_growth, blanks_of_every_reasoning_parser)
{
    for (int kind = 0; kind < REASONING_KIND_COUNT; kind++) {
        blanks_behind(TOOL_NONE, (enum reasoning_kind)kind, "");
        blanks_behind(TOOL_HERMES, (enum reasoning_kind)kind, "");
        blanks_behind(TOOL_GPT_OSS, (enum reasoning_kind)kind,
                      "<|channel|>final<|message|>x<|end|>");
    }
}

/* Tests white space after each mark of a call, and in its value. */
TEST(parser_growth, blanks_within_calls)
{
    struct buf before = {0};

    for (size_t i = 0; i < ARRAY_LEN(call_texts); i++) {
        struct str all = str_cstr(call_texts[i].before);

        for (size_t at = 1; at <= all.len; at++) {
            if (at < all.len && !strchr(">]|{[\"':\n ", all.p[at - 1]))
                continue;
            buf_clear(&before);
            buf_add_str(&before, str_sub(all, 0, at));
            buf_add_c(&before, '\0');
            blanks_behind(call_texts[i].kind, REASONING_NONE, before.p);
        }
    }
    buf_done(&before);
}

/* --- calls that are none --- */

/* Many calls begin and none ends. Then a value ends, followed by text that no call may have there:
 * after each position of the end of a call. */
static void begun_calls(const struct call_text *c, const char *item)
{
    struct str all = str_cstr(c->behind);
    struct buf behind = {0};
    struct answer_text t = {
        .o = {.tool = c->kind, .hold_bytes = SIZE_MAX},
        .before = "",
        .item = item,
    };

    for (size_t at = 0; at <= all.len; at++) {
        if (at > 0 && at < all.len && !strchr(">]|}\"'", all.p[at - 1]))
            continue;
        buf_clear(&behind);
        buf_add_str(&behind, str_sub(all, 0, at));
        buf_add(&behind, "x", 2);
        t.behind = behind.p;
        for (t.piece = 0; t.piece <= 512; t.piece += 512)
            expect_read_once(&t, 150);
    }
    buf_done(&behind);
}

TEST(parser_growth, calls_that_begin_and_are_none)
{
    for (size_t i = 0; i < ARRAY_LEN(call_texts); i++)
        begun_calls(&call_texts[i], call_texts[i].before);
}

/* Values without quotes, and with marks that open and close a short value. */
TEST(parser_growth, words_that_are_open)
{
    static const struct call_text gemma = {TOOL_GEMMA4, "", "}<tool_call|>", true},
                                  google = {TOOL_FUNCTIONGEMMA, "", "}<end_function_call>", true},
                                  minimax = {TOOL_MINIMAX_M3, "",
                                             "]<]minimax[>[</a>]<]minimax[>[</invoke>", true};

    begun_calls(&gemma, "<|tool_call>call:write{a:x");
    begun_calls(&google, "<start_function_call>call:write{a:x");
    begun_calls(&minimax, "]<]minimax[>[<invoke name=\"write\">]<]minimax[>[<a>");
}

/* Each quote could close a broken text, whose rest is valid, or is not at the very end. */
TEST(parser_growth, quotes_that_may_close_a_broken_text)
{
    static const char *const items[] = {"'", "', ", "', a='x", "') ", "'), f(a='", "' 'y", "\\'"};
    static const char *const ends[] = {"')]<|tool_call_end|>", "'<|tool_call_end|>", "')", "x"};
    struct answer_text t = {.before = "<|tool_call_start|>[f(a='x 'y",
                            .o = {.tool = TOOL_LFM2, .hold_bytes = SIZE_MAX}};

    for (size_t i = 0; i < ARRAY_LEN(items) * ARRAY_LEN(ends); i++) {
        t.item = items[i / ARRAY_LEN(ends)];
        t.behind = ends[i % ARRAY_LEN(ends)];
        for (t.piece = 0; t.piece <= 512; t.piece += 512)
            expect_read_once(&t, 5000);
    }
}

/* Elements of a list that are not calls; each is skipped. */
TEST(parser_growth, bad_calls_of_a_list)
{
    static const char *const items[] = {"f(a=b'z'), ", "f(a=b'z'), f(), ", "f(a=b'", "f(a=b(["};
    static const char *const objects[] = {"{\"name\":\"f\",\"arguments\":[1]}, ",
                                          "{\"name\":\"f\",\"arguments\":[", "{\"name\":\"f\\"};
    struct answer_text t = {.o = {.hold_bytes = SIZE_MAX}, .behind = "f()]"};

    for (size_t i = 0; i < ARRAY_LEN(items) + ARRAY_LEN(objects); i++) {
        bool python = i < ARRAY_LEN(items);

        t.o.tool = python ? TOOL_PYTHONIC : TOOL_GRANITE;
        t.before = python ? "[" : "<|tool_call|>[";
        t.item = python ? items[i] : objects[i - ARRAY_LEN(items)];
        for (t.piece = 0; t.piece <= 512; t.piece += 512)
            expect_read_once(&t, 3000);
    }
}

/* Calls and text before the first false calls are unchanged. After a few short false calls the next
 * call is found. */
TEST(parser_growth, few_false_calls_hide_no_call)
{
    static const char call[] = "<tool_call>f\n<arg_key>a</arg_key><arg_value>b</arg_value>"
                               "</tool_call>";
    struct answer_text t = {.o = {.tool = TOOL_GLM45, .hold_bytes = SIZE_MAX}};
    struct parser *p = parser_new(&t.o, (struct parse_sink){on_event, &t});

    for (int i = 0; i < 2000; i++) {
        size_t was = t.events;

        parser_feed(p, STR("As <tool_call>f\n<arg_key>a</arg_key>x is none. "));
        parser_feed(p, str_of(call, sizeof(call) - 1));
        cr_assert_geq(t.events, was + 3, "%d", i);
    }
    parser_finish(p);
    parser_free(p);
    cr_assert_eq(t.warnings, 2u, "one, and how many: %zu", t.warnings);
}

/* --- values --- */

TEST(parser_growth, entities_and_sections_of_a_value)
{
    static const char *const items[] = {"&", "&#", "&#x", "<![CDATA[", "&amp", "\"", "\\"};
    struct answer_text t = {.before = "<function name=\"f\"><param name=\"a\">",
                            .behind = "</param></function>",
                            .o = {.tool = TOOL_MINICPM5, .hold_bytes = SIZE_MAX}};

    for (size_t i = 0; i < ARRAY_LEN(items); i++) {
        t.item = items[i];
        expect_read_once(&t, 2000);
    }
}

TEST(parser_growth, entities_are_read_as_before)
{
    struct buf out = {0};

    value_unescape_xml(&out, STR("&lt;&#65;&#x1F600;&#1114111;&#1114112;&#00000065;&#0000065;&;&#;"
                                 "<![CDATA[&lt;]]>&gt<![CDATA[<![CDATA["));
    cr_assert(
        str_eq(buf_str(&out), STR("<A\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf&#1114112;&#00000065;A&;&#;"
                                  "&lt;&gt<![CDATA[<![CDATA[")),
        "%.*s", (int)out.len, out.p);
    buf_done(&out);
}

TEST(parser_growth, escapes_of_a_value)
{
    struct buf out = {0};

    value_escape(&out, str_of("a\"b\\c\n\x01\0d\x7f", 10));
    value_escape(&out, STR(""));
    value_escape(&out, STR("\"\""));
    cr_assert(str_eq(buf_str(&out), STR("a\\\"b\\\\c\\n\\u0001\\u0000d\x7f\\\"\\\"")), "%.*s",
              (int)out.len, out.p);
    buf_done(&out);
}

/* --- tools --- */

/* A list of tools and an answer, each with a repeated part between guillemets. %u in it is its
 * number; in the answer the last one comes first. */
struct tools_text {
    enum tool_kind kind;
    const char *tools, *answer;
};

static void add_repeated(struct buf *b, const char *text, uint32_t n, bool backwards)
{
    struct str all = str_cstr(text), open = STR("«"), close = STR("»"), number = STR("%u");
    size_t at = str_find(all, open, 0), end = str_find(all, close, 0);
    struct str item;

    cr_assert(at < end && end < all.len, "%s", text);
    item = str_sub(all, at + open.len, end - at - open.len);
    buf_add_str(b, str_sub(all, 0, at));
    for (uint32_t i = 0; i < n; i++) {
        buf_puts(b, i && !backwards ? "," : "");
        for (size_t k = 0; k < item.len; k++) {
            if (!str_starts(str_sub(item, k, item.len), number)) {
                buf_add_c(b, item.p[k]);
                continue;
            }
            buf_printf(b, "%u", 100000 + (backwards ? n - 1 - i : i));
            k++;
        }
    }
    buf_add_str(b, str_sub(all, end + close.len, all.len));
}

static struct cost read_calls(const void *ctx, uint32_t n)
{
    const struct tools_text *t = ctx;
    struct answer_text seen = {.item = t->answer,
                               .o = {.tool = t->kind, .hold_bytes = PARSER_HOLD_BYTES}};
    struct arena a = {0};
    struct buf tools = {0}, text = {0};
    struct parser *p;
    double start;

    add_repeated(&tools, t->tools, n, false);
    add_repeated(&text, t->answer, n, true);
    cr_assert_eq(json_parse(&a, buf_str(&tools), &seen.o.tools, NULL), 0, "%s", t->tools);
    start = cost_now_s();
    p = parser_new(&seen.o, (struct parse_sink){on_event, &seen});
    for (size_t at = 0; at < text.len; at += 512)
        parser_feed(p, str_sub(buf_str(&text), at, 512));
    parser_finish(p);
    parser_free(p);
    start = cost_now_s() - start;
    cr_assert_eq(seen.warnings, 0u, "%s", t->answer);
    cr_assert_gt(seen.events, 3u, "%s", t->answer);
    arena_done(&a);
    buf_done(&tools);
    buf_done(&text);
    return (struct cost){start, 0};
}

#define NO_PARAMETERS "[«{\"name\":\"f%u\"}»]"
#define TYPED(more)                                                                                \
    "[{\"name\":\"f\",\"parameters\":{\"properties\":{«\"p%u\":{\"type\":\"integer\"}»}" more "}}" \
    "]"
#define OF_MANY_TYPES                                                                      \
    "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"p\":{\"enum\":[«%u»]},\"q\":{}," \
    "\"arguments\":{}}}}]"
#define NESTED "]<]minimax[>["

static const struct tools_text tools_texts[] = {
    /* many tools, each called */
    {TOOL_HERMES, NO_PARAMETERS, "«<tool_call>{\"name\":\"f%u\",\"arguments\":{}}</tool_call>»"},
    {TOOL_MISTRAL, NO_PARAMETERS, "«[TOOL_CALLS]f%u[ARGS]{}»"},
    {TOOL_QWEN3_CODER, NO_PARAMETERS,
     "«<tool_call><function=f%u><parameter=a>1</parameter></function></tool_call>»"},
    {TOOL_MUSE, NO_PARAMETERS, "«<atem:invoke name=\"f%u.f%u\"></atem:invoke>»"},
    {TOOL_PYTHONIC, NO_PARAMETERS, "[f100000(),«f%u(a=1),»f100000()]"},
    {TOOL_GEMMA4, NO_PARAMETERS, "«<|tool_call>call:f%u{a:1}<tool_call|>»"},
    {TOOL_MINIMAX_M3, NO_PARAMETERS,
     "«" NESTED "<invoke name=\"f%u\">" NESTED "<a>1" NESTED "</a>" NESTED "</invoke>»"},
    {TOOL_GPT_OSS, NO_PARAMETERS, "«<|channel|>commentary to=functions.f%u<|message|>{}<|call|>»"},
    {TOOL_FUNCTIONARY_V32, NO_PARAMETERS, "x«>>>f%u\n{}»"},
    /* many parameters */
    {TOOL_QWEN3_CODER, TYPED(""),
     "<tool_call><function=f>«<parameter=p%u>1</parameter>»</function></tool_call>"},
    {TOOL_GLM45, TYPED(""),
     "<tool_call>f\n«<arg_key>p%u</arg_key><arg_value>1</arg_value>»</tool_call>"},
    {TOOL_PYTHONIC, TYPED(""), "[f(«p%u=1 »)]"},
    {TOOL_FUNCTIONGEMMA, TYPED(""),
     "<start_function_call>call:f{q:<escape>1<escape>«,p%u:<escape>1<escape>»}"
     "<end_function_call>"},
    {TOOL_MINIMAX_M3, TYPED(""),
     NESTED "<invoke name=\"f\">«" NESTED "<p%u>1" NESTED "</p%u>»" NESTED "</invoke>"},
    {TOOL_MINIMAX_M3,
     "[{\"name\":\"f\",\"parameters\":{\"anyOf\":[«{\"properties\":{\"p%u\":{}}}»]}}]",
     NESTED "<invoke name=\"f\">«" NESTED "<p%u>1" NESTED "</p%u>»" NESTED "</invoke>"},
    {TOOL_DEEPSEEK_V32, TYPED(""),
     "«<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"arguments\" string=\"false\">"
     "{\"p%u\": 1}</｜DSML｜parameter></｜DSML｜invoke>»"},
    /* a parameter of many types */
    {TOOL_SEED_OSS, OF_MANY_TYPES,
     "«<seed:tool_call><function=f><parameter=p>%u</parameter></function></seed:tool_call>»"},
    {TOOL_PYTHONIC, OF_MANY_TYPES, "[f(q=1),«f(p=%u),»f(q=1)]"},
    {TOOL_MINIMAX_M3, OF_MANY_TYPES,
     NESTED "<invoke name=\"f\">" NESTED "<q>«" NESTED "<p>%u" NESTED "</p>»" NESTED "</q>" NESTED
            "</invoke>"},
};

TEST(parser_growth, tools_are_found_without_a_walk)
{
    for (size_t i = 0; i < ARRAY_LEN(tools_texts); i++)
        expect_linear(tools_texts[i].answer, read_calls, &tools_texts[i], 500);
}

/* A call whose id is only a number belongs to the only tool that accepts its arguments. All tools
 * are checked for a limited number of calls. Later ones are not calls. */
static struct cost read_nameless(const void *ctx, uint32_t n)
{
    struct answer_text seen = {.o = {.tool = TOOL_KIMI_K2, .hold_bytes = SIZE_MAX}};
    struct arena a = {0};
    struct buf tools = {0};
    struct parser *p;
    double start;

    (void)ctx;
    add_repeated(&tools,
                 "[«{\"name\":\"f%u\",\"parameters\":{\"properties\":{\"a\":{},\"b%u\":{}}}}»]", n,
                 false);
    cr_assert_eq(json_parse(&a, buf_str(&tools), &seen.o.tools, NULL), 0);
    start = cost_now_s();
    p = parser_new(&seen.o, (struct parse_sink){on_event, &seen});
    for (uint32_t i = 0; i < n; i++)
        parser_feed(p, STR("<|tool_call_begin|>0<|tool_call_argument_begin|>{\"b100001\": 1}"
                           "<|tool_call_end|>"));
    parser_finish(p);
    parser_free(p);
    start = cost_now_s() - start;
    arena_done(&a);
    buf_done(&tools);
    return (struct cost){start, 0};
}

TEST(parser_growth, calls_without_a_name)
{
    expect_linear("bare numbers", read_nameless, NULL, 500);
}
