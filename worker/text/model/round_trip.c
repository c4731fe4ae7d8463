/*
 * The chat is rendered three times: the user's message alone, with the generation prompt, and with
 * the answer and its calls. The text that the third has after the second is what the model would
 * have written (cut_body). The parser gets it with the state of thought that the generation prompt
 * leaves. The name and the city of each call must be found again: odd words, which no template has
 * in its own text.
 *
 * If the parser that the marks suggest fails, all parsers are tried in the order of their table.
 */
#include "worker/text/model/round_trip.h"

#include "worker/text/parsers/parser.h"

#define TOOL_NAME "rg_round_trip"

static const char *const cities[ROUND_TRIP_CALLS_MAX] = {"Rgville", "Rgtown"};

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL_NAME "\",\"description\":\"x\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\","
    "\"description\":\"x\"}},\"required\":[\"city\"]}}}]";

/* Makes a user's message and an answer with n calls. */
static const struct json *make_talk(struct arena *a, uint32_t n)
{
    const struct json *ret = NULL;
    struct buf b = {0};

    buf_puts(&b, "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":"
                 "\"\",\"tool_calls\":[");
    for (uint32_t i = 0; i < n && i < ROUND_TRIP_CALLS_MAX; i++)
        buf_printf(&b,
                   "%s{\"id\":\"rgcall%03u\",\"type\":\"function\",\"function\":{\"name\":"
                   "\"" TOOL_NAME "\",\"arguments\":\"{\\\"city\\\": \\\"%s\\\"}\"}}",
                   i ? "," : "", i + 1, cities[i]);
    buf_puts(&b, "]}]");
    if (json_parse(a, arena_str(a, buf_str(&b)), &ret, NULL) != 0)
        ret = NULL;
    buf_done(&b);
    return ret;
}

/* Renderings of a template with calls. */
struct call_sample {
    const struct json *tools;
    uint32_t calls;
    struct buf before, prompt,
        whole;       /* without the answer, with the generation prompt, with the answer */
    struct str body; /* text that the model would have written, including the turn's close */
    struct str tail; /* the generation prompt, as far as it precedes the body */
};

struct read_back {
    struct buf name[ROUND_TRIP_CALLS_MAX], arguments[ROUND_TRIP_CALLS_MAX];
    uint32_t calls; /* least number of calls */
    bool broken;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct read_back *r = ctx;

    r->calls += ev->kind == PARSE_CALL_BEGIN;
    r->broken = r->broken || ev->broken;
    if (r->calls == 0 || r->calls > ROUND_TRIP_CALLS_MAX)
        return;
    if (ev->kind == PARSE_CALL_BEGIN)
        buf_add_str(&r->name[r->calls - 1], ev->text);
    if (ev->kind == PARSE_CALL_ARGS)
        buf_add_str(&r->arguments[r->calls - 1], ev->text);
}

/* Cuts the body off after the generation prompt. If the template writes only a beginning of that
 * prompt before a finished turn, cuts after that beginning, at the end of a mark or a line. */
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

/* Reports whether the name and the arguments of all calls are in the text. */
static bool writes_calls(struct str text, uint32_t n)
{
    bool all = str_find(text, STR(TOOL_NAME), 0) != SIZE_MAX;

    for (uint32_t i = 1; i < n && i < ROUND_TRIP_CALLS_MAX; i++)
        all = all && str_find(text, str_cstr(cities[i]), 0) != SIZE_MAX;
    return all;
}

static bool render_calls(const struct model *m, struct arena *a, struct call_sample *x)
{
    const struct json *messages = make_talk(a, x->calls);
    struct rendering r = {.n = 1};

    if (!messages || json_parse(a, str_cstr(tools_text), &x->tools, NULL) != 0)
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
    return writes_calls(x->body, x->calls);
}

static void sample_done(struct call_sample *x)
{
    buf_done(&x->before);
    buf_done(&x->prompt);
    buf_done(&x->whole);
}

static bool is_call(const struct read_back *r, uint32_t i)
{
    const struct json *got;
    struct arena a = {0};
    bool same = str_eq_c(buf_str(&r->name[i]), TOOL_NAME) &&
                json_parse(&a, buf_str(&r->arguments[i]), &got, NULL) == 0 &&
                json_is(got, JSON_OBJECT) && got->n == 1 &&
                str_eq_c(json_string(json_get(got, "city")), cities[i]);

    arena_done(&a);
    return same;
}

static enum round_trip reads_call_back(const struct call_sample *x, enum tool_kind tool,
                                       enum reasoning_kind reasoning)
{
    struct parser_options o = {.tool = tool,
                               .reasoning = reasoning,
                               .thought = parser_thought(reasoning, x->tail),
                               .hold_bytes = SIZE_MAX,
                               .tools = x->tools};
    struct read_back r = {.calls = 0};
    struct parser *p = parser_new(&o, (struct parse_sink){on_event, &r});
    bool same;

    parser_feed(p, x->body);
    parser_finish(p);
    parser_free(p);
    same = r.calls == x->calls && !r.broken;
    for (uint32_t i = 0; i < ROUND_TRIP_CALLS_MAX; i++) {
        same = same && (i >= x->calls || is_call(&r, i));
        buf_done(&r.name[i]);
        buf_done(&r.arguments[i]);
    }
    return same ? ROUND_TRIP_EXACT : r.calls ? ROUND_TRIP_DIFFERS : ROUND_TRIP_LOST;
}

enum round_trip round_trip(const struct model *m, struct model_scratch *s,
                           const struct round_trip_plan *plan, struct buf *text)
{
    struct call_sample x = {.calls = plan->calls};
    enum round_trip r = ROUND_TRIP_UNSEEN;

    arena_reset(&s->arena);
    if (render_calls(m, &s->arena, &x))
        r = reads_call_back(&x, plan->tool, plan->reasoning);
    if (text)
        buf_add_str(text, x.body);
    sample_done(&x);
    return r;
}

static void set_parser(struct model *m, enum tool_kind kind)
{
    const char *marked = m->info.tool_parser;

    buf_printf(&m->notes,
               "the template's own tool calls are not read by the parser that its marks "
               "suggest (%s) but by %s, which is taken\n",
               marked, tool_kind_name(kind));
    m->info.tool_parser = tool_kind_name(kind);
    m->tool_why = arena_printf(
        &m->arena, "it reads the template's own calls; %s, which its marks suggest, does not",
        marked);
}

void round_trip_choose(struct model *m, struct model_scratch *s)
{
    enum reasoning_kind reasoning = REASONING_NONE;
    enum tool_kind tool = TOOL_NONE;
    struct call_sample x = {.calls = 1};

    (void)tool_kind_named(str_cstr(m->info.tool_parser), &tool);
    (void)reasoning_kind_named(str_cstr(m->info.reasoning_parser), &reasoning);
    arena_reset(&s->arena);
    if (render_calls(m, &s->arena, &x) &&
        reads_call_back(&x, tool, reasoning) != ROUND_TRIP_EXACT) {
        for (int k = TOOL_NONE + 1; k < TOOL_KIND_COUNT; k++) {
            if (reads_call_back(&x, (enum tool_kind)k, reasoning) != ROUND_TRIP_EXACT)
                continue;
            set_parser(m, (enum tool_kind)k);
            break;
        }
    }
    sample_done(&x);
}
