/*
 * Grammars for engines. tests/blackbox/calls/test_constraints.py checks what they accept, with its
 * own reader. Here: every family's shortest forced answer is read as calls by its parser, and the
 * rules of the schema compiler.
 */
#include "common/base/arena.h"
#include "costs.h"
#include "testing.h"
#include "worker/text/parsers/gbnf_sample.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/parsers/schema_grammar.h"
#include "worker/text/parsers/tool_grammar.h"

static struct arena arena;

static const struct json *parsed(const char *text)
{
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(&arena, str_cstr(text), &v, &e), 0, "%s: %s", text, e.text);
    return v;
}

static const char all_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":"
    "{\"name\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":"
    "\"string\"},\"n\":{\"type\":\"integer\"},\"l\":{\"type\":\"array\",\"items\":{\"enum\":"
    "[\"a\",\"b\"]}},\"o\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"null\"}},"
    "\"required\":[\"x\"]},\"b\":{\"type\":\"boolean\"}},\"required\":[\"s\",\"n\",\"o\"]}}}]";

struct seen {
    int calls, broken, warnings;
    struct buf text, thought, name, args;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct seen *s = ctx;

    s->calls += ev->kind == PARSE_CALL_END;
    s->broken += ev->kind == PARSE_CALL_END && ev->broken;
    s->warnings += ev->kind == PARSE_WARNING;
    if (ev->kind == PARSE_TEXT)
        buf_add_str(&s->text, ev->text);
    if (ev->kind == PARSE_REASONING)
        buf_add_str(&s->thought, ev->text);
    if (ev->kind == PARSE_CALL_BEGIN)
        buf_add_str(&s->name, ev->text);
    if (ev->kind == PARSE_CALL_ARGS)
        buf_add_str(&s->args, ev->text);
}

static void seen_done(struct seen *s)
{
    buf_done(&s->text);
    buf_done(&s->thought);
    buf_done(&s->name);
    buf_done(&s->args);
}

static void sample(const struct tool_grammar *f, struct buf *out)
{
    struct buf grammar = {0};
    struct err e = {0};

    cr_assert_eq(tool_grammar_write(f, false, &grammar, &e), 0, "%s", e.text);
    cr_assert_eq(gbnf_sample(buf_str(&grammar), out, &e), 0, "%s: %s\n%.*s",
                 tool_kind_name(f->tool), e.text, (int)grammar.len, grammar.p);
    buf_done(&grammar);
}

static void read_sample(const struct tool_grammar *f, struct seen *s)
{
    struct buf text = {0};
    struct parser_options o = {.tool = f->tool,
                               .reasoning = f->reasoning,
                               .thought = f->thought,
                               .call_closes = f->required,
                               .hold_bytes = SIZE_MAX,
                               .tools = f->tools};
    struct parser *p = parser_new(&o, (struct parse_sink){on_event, s});

    sample(f, &text);
    parser_feed(p, buf_str(&text));
    parser_finish(p);
    parser_free(p);
    cr_assert_eq(s->warnings, 0, "%s: %.*s", tool_kind_name(f->tool), (int)text.len, text.p);
    buf_done(&text);
}

TEST(force, every_familys_forced_call_is_read_as_that_call)
{
    for (int kind = TOOL_NONE + 1; kind < TOOL_KIND_COUNT; kind++) {
        struct tool_grammar f = {.tool = (enum tool_kind)kind,
                                 .tools = parsed(all_tools),
                                 .allowed = parsed("[\"g\"]"),
                                 .required = true};
        struct seen s = {0};
        const struct json *args;

        read_sample(&f, &s);
        cr_assert_eq(s.calls, 1, "%s", tool_kind_name(f.tool));
        cr_assert_eq(s.broken, 0);
        cr_assert_eq(s.text.len, 0);
        cr_assert(str_eq_c(buf_str(&s.name), "g"));
        args = parsed(arena_cstr(&arena, buf_str(&s.args)));
        cr_assert(json_is(json_get(args, "s"), JSON_STRING), "%s", tool_kind_name(f.tool));
        cr_assert(json_is(json_get(args, "n"), JSON_NUMBER));
        cr_assert(json_is(json_get(json_get(args, "o"), "x"), JSON_NULL), "%s: %.*s",
                  tool_kind_name(f.tool), (int)s.args.len, s.args.p);
        cr_assert_null(json_get(args, "b"), "not required");
        seen_done(&s);
    }
    arena_done(&arena);
}

