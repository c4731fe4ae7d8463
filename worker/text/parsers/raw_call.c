/*
 * Calls with the name outside and the arguments as one JSON object: DeepSeek, Functionary, Solar,
 * PLaMo (struct raw_shape), and two forms of their own:
 *   kimi_k2   <|tool_call_begin|> functions.NAME:N <|tool_call_argument_begin|> {} END
 *   mistral   [TOOL_CALLS]NAME([CALL_ID]ID)?([ARGS])?{}   or   [TOOL_CALLS][{...}, ...]
 */
#include <string.h>

#include "worker/text/parsers/shapes.h"

enum { ST_BEGIN, ST_ID, ST_NAME, ST_FENCE, ST_ARGS, ST_UNFENCE, ST_CLOSE };

/* Copies the bytes before the first of the marks, trimmed, to `into`. pos is then at the mark. */
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
    buf_set(into, str_trim(core_cut(p, c->from, p->pos)));
    c->from = 0;
    return STEP_YES;
}

static enum step read_json_args(struct parser *p)
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

/* --- families with a raw_shape --- */

static enum step eat_lead(struct parser *p, const char *lit)
{
    enum step r = lit ? core_blanks(p) : STEP_YES;

    return r == STEP_YES && lit ? core_eat(p, lit) : r;
}

/* Reads the text up to and including `stop`. */
static enum step read_word(struct parser *p, const char *stop, struct buf *into)
{
    size_t which;
    enum step r = stop ? read_upto(p, &stop, 1, into, &which) : STEP_YES;

    return r == STEP_YES && stop ? core_eat(p, stop) : r;
}

static enum step raw_step(struct parser *p)
{
    const struct raw_shape *shape = p->grammar->raw;

    switch (p->call.st) {
    case ST_BEGIN:
        return eat_lead(p, shape->lead);
    case ST_ID:
        return read_word(p, shape->id_end, &p->call.id);
    case ST_NAME:
        return read_word(p, shape->name_end, &p->call.name);
    case ST_FENCE:
        return eat_lead(p, shape->args_lead);
    case ST_ARGS:
        return read_json_args(p);
    case ST_UNFENCE:
        return shape->args_tail ? core_eat_close(p, shape->args_tail) : STEP_YES;
    default:
        return shape->end ? core_eat_close(p, shape->end) : STEP_YES;
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

/* Limit of comparisons for all calls without a name in one answer: with tools, and with the names
 * of their parameters and arguments. With twenty tools it is enough for some hundred calls. */
enum { LOOKS_MAX = 1 << 18 };

/* Reports whether the tool accepts arguments of these names: all are declared, and none that it
 * needs is missing. */
static bool has_params(struct parser *p, const struct json *schema, const struct json *args)
{
    const struct json *required = json_get(schema, "required");

    p->looks += 1 + args->n + (json_is(required, JSON_ARRAY) ? required->n * (1 + args->n) : 0);
    if (p->looks > LOOKS_MAX)
        return false;
    for (uint32_t i = 0; i < args->n; i++)
        if (!schema || !tool_index_property(p->tools, schema, json_text(&args->members[i].key), 0))
            return false;
    for (size_t i = 0; json_at(required, i); i++)
        if (!json_get_str(args, json_string(json_at(required, i))))
            return false;
    return true;
}

/* Finds the tool of a call that has a bare ordinal instead of a name. That is the only tool there
 * is, or, when the arguments are known, the only one that accepts them. */
static bool kimi_only_tool(struct parser *p, const struct json *args)
{
    const struct indexed_tool *only = NULL, *tool;

    for (size_t i = 0; p->tools && p->looks <= LOOKS_MAX; i++) {
        tool = tool_index_at(p->tools, i);
        if (!tool)
            break;
        if (args && !has_params(p, tool->parameters, args))
            continue;
        if (only)
            return false;
        only = tool;
    }
    if (!only || p->looks > LOOKS_MAX)
        return false;
    buf_add_str(&p->call.name, only->name);
    return true;
}

static bool kimi_name(struct parser *p)
{
    struct str id = buf_str(&p->call.id);
    struct str head = STR("functions.");
    size_t colon;

    buf_clear(&p->call.name);
    if (all_digits(id))
        return kimi_only_tool(p, NULL) || p->tools;
    if (str_starts(id, head))
        id = str_sub(id, head.len, id.len);
    for (colon = id.len; colon && id.p[colon - 1] != ':'; colon--)
        ;
    if (!colon || !all_digits(str_sub(id, colon, id.len)))
        return false;
    buf_add_str(&p->call.name, str_sub(id, 0, colon - 1));
    return true;
}

/* Finds the name of a call whose id is a bare ordinal: the tool to which its arguments belong. */
static enum step kimi_nameless(struct parser *p)
{
    struct arena a = {0};
    const struct json *args;
    enum step r = core_blanks(p);

    if (r == STEP_YES)
        r = tool_call_scan_args(p);
    if (r != STEP_YES)
        return r;
    r = STEP_NO;
    if (json_parse(&a, core_cut(p, p->call.args_from, p->call.args_to), &args, NULL) == 0 &&
        kimi_only_tool(p, args))
        r = tool_call_ready(p);
    arena_done(&a);
    return r;
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
        return p->call.name.len ? read_json_args(p) : kimi_nameless(p);
    case ST_CLOSE:
        return core_eat_close(p, "<|tool_call_end|>");
    default:
        return STEP_YES;
    }
}

/* --- Mistral --- */

enum { STAGE_BEGIN, STAGE_NAME, STAGE_ID, STAGE_ARGS, STAGE_LIST };

enum step mistral_call_bare(struct parser *p)
{
    return p->in_list ? json_call_bare(p) : STEP_NO;
}

static enum step mistral_begin(struct parser *p)
{
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    p->call.stage = STAGE_NAME;
    if (p->in_list || (!core_over(p) && core_at(p, p->pos) == '['))
        p->call.stage = STAGE_LIST;
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

enum step mistral_call_run(struct parser *p)
{
    enum step r = STEP_YES;

