/*
 * Calls written as one JSON object {"name": ..., "arguments" or "parameters": {...}}:
 *   hermes  <tool_call> WS object WS </tool_call>
 *   llama3  [<|python_tag|>] object ( ; object )*
 */
#include "worker/parsers/core.h"
#include "worker/parsers/param_value.h"

enum { ST_BEGIN, ST_OBJECT, ST_CLOSE };

enum { FIELD_OTHER, FIELD_NAME, FIELD_ARGS, FIELD_ARGS_TEXT };

static void key_ends(struct parser *p)
{
    struct tool_call *c = &p->call;
    struct str key = core_cut(p, c->from, p->pos);

    c->field = FIELD_OTHER;
    if (str_eq_c(key, "name"))
        c->field = FIELD_NAME;
    else if (str_eq_c(key, "arguments") || str_eq_c(key, "parameters"))
        c->field = c->args_from || c->args_made ? FIELD_OTHER : FIELD_ARGS;
}

/* The first byte of a member's value. False: arguments of a kind that no call can have. */
static bool value_begins(struct parser *p, char first)
{
    struct tool_call *c = &p->call;

    c->from = p->pos;
    if (c->field != FIELD_ARGS)
        return true;
    if (first == '"') {
        c->field = FIELD_ARGS_TEXT;
    } else if (first == '{') {
        c->args_from = c->args_sent = p->pos;
        c->args_to = 0;
        if (c->name.len)
            return tool_call_ready(p) == STEP_YES;
    }
    return first == '{' || first == '"' || first == 'n';
}

/* `to` is behind the last byte of a string or container that is a member's value. */
static bool value_ends(struct parser *p, size_t to)
{
    struct tool_call *c = &p->call;
    struct str text = core_cut(p, c->from, to);
    int field = c->field;

    c->field = FIELD_OTHER;
    if (field == FIELD_ARGS)
        c->args_to = to;
    if (field == FIELD_ARGS_TEXT) {
        c->args_made = true;
        return value_unquote(&c->made, text) == 0 && value_is_object(buf_str(&c->made));
    }
    if (field != FIELD_NAME || c->committed)
        return true;
    buf_clear(&c->name);
    if (text.p[0] != '"' || value_unquote(&c->name, text) != 0)
        return false;
    return !c->args_from || tool_call_ready(p) == STEP_YES;
}

/* Looks at what the byte at pos did to the scanner; only members of the call object count. */
static bool follow(struct parser *p, uint8_t before, unsigned depth)
{
    const struct object_scan *s = &p->call.scan;
    char byte = core_at(p, p->pos);

    if (before == SCAN_VALUE && depth == 1 && s->state != SCAN_VALUE)
        return value_begins(p, byte);
    if (s->state == SCAN_STRING && (before == SCAN_FIRST_KEY || before == SCAN_KEY) && depth == 1)
        p->call.from = p->pos + 1;
    if (before == SCAN_STRING && s->state == SCAN_COLON && depth == 1)
        key_ends(p);
    if (before == SCAN_STRING && s->state == SCAN_AFTER && depth == 1)
        return value_ends(p, p->pos + 1);
    if (depth == 2 && s->depth == 1)
        return value_ends(p, p->pos + 1);
    return true;
}

static enum step scan_object(struct parser *p)
{
    struct object_scan *s = &p->call.scan;

    for (; p->pos < core_end(p); p->pos++) {
        uint8_t before = s->state;
        unsigned depth = s->depth;

        object_scan_byte(s, core_at(p, p->pos));
        if (s->state == SCAN_BAD || !follow(p, before, depth))
            return STEP_NO;
        if (s->state == SCAN_DONE) {
            p->pos++;
            return STEP_YES;
        }
    }
    return STEP_MORE;
}

static enum step object_ends(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (!c->args_from && !c->args_made) {
        c->args_made = true;
        buf_puts(&c->made, "{}");
    }
    return tool_call_ready(p);
}

enum step json_call_run(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r;

    if (c->st == ST_BEGIN) {
        r = core_blanks(p);
        if (r != STEP_YES)
            return r;
        if (core_over(p) || core_at(p, p->pos) != '{')
            return STEP_NO;
        object_scan_init(&c->scan);
        c->st = ST_OBJECT;
    }
    if (c->st == ST_OBJECT) {
        r = scan_object(p);
        if (r == STEP_YES)
            r = object_ends(p);
        if (r != STEP_YES)
            return r;
        c->st = ST_CLOSE;
    }
    return STEP_YES;
}

static enum step hermes_run(struct parser *p)
{
    enum step r = json_call_run(p);

    return r == STEP_YES ? core_eat_close(p, "</tool_call>") : r;
}

static enum step llama3_bare(struct parser *p)
{
    enum step r = STEP_YES;

    if (p->n_calls) {
        r = core_eat(p, ";");
        if (r == STEP_YES)
            r = core_blanks(p);
        if (r == STEP_YES && core_over(p))
            r = STEP_NO;
    }
    if (r != STEP_YES)
        return r;
    return core_at(p, p->pos) == '{' ? STEP_YES : STEP_NO;
}

static const struct grammar hermes = {
    .begin = {"<tool_call>"}, .end = "</tool_call>", .run = hermes_run};
static const struct grammar llama3 = {
    .begin = {"<|python_tag|>"}, .run = json_call_run, .bare = llama3_bare};

const struct grammar *grammar_json(enum tool_kind kind)
{
    return kind == TOOL_HERMES ? &hermes : kind == TOOL_LLAMA3_JSON ? &llama3 : NULL;
}