TEST(force, a_call_without_arguments)
{
    for (int kind = TOOL_NONE + 1; kind < TOOL_KIND_COUNT; kind++) {
        struct tool_grammar f = {.tool = (enum tool_kind)kind,
                                 .tools = parsed(all_tools),
                                 .allowed = parsed("[\"f\"]"),
                                 .single = true,
                                 .required = true};
        struct seen s = {0};

        read_sample(&f, &s);
        cr_assert_eq(s.calls, 1, "%s", tool_kind_name(f.tool));
        cr_assert(str_eq_c(buf_str(&s.args), "{}"), "%s: %.*s", tool_kind_name(f.tool),
                  (int)s.args.len, s.args.p);
        seen_done(&s);
    }
    arena_done(&arena);
}

TEST(force, the_constraint_stands_behind_the_thought)
{
    for (int kind = REASONING_NONE; kind < REASONING_KIND_COUNT; kind++) {
        struct tool_grammar f = {.tool = kind == REASONING_HARMONY ? TOOL_GPT_OSS : TOOL_HERMES,
                                 .reasoning = (enum reasoning_kind)kind,
                                 .tools = parsed(all_tools),
                                 .required = true};

        for (int t = THOUGHT_MAYBE; t <= THOUGHT_CLOSED; t++) {
            struct seen s = {0};

            f.thought = (enum thought_state)t;
            if (t == THOUGHT_MAYBE && parser_thought(f.reasoning, STR("")) == THOUGHT_OPEN)
                continue; /* no such prompt exists: theirs are open */
            read_sample(&f, &s);
            cr_assert_eq(s.calls, 1, "%s %d", reasoning_kind_name(f.reasoning), t);
            cr_assert_eq(s.text.len, 0);
            seen_done(&s);
        }
        f.json = true;
        f.required = false;
        f.tools = NULL;
        f.tool = TOOL_NONE;
        f.thought = parser_thought(f.reasoning, STR(""));
        struct seen s = {0};

        read_sample(&f, &s);
        cr_assert(str_eq_c(str_trim(buf_str(&s.text)), "{}"), "%s: %.*s",
                  reasoning_kind_name(f.reasoning), (int)s.text.len, s.text.p);
        seen_done(&s);
    }
    arena_done(&arena);
}

TEST(force, what_cannot_be_enforced_is_refused)
{
    struct tool_grammar f = {.tool = TOOL_NONE, .tools = parsed(all_tools), .required = true};
    struct buf out = {0};
    struct err e = {0};

    cr_assert_eq(tool_grammar_write(&f, false, &out, &e), -1);
    cr_assert_eq(e.kind, ERR_INVALID);
    cr_assert_eq(out.len, 0);
    arena_done(&arena);
}

/* --- schemas --- */

static void expect_sample(const char *schema, const char *want)
{
    struct tool_grammar f = {.json = true, .schema = parsed(schema)};
    struct buf text = {0};

    sample(&f, &text);
    cr_assert(str_eq_c(buf_str(&text), want), "%s: %.*s", schema, (int)text.len, text.p);
    buf_done(&text);
}

TEST(schema, shortest_values)
{
    expect_sample("{\"type\":\"object\",\"properties\":{\"a\":{\"const\":[1,\"x\"]},\"b\":{}},"
                  "\"required\":[\"a\"]}",
                  "{\"a\":[1,\"x\"]}");
    expect_sample("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":3}",
                  "[true,true,true]");
    expect_sample("{\"type\":\"string\",\"minLength\":3,\"maxLength\":5}", "\"aaa\"");
    expect_sample("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},"
                  "{\"properties\":{\"b\":{\"type\":\"integer\"}},\"required\":[\"b\"]}]}",
                  "{\"a\":null,\"b\":0}");
    expect_sample("{\"prefixItems\":[{\"const\":1},{\"enum\":[\"x\",\"y\"]}],\"items\":false}",
                  "[1,\"x\"]");
    expect_sample("{\"type\":\"string\",\"format\":\"date\"}", "\"0000-00-00\"");
    arena_done(&arena);
}

TEST(schema, references_may_recur)
{
    expect_sample("{\"$ref\":\"#/$defs/t~1x\",\"$defs\":{\"t/x\":{\"type\":\"object\","
                  "\"properties\":{\"v\":{\"type\":\"null\"},\"sub\":{\"type\":\"array\","
                  "\"items\":{\"$ref\":\"#/$defs/t~1x\"},\"minItems\":0}},"
                  "\"required\":[\"v\",\"sub\"]}}}",
                  "{\"v\":null,\"sub\":[]}");
    arena_done(&arena);
}

