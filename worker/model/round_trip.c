#include "worker/model/round_trip.h"

#include "worker/parsers/parser.h"

#define TOOL_NAME "rg_round_trip"
#define ARGUMENTS "{\"city\": \"Rgville\"}"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL_NAME "\",\"description\":\"x\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"description\":\"x\"}},\"required\":[\"city\"]}}}]";

static const char messages_text[] =
    "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\","
    "\"tool_calls\":[{\"id\":\"rgcall001\",\"type\":\"function\",\"function\":{\"name\":"
    "\"" TOOL_NAME "\",\"arguments\":\"{\\\"city\\\": \\\"Rgville\\\"}\"}}]}]";

/* What a template made of one call. */
struct call_sample {
    const struct json *tools;
    struct buf before, prompt,
        whole;       /* without the call, with the generation prompt, with the call */
    struct str body; /* what the model would have written, the turn's close too */
    struct str tail; /* the generation prompt, as far as it stands before the body */
};

struct read_back {
    struct buf name, arguments;
    int calls;
    bool broken;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct read_back *r = ctx;

    r->calls += ev->kind == PARSE_CALL_BEGIN;
    r->broken = r->broken || ev->broken;
    if (ev->kind == PARSE_CALL_BEGIN)
        buf_add_str(&r->name, ev->text);
    if (ev->kind == PARSE_CALL_ARGS)
        buf_add_str(&r->arguments, ev->text);
}

/* The body begins behind the generation prompt, or behind as much of it as the template writes in
 * front of a finished turn: up to the end of a mark or a line. */
static void cut_body(struct call_sample *x)
{
    struct str whole = buf_str(&x->whole), prompt = buf_str(&x->prompt);
    size_t same = 0, keep;

    while (same < prompt.len && same < whole.len && prompt.p[same] == whole.p[same])
        same++;
    keep = same;
    if (same < prompt.len)
        while (keep > x->before.len && !strchr("\n> :]", prompt.p[keep - 1]))
            keep--;
    x->body = str_sub(whole, keep, whole.len);
    x->tail = str_sub(prompt, MIN_OF(x->before.len, keep), keep - MIN_OF(x->before.len, keep));
}

static bool render_call(const struct model *m, struct arena *a, struct call_sample *x)
{
    const struct json *messages;
    struct rendering r = {.n = 1};

    if (json_parse(a, str_cstr(tools_text), &x->tools, NULL) != 0 ||
        json_parse(a, str_cstr(messages_text), &messages, NULL) != 0)
        return false;
    r.messages = messages->items;
    r.tools = x->tools;
    if (model_text(m, a, &r, &x->before, NULL) != 0)
        return false;
    r.generation_prompt = true;
    if (model_text(m, a, &r, &x->prompt, NULL) != 0)
        return false;
    r.generation_prompt = false;
    r.n = 2;
    if (model_text(m, a, &r, &x->whole, NULL) != 0)
        return false;
    cut_body(x);
    return str_find(x->body, STR(TOOL_NAME), 0) != SIZE_MAX;
}

static void sample_done(struct call_sample *x)
{
    buf_done(&x->before);
    buf_done(&x->prompt);
    buf_done(&x->whole);
}

static bool reads(const struct call_sample *x, enum tool_kind tool, enum reasoning_kind reasoning)
{
    struct parser_options o = {.tool = tool,
                               .reasoning = reasoning,
                               .thought = parser_thought(reasoning, x->tail),
                               .hold_bytes = SIZE_MAX,
                               .tools = x->tools};
    struct read_back r = {.calls = 0};
    struct parser *p = parser_new(&o, (struct parse_sink){on_event, &r});
    const struct json *got, *want;
    struct arena a = {0};
    bool same;

    parser_feed(p, x->body);
    parser_finish(p);
    parser_free(p);
    same = r.calls == 1 && !r.broken && str_eq_c(buf_str(&r.name), TOOL_NAME) &&
           json_parse(&a, buf_str(&r.arguments), &got, NULL) == 0 &&
           json_parse(&a, STR(ARGUMENTS), &want, NULL) == 0 && json_equal(got, want);
    arena_done(&a);
    buf_done(&r.name);
    buf_done(&r.arguments);
    return same;
}

enum round_trip round_trip(const struct model *m, struct model_scratch *s, enum tool_kind tool,
                           enum reasoning_kind reasoning)
{
    struct call_sample x = {.tools = NULL};
    enum round_trip r = ROUND_TRIP_UNSEEN;

    arena_reset(&s->arena);
    if (render_call(m, &s->arena, &x))
        r = reads(&x, tool, reasoning) ? ROUND_TRIP_EXACT : ROUND_TRIP_LOST;
    sample_done(&x);
    return r;
}

void round_trip_choose(struct model *m, struct model_scratch *s)
{
    enum reasoning_kind reasoning = REASONING_NONE;
    enum tool_kind tool = TOOL_NONE;
    struct call_sample x = {.tools = NULL};

    (void)tool_kind_named(str_cstr(m->info.tool_parser), &tool);
    (void)reasoning_kind_named(str_cstr(m->info.reasoning_parser), &reasoning);
    arena_reset(&s->arena);
    if (render_call(m, &s->arena, &x) && !reads(&x, tool, reasoning)) {
        for (int k = TOOL_NONE + 1; k < TOOL_KIND_COUNT; k++) {
            if (!reads(&x, (enum tool_kind)k, reasoning))
                continue;
            buf_printf(&m->notes,
                       "the template's own tool calls are not read by the parser that its marks "
                       "suggest (%s) but by %s, which is taken\n",
                       m->info.tool_parser, tool_kind_name((enum tool_kind)k));
            m->info.tool_parser = tool_kind_name((enum tool_kind)k);
            break;
        }
    }
    sample_done(&x);
}
