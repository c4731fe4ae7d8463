/* fuzz: rg_parsers */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/codec/json.h"
#include "worker/text/parsers/parser.h"

/*
 * Byte 0 tool kind, 1 reasoning kind (128: typed tools), 2 flags, 3 piece size; the rest is what
 * the model wrote. Fed whole and in pieces it must give the same message and lose no byte.
 */
struct seen {
    struct buf source, message;
    enum parse_kind last;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct seen *s = ctx;

    if (ev->kind == PARSE_TEXT || ev->kind == PARSE_REASONING || ev->kind == PARSE_SOURCE)
        buf_add_str(&s->source, ev->text);
    if (ev->kind == PARSE_SOURCE)
        return;
    /* Deltas of one kind in a row are one piece of the message. */
    if (ev->kind != s->last || ev->kind == PARSE_CALL_BEGIN || ev->kind == PARSE_CALL_END)
        buf_printf(&s->message, "\n%d %d %d ", (int)ev->kind, ev->call, ev->broken);
    s->last = ev->kind;
    buf_add_str(&s->message, ev->text);
    buf_add_str(&s->message, ev->id);
}

static struct seen run(const struct parser_options *o, struct str text, size_t piece)
{
    struct seen s = {.last = PARSE_SOURCE};
    struct parser *p = parser_new(o, (struct parse_sink){on_event, &s});

    for (size_t at = 0; at < text.len; at += piece)
        parser_feed(p, str_sub(text, at, piece));
    parser_finish(p);
    parser_free(p);
    return s;
}

/* Tools whose parameters have types, so that values are read as such. */
static const struct json *typed_tools(void)
{
    static struct arena a;
    static const struct json *tools;

    if (!tools)
        CHECK(json_parse(&a,
                         STR("[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":"
                             "\"string\"},\"l\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},"
                             "\"n\":{\"type\":\"integer\"}}}}]"),
                         &tools, NULL) == 0);
    return tools;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct parser_options o = {0};
    struct str text;
    struct seen whole;
    struct seen cut;

    if (size < 4)
        return 0;
    o.tool = (enum tool_kind)(data[0] % TOOL_KIND_COUNT);
    o.reasoning = (enum reasoning_kind)(data[1] % REASONING_KIND_COUNT);
    o.thought = data[2] & 1 ? THOUGHT_OPEN : THOUGHT_MAYBE;
    o.hold_bytes = data[2] & 2 ? SIZE_MAX : data[2] >> 2;
    o.tools = data[1] & 128 ? typed_tools() : NULL;
    text = str_of((const char *)data + 4, size - 4);
    whole = run(&o, text, text.len ? text.len : 1);
    cut = run(&o, text, 1 + data[3] % 16);
    CHECK(str_eq(buf_str(&whole.source), text));
    CHECK(str_eq(buf_str(&cut.source), text));
    CHECK(str_eq(buf_str(&whole.message), buf_str(&cut.message)));
    buf_done(&whole.source);
    buf_done(&whole.message);
    buf_done(&cut.source);
    buf_done(&cut.message);
    return 0;
}