/* Circular schemas must end, and never make a rule that begins with itself. */
TEST(schema, hopeless_references_end)
{
    static const char *const schemas[] = {
        "{\"$ref\":\"#\"}",
        "{\"$ref\":\"#/nowhere\"}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"string\"}]}",
        "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"array\",\"items\":"
        "{\"$ref\":\"#/$defs/b\"}},{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"anyOf\":[{\"$ref\":"
        "\"#/$defs/a\"},{\"type\":\"string\"}]}}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        struct tool_grammar f = {.json = true, .schema = parsed(schemas[i])};
        struct buf text = {0};

        sample(&f, &text);
        cr_assert_gt(text.len, 0);
        buf_done(&text);
    }
    arena_done(&arena);
}

TEST(schema, endless_members_are_refused)
{
    struct tool_grammar f = {.json = true,
                             .schema = parsed("{\"allOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}")};
    struct buf out = {0};
    struct err e = {0};

    cr_assert_eq(tool_grammar_write(&f, false, &out, &e), -1);
    cr_assert_eq(e.kind, ERR_INVALID);
    arena_done(&arena);
}

TEST(gbnf, samples_of_foreign_grammars)
{
    struct buf out = {0};
    struct err e = {0};

    cr_assert_eq(gbnf_sample(STR("# words\nroot ::= (\"yes\" | \"no\")\n  [0-9]{2} b+ # end\n"
                                 "b ::= b \"x\" | [^a-z\\n] | \"\\u00e9\\x41\""),
                             &out, &e),
                 0, "%s", e.text);
    cr_assert(str_eq_c(buf_str(&out), "no000"), "%.*s", (int)out.len, out.p);
    buf_clear(&out);
    cr_assert_eq(gbnf_sample(STR("root ::= \"a\" root"), &out, &e), -1);
    cr_assert_eq(gbnf_sample(STR("root ::= ("), &out, &e), -1);
    cr_assert_eq(gbnf_sample(STR("start: \"a\""), &out, &e), -1);
    cr_assert_eq(gbnf_sample(STR("root ::= [\""), &out, &e), -1);
    buf_done(&out);
}

/* --- what schemas cost --- */

/* A schema of n members, alternatives or the like: its start, the texts before and after each
 * number, and its end; then the same for a second list, if it has one. */
struct shape {
    const char *name, *begin, *before, *behind, *end, *before_again, *behind_again, *end_again;
};

static void write_list(struct buf *text, uint32_t n, const char *before, const char *behind)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_puts(text, i ? "," : "");
        buf_puts(text, before);
        buf_printf(text, "%u", i);
        buf_puts(text, behind);
    }
}

static struct cost write_shape(const void *ctx, uint32_t n)
{
    const struct shape *shape = ctx;
    struct tool_grammar f = {.json = true};
    struct buf text = {0}, out = {0};
    struct arena a = {0};
    struct err e = {0};
    struct cost ret;

    buf_puts(&text, shape->begin);
    write_list(&text, n, shape->before, shape->behind);
    buf_puts(&text, shape->end);
    if (shape->end_again) {
        write_list(&text, n, shape->before_again, shape->behind_again);
        buf_puts(&text, shape->end_again);
    }
    cr_assert_eq(json_parse(&a, buf_str(&text), &f.schema, &e), 0, "%s", e.text);
    ret.seconds = -cost_now_s();
    (void)tool_grammar_write(&f, false, &out, &e); /* it may be too large */
    ret.seconds += cost_now_s();
    ret.bytes = 0;
    buf_done(&text);
    buf_done(&out);
    arena_done(&a);
    return ret;
}

TEST(tool_grammar, schemas_cost_their_length)
{
    static const struct shape shapes[] = {
        {"required members", "{\"type\":\"object\",\"properties\":{", "\"p",
         "\":{\"type\":\"string\"}", "},\"required\":[", "\"p", "\"", "]}"},
        {"values", "{\"enum\":[", "\"v", "\"", "]}", NULL, NULL, NULL},
        {"references to many", "{\"$defs\":{", "\"d", "\":{\"type\":\"string\"}", "},\"anyOf\":[",
         "{\"$ref\":\"#/$defs/d", "\"}", "]}"},
        {"references to one", "{\"$defs\":{\"e\":{\"type\":\"null\"},\"d\":{\"anyOf\":[",
         "{\"$ref\":\"#/$defs/e\",\"$id\":", "}", "]}},\"$ref\":\"#/$defs/d\"}", NULL, NULL, NULL},
        {"rules that begin with each other", "{\"$defs\":{", "\"d",
         "\":{\"anyOf\":[{\"$ref\":\"#/$defs/d0\"},{\"$ref\":\"#/$defs/d1\"},{\"$ref\":\"#/$defs/"
         "d7\"}]}",
         "},\"anyOf\":[", "{\"$ref\":\"#/$defs/d", "\"}", "]}"},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        expect_linear(shapes[i].name, write_shape, &shapes[i], i == 1 ? 2000 : 480);
}
