/*
 * Calls whose name stands outside and whose arguments are one JSON object:
 *   deepseek_v3   <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME \n ```json \n {} \n ``` END
 *   deepseek_v31  <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{} END
 *   kimi_k2       <|tool_call_begin|> functions.NAME:N <|tool_call_argument_begin|> {} END
 *   mistral       [TOOL_CALLS]NAME([CALL_ID]ID)?([ARGS])?{}   or   [TOOL_CALLS][{...}, ...]
 */
#include <string.h>

#include "worker/parsers/core.h"
#include "worker/parsers/param_value.h"

#define SEP "<｜tool▁sep｜>"

enum { ST_BEGIN, ST_NAME, ST_FENCE, ST_ARGS, ST_UNFENCE, ST_CLOSE };

enum { NAME_MAX_BYTES = 256 };

/* The bytes up to one of the marks, trimmed, become `into`; pos stands at the mark. */
static enum step read_upto(struct parser *p, const char *const *marks, size_t n, struct buf *into,
                           size_t *which)
{
    struct tool_call *c = &p->call;
    enum step r;

    if (!c->from)
        c->from = p->pos;
    r = core_find(p, marks, n, which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    buf_clear(into);
    buf_add_str(into, str_trim(core_cut(p, c->from, p->pos)));
    c->from = 0;
    return STEP_YES;
}

static enum step read_args(struct parser *p)
{
    enum step r;

    if (!p->call.args_from) {
        r = core_blanks(p);
        if (r != STEP_YES)
            return r;
        if (core_over(p) || core_at(p, p->pos) != '{' || tool_call_ready(p) != STEP_YES)
            return STEP_NO;
    }
    return tool_call_scan_args(p);
}

/* --- DeepSeek --- */

static enum step deepseek_name(struct parser *p, const char *stop)
{
    size_t which;
    enum step r = read_upto(p, &stop, 1, &p->call.name, &which);

    return r == STEP_YES ? core_eat(p, stop) : r;
}

static enum step v3_step(struct parser *p)
{
    struct tool_call *c = &p->call;

    switch (c->st) {
    case ST_BEGIN:
        return core_eat(p, "function" SEP);
    case ST_NAME:
        return deepseek_name(p, "\n");
    case ST_FENCE:
        return core_eat(p, "```json");
    case ST_ARGS:
        return read_args(p);
    case ST_UNFENCE:
        return core_eat_close(p, "```");
    default:
        return core_eat_close(p, "<｜tool▁call▁end｜>");
    }
}

static enum step v31_step(struct parser *p)
{
    switch (p->call.st) {
    case ST_BEGIN:
        return deepseek_name(p, SEP);
    case ST_ARGS:
        return read_args(p);
    case ST_CLOSE:
        return core_eat_close(p, "<｜tool▁call▁end｜>");
    default:
        return STEP_YES;
    }
}

/* --- Kimi: the id names the function --- */

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.len > 0;
}

static const struct json *tool_part(const struct json *tool, const char *key)
{
    const struct json *f = json_get(tool, "function");

    return json_get(f ? f : tool, key);
}

/* A bare ordinal instead of a name can only mean the one tool there is. */
static bool kimi_only_tool(struct parser *p)
{
    if (!json_at(p->tools, 0) || json_at(p->tools, 1))
        return false;
    buf_add_str(&p->call.name, json_string(tool_part(json_at(p->tools, 0), "name")));
    return true;
}

static bool kimi_name(struct parser *p)
{
    struct str id = buf_str(&p->call.id);
    struct str head = STR("functions.");
    size_t colon;

    buf_clear(&p->call.name);
    if (all_digits(id))
        return kimi_only_tool(p);
    if (str_starts(id, head))
        id = str_sub(id, head.len, id.len);
    for (colon = id.len; colon && id.p[colon - 1] != ':'; colon--)
        ;
    if (!colon || !all_digits(str_sub(id, colon, id.len)))
        return false;
    buf_add_str(&p->call.name, str_sub(id, 0, colon - 1));
    return true;
}

static enum step kimi_step(struct parser *p)
{
    const char *stop = "<|tool_call_argument_begin|>";
    size_t which;
    enum step r;

    switch (p->call.st) {
    case ST_BEGIN:
        r = read_upto(p, &stop, 1, &p->call.id, &which);
        if (r == STEP_YES && !kimi_name(p))
            r = STEP_NO;
        return r == STEP_YES ? core_eat(p, stop) : r;
    case ST_ARGS:
        return read_args(p);
    case ST_CLOSE:
        return core_eat_close(p, "<|tool_call_end|>");
    default:
        return STEP_YES;
    }
}

