/*
 * No event is held longer than its parser needs: for every family, a thought, a text and a call
 * with long arguments are fed in random pieces, and after each piece what has come out is compared
 * with what had been fed. Behind a call's first hold_bytes only what may still become a mark, a
 * piece of an escape or a number may be missing.
 */
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/parsers/parser.h"

enum {
    PAYLOAD_BYTES = 16000, /* 4,000 tokens of four letters */
    MARK_BYTES = 96,       /* the longest mark, with the white space around it */
    ROUNDS = 40,
};

/* before, payload (letters, blanks, '<' and newlines where the form takes them), behind. */
static const struct form {
    enum tool_kind kind;
    const char *before, *behind;
    bool raw; /* newlines and quotes may stand in the payload as they are */
} forms[] = {
    {TOOL_HERMES, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</tool_call>", false},
    {TOOL_QWEN3_CODER, "<tool_call>\n<function=write>\n<parameter=content>\n",
     "\n</parameter>\n</function>\n</tool_call>", true},
    {TOOL_QWEN3_CODER, "<tool_call>\n<function=read_file>\n<parameter=lines>\n[\"",
     "\"]\n</parameter>\n</function>\n</tool_call>", false},
    {TOOL_LLAMA3_JSON, "{\"name\": \"write\", \"parameters\": {\"content\": \"", "\"}}", false},
    {TOOL_PYTHONIC, "[write(content=\"", "\")]", false},
    {TOOL_PYTHONIC, "[write(content=[{'a': '", "'}, 1])]", false},
    {TOOL_MISTRAL, "[TOOL_CALLS]write[ARGS]{\"content\": \"", "\"}", false},
    {TOOL_MISTRAL, "[TOOL_CALLS] [{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_DEEPSEEK_V3,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write\n```json\n{"
     "\"content\":"
     "\"",
     "\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
    {TOOL_DEEPSEEK_V31,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write<｜tool▁sep｜>{\"content\": \"",
     "\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", false},
    {TOOL_DEEPSEEK_V32,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter "
     "name=\"content\" "
     "string=\"true\">",
     "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", true},
    {TOOL_DEEPSEEK_V32,
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"read_file\">\n<｜DSML｜parameter "
     "name=\"filter\" string=\"false\">{\"k\": \"",
     "\"}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", false},
    {TOOL_GLM45, "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call>", true},
    {TOOL_GLM47, "<tool_call>write<arg_key>other</arg_key><arg_value>[\"",
     "\"]</arg_value></tool_call>", false},
    {TOOL_KIMI_K2,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>"
     "{\"content\": \"",
     "\"}<|tool_call_end|><|tool_calls_section_end|>", false},
    {TOOL_GPT_OSS,
     "<|channel|>commentary to=functions.write <|constrain|>json<|message|>{\"content\": \"",
     "\"}<|call|>", false},
    {TOOL_MINIMAX_M2, "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"content\">",
     "</parameter>\n</invoke>\n</minimax:tool_call>", true},
    {TOOL_MINIMAX_M3,
     "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"write\">]<]minimax[>[<content>",
     "]<]minimax[>[</content>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>", true},
    {TOOL_GEMMA4, "<|tool_call>call:write{content:<|\"|>", "<|\"|>}<tool_call|>", true},
    {TOOL_FUNCTIONGEMMA, "<start_function_call>call:write{content:<escape>",
     "<escape>}<end_function_call>", true},
    {TOOL_COHERE,
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"write\", \"parameters\": "
     "{\"content\": \"",
     "\"}}]<|END_ACTION|>", false},
    {TOOL_LFM2, "<|tool_call_start|>[write(content=\"", "\")]<|tool_call_end|>", false},
    {TOOL_OLMO3, "<function_calls>\nwrite(content=\"", "\")\n</function_calls>", false},
    {TOOL_KIMI_K3,
     "<|open|>tools<|sep|><|open|>call tool=\"write\" index=\"1\"<|sep|><|open|>argument "
     "key=\"content\" type=\"string\"<|sep|>",
     "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>", true},
    {TOOL_JAMBA, "<tool_calls>[{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}]</tool_calls>", false},
    {TOOL_HY_V3, "<tool_calls><tool_call>write<tool_sep>\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call></tool_calls>", true},
    {TOOL_HY_V4,
     "<tool_calls:opensource><tool_call:opensource>write<arg_key:opensource>content"
     "</arg_key:opensource><arg_value:opensource>",
     "</arg_value:opensource></tool_call:opensource></tool_calls:opensource>", true},
    {TOOL_GRANITE, "<|tool_call|>[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_GRANITE_20B_FC, "<function_call> {\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}", false},
    {TOOL_NEMOTRON_NANO_V2, "<TOOLCALL>[{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}]</TOOLCALL>", false},
    {TOOL_SEED_OSS, "<seed:tool_call>\n<function=write>\n<parameter=content>",
     "</parameter>\n</function>\n</seed:tool_call>", true},
    {TOOL_PHI4_MINI, "functools[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_INTERNLM,
     "<|action_start|><|plugin|>\n{\"name\": \"write\", \"parameters\": {\"content\": \"",
     "\"}}<|action_end|>", false},
    {TOOL_ERNIE45, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</tool_call>", false},
    {TOOL_STEP3,
     "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke "
     "name=\"write\"><steptml:parameter name=\"content\">",
     "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>", true},
    {TOOL_XLAM, "[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]", false},
    {TOOL_APERTUS, "<|tools_prefix|>[{\"write\": {\"content\": \"", "\"}}]<|tools_suffix|>", false},
    {TOOL_GIGACHAT3,
     "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"write\", \"arguments\": "
     "{\"content\": \"",
     "\"}}", false},
    {TOOL_GIGACHAT35,
     "<｜GCML｜tool_calls>\n<｜GCML｜invoke name=\"write\">\n<｜GCML｜parameter "
     "name=\"content\" string=\"true\">",
     "</｜GCML｜parameter>\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>", true},
    {TOOL_SOLAR,
     "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>write<|tool_call:args|>{\"content\": \"",
     "\"}<|tool_call:end|>", false},
    {TOOL_SOLAR2, "<|tool_call:start|>write\n<|tool_arg:start|>content<|tool_arg:value|>",
     "<|tool_arg:end|>\n<|tool_call:end|>", true},
    {TOOL_INKLING, "write<|content_invoke_tool_json|>{\"name\":\"write\",\"args\":{\"content\":\"",
     "\"}}<|end_message|>", false},
    {TOOL_LONGCAT, "<longcat_tool_call>\n{\"name\": \"write\", \"arguments\": {\"content\": \"",
     "\"}}\n</longcat_tool_call>", false},
    {TOOL_DEEPSEEK_V41,
     "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"write\">\n<｜DSML｜ parameter "
     "name=\"content\" string=\"true\">",
     "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", true},
    {TOOL_GLM53_FLASH, "<tool_call>write>{\"content\": \"", "\"}</tool_call>", false},
    {TOOL_HYPERCLOVAX, "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>",
     "</arg_value>\n</tool_call>", true},
    {TOOL_HYPERCLOVAX_14B,
     " -> tool/function_call\n[{\"name\": \"write\", \"arguments\": {\"content\": \"", "\"}}]",
     false},
    {TOOL_FUNCTIONARY, "<function=write>{\"content\": \"", "\"}</function>", false},
    {TOOL_FUNCTIONARY_V32, "write\n{\"content\": \"", "\"}", false},
    {TOOL_DOTS, "<dots_function_call><invoke name=\"write\"><parameter name=\"content\">",
     "</parameter></invoke></dots_function_call>", true},
    {TOOL_K2_HORIZON,
     "<ifm|tool_calls><ifm|tool_call>write\n<ifm|arg_key>content</ifm|arg_key>\n<ifm|arg_value>",
     "</ifm|arg_value>\n</ifm|tool_call></ifm|tool_calls>", true},
    {TOOL_IQUEST_Q1, "<iquest_tool_call>write\n<arg_key>content</arg_key><arg_value>",
     "</arg_value></iquest_tool_call>", true},
    {TOOL_PLAMO3,
     "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
     "<|plamo:begin_tool_name:plamo|>write<|plamo:end_tool_name:plamo|>"
     "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{\"content\": \"",
     "\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
     "<|plamo:end_tool_requests:plamo|>",
     false},
    {TOOL_MUSE,
     "<atem:function_calls>\n<atem:invoke name=\"write\">\n<atem:parameter name=\"content\">",
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", true},
    /* Values in XML wait for their end: CDATA, entities and white space around them count. */
    {TOOL_MINICPM5, "<function name=\"read_file\"><param name=\"lines\">[\"",
     "\"]</param></function>", false},
};

static struct arena arena;
static uint32_t rng = 4711;

static uint32_t next_random(void)
{
    rng = rng * 1664525u + 1013904223u;
    return rng >> 8;
}

struct seen {
    size_t text, thought, args; /* bytes */
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
    size_t from, to; /* of what is watched, in the text */
    size_t hold;     /* bytes that may be missing while no more have been fed */
};

/* Feeds text in random pieces; `*count` must never lag more than a mark behind, once more than
 * b->hold has been fed. */
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

static void one_call(const struct form *f, size_t hold, const struct json *tools)
{
    struct seen s = {0};
    struct buf text = {0};
    struct parser_options o = {.tool = f->kind, .hold_bytes = hold, .tools = tools};
    struct parser *p = parser_new(&o, (struct parse_sink){on_event, &s});
    struct bounds b = {.hold = f->kind == TOOL_MINICPM5 ? SIZE_MAX : hold};

    /* Arguments that are composed are longer than the payload by what stands before it,
     * and never shorter. */
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

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        met[forms[i].kind] = true;
        for (int k = 0; k < ROUNDS; k++) {
            one_call(&forms[i], 0, tools);
            one_call(&forms[i], PARSER_HOLD_BYTES, tools);
        }
    }
    for (int kind = TOOL_NONE + 1; kind < TOOL_KIND_COUNT; kind++)
        cr_assert(met[kind], "%s", tool_kind_name((enum tool_kind)kind));
    arena_done(&arena);
}

/* Text and thoughts wait for nothing but a mark. */
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