    if (p->call.stage == STAGE_BEGIN)
        r = mistral_begin(p);
    while (r == STEP_YES && (p->call.stage == STAGE_NAME || p->call.stage == STAGE_ID))
        r = mistral_name(p);
    if (r != STEP_YES)
        return r;
    return p->call.stage == STAGE_LIST ? json_call_run(p) : read_json_args(p);
}

/* --- order of the steps --- */

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

enum step raw_call_run(struct parser *p)
{
    return run_steps(p, raw_step);
}

enum step kimi_call_run(struct parser *p)
{
    return run_steps(p, kimi_step);
}

/* Finds a known name at the beginning of the answer. */
enum step raw_call_bare(struct parser *p)
{
    const struct raw_shape *shape = p->grammar->raw;
    const struct indexed_tool *tool;
    enum step best = STEP_NO;

    if (p->n_calls || !shape->bare)
        return STEP_NO;
    best = core_eat(p, shape->bare);
    if (best == STEP_YES) {
        core_output(p, PARSE_SOURCE, p->pos);
        p->marked = true;
        return STEP_NO;
    }
    for (size_t i = 0; p->tools && (tool = tool_index_at(p->tools, i)); i++) {
        struct str name = tool->name;
        struct str have = core_cut(p, p->pos, core_end(p));
        size_t n = MIN_OF(name.len, have.len);

        if (name.len > NAME_MAX_BYTES) /* too long for the name of a call */
            continue;
        if (!name.len || memcmp(name.p, have.p, n) != 0)
            continue;
        if (have.len <= name.len) {
            best = p->final ? best : STEP_MORE;
            continue;
        }
        if (core_lit(p, p->pos + name.len, shape->name_end) != STEP_NO)
            return core_lit(p, p->pos + name.len, shape->name_end);
    }
    return best;
}