/* --- Mistral --- */

enum { STAGE_BEGIN, STAGE_NAME, STAGE_ID, STAGE_ARGS, STAGE_LIST };

/* Behind an object of the list: a comma is left for the next call, the bracket ends it. */
static enum step mistral_list(struct parser *p)
{
    enum step r = json_call_run(p);

    if (r == STEP_YES)
        r = core_blanks(p);
    if (r != STEP_YES)
        return r;
    p->in_list = !core_over(p) && core_at(p, p->pos) == ',';
    return p->in_list ? STEP_YES : core_eat_close(p, "]");
}

static enum step mistral_bare(struct parser *p)
{
    enum step r;

    if (!p->in_list)
        return STEP_NO;
    r = core_eat(p, ",");
    if (r == STEP_YES)
        r = core_blanks(p);
    if (r != STEP_YES)
        return r;
    return !core_over(p) && core_at(p, p->pos) == '{' ? STEP_YES : STEP_NO;
}

static enum step mistral_begin(struct parser *p)
{
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    p->call.stage = p->in_list ? STAGE_LIST : STAGE_NAME;
    if (!core_over(p) && core_at(p, p->pos) == '[' && !p->in_list) {
        p->pos++;
        p->call.stage = STAGE_LIST;
    }
    return STEP_YES;
}

static enum step mistral_name(struct parser *p)
{
    static const char *const marks[] = {"{", "[ARGS]", "[CALL_ID]"};
    struct tool_call *c = &p->call;
    bool id = c->stage == STAGE_ID;
    size_t which = 0;
    enum step r = read_upto(p, marks, id ? 2 : 3, id ? &c->id : &c->name, &which);

    if (r != STEP_YES)
        return r;
    c->stage = which == 2 ? STAGE_ID : STAGE_ARGS;
    return which == 0 ? STEP_YES : core_eat(p, marks[which]);
}

static enum step mistral_run(struct parser *p)
{
    enum step r = STEP_YES;

    if (p->call.stage == STAGE_BEGIN)
        r = mistral_begin(p);
    while (r == STEP_YES && (p->call.stage == STAGE_NAME || p->call.stage == STAGE_ID))
        r = mistral_name(p);
    if (r != STEP_YES)
        return r;
    return p->call.stage == STAGE_LIST ? mistral_list(p) : read_args(p);
}

/* --- steps in a row --- */

static enum step run_steps(struct parser *p, enum step (*one)(struct parser *p))
{
    enum step r = STEP_YES;

    while (r == STEP_YES && p->call.st <= ST_CLOSE) {
        r = one(p);
        if (r == STEP_YES)
            p->call.st++;
    }
    return r;
}

static enum step v3_run(struct parser *p)
{
    return run_steps(p, v3_step);
}

static enum step v31_run(struct parser *p)
{
    return run_steps(p, v31_step);
}

static enum step kimi_run(struct parser *p)
{
    return run_steps(p, kimi_step);
}

static const struct grammar v3 = {.open = {"<｜tool▁calls▁begin｜>"},
                                  .begin = {"<｜tool▁call▁begin｜>"},
                                  .close = {"<｜tool▁calls▁end｜>"},
                                  .end = "<｜tool▁call▁end｜>",
                                  .within = {SEP},
                                  .run = v3_run};
static const struct grammar v31 = {.open = {"<｜tool▁calls▁begin｜>"},
                                   .begin = {"<｜tool▁call▁begin｜>"},
                                   .close = {"<｜tool▁calls▁end｜>"},
                                   .end = "<｜tool▁call▁end｜>",
                                   .within = {SEP},
                                   .run = v31_run};
static const struct grammar kimi = {.open = {"<|tool_calls_section_begin|>"},
                                    .begin = {"<|tool_call_begin|>"},
                                    .close = {"<|tool_calls_section_end|>"},
                                    .end = "<|tool_call_end|>",
                                    .within = {"<|tool_call_argument_begin|>"},
                                    .run = kimi_run};
static const struct grammar mistral = {.begin = {"[TOOL_CALLS]"},
                                       .within = {"[ARGS]", "[CALL_ID]"},
                                       .run = mistral_run,
                                       .bare = mistral_bare};

const struct grammar *grammar_raw(enum tool_kind kind)
{
    switch (kind) {
    case TOOL_DEEPSEEK_V3:
        return &v3;
    case TOOL_DEEPSEEK_V31:
        return &v31;
    case TOOL_KIMI_K2:
        return &kimi;
    case TOOL_MISTRAL:
        return &mistral;
    default:
        return NULL;
    }
}
