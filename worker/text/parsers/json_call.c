/*
 * Calls written as one JSON object {"name": ..., "arguments" or "parameters": {...}}, one to a mark
 * or in a list: hermes, llama3, granite, cohere and many more (families.c).
 */
#include <string.h>

#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/shapes.h"

enum { ST_BEGIN, ST_OBJECT, ST_ESCAPED, ST_LIST, ST_CLOSE, ST_DONE };

#define QUOTE "&#34;"
#define ESCAPED_HEAD "{" QUOTE "name" QUOTE ": " QUOTE

enum { FIELD_OTHER, FIELD_NAME, FIELD_ARGS, FIELD_ARGS_TEXT, FIELD_ID, FIELD_DICTIONARY };

static bool is_key(struct str key, const char *usual, const char *other)
{
    return str_eq_c(key, usual) || (other && str_eq_c(key, other));
}

/* Handles the end of a key. Returns false for a second key that names the call. */
static bool key_ends(struct parser *p)
{
    const struct json_shape *shape = p->grammar->json;
    struct tool_call *c = &p->call;
    struct str key = core_cut(p, c->from, p->pos);

    c->field = FIELD_OTHER;
    if (shape->keyed && c->name.len)
        return false;
    if (shape->keyed) {
        c->field = FIELD_ARGS;
        return value_unquote(&c->name, core_cut(p, c->from - 1, p->pos + 1)) == 0;
    }
    if (is_key(key, "name", shape->name))
        c->field = FIELD_NAME;
    else if (is_key(key, "arguments", "parameters") || is_key(key, "args", shape->args))
        c->field = c->args_from || c->args_made ? FIELD_OTHER : FIELD_ARGS;
    else if (shape->id && is_key(key, "id", shape->id))
        c->field = FIELD_ID;
    return true;
}

/* Handles the first byte of a member's value. Returns false for arguments of a kind that no call
 * can have. */
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

/* Handles the end of a member's value. `to` is after the last byte of a string or container. */
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
    if (field == FIELD_ID && text.p[0] == '"' && !c->committed) {
        buf_clear(&c->id);
        (void)value_unquote(&c->id, text);
        return true;
    }
    if (field != FIELD_NAME || c->committed)
        return true;
    buf_clear(&c->name);
    if (text.p[0] != '"' || value_unquote(&c->name, text) != 0)
        return false;
    return !c->args_from || tool_call_ready(p) == STEP_YES;
}

/* Handles what the byte at pos did to the scanner. Only members of the call object count. */
static bool follow_byte(struct parser *p, uint8_t before, unsigned depth)
{
    const struct object_scan *s = &p->call.scan;
    char byte = core_at(p, p->pos);

    if (before == SCAN_VALUE && depth == 1 && s->state != SCAN_VALUE)
        return value_begins(p, byte);
    if (s->state == SCAN_STRING && (before == SCAN_FIRST_KEY || before == SCAN_KEY) && depth == 1)
        p->call.from = p->pos + 1;
    if (before == SCAN_STRING && s->state == SCAN_COLON && depth == 1)
        return key_ends(p);
    if (before == SCAN_STRING && s->state == SCAN_AFTER && depth == 1)
        return value_ends(p, p->pos + 1);
    if (depth == 2 && s->depth == 1)
        return value_ends(p, p->pos + 1);
    return true;
}

/* Reports whether the arguments at pos are written as a Python dictionary. One template of Phi-4
 * does so, and models that see it may, too. */
static enum step is_dictionary(const struct parser *p)
{
    const struct tool_call *c = &p->call;

    if (c->field != FIELD_ARGS || c->scan.state != SCAN_VALUE || c->scan.depth != 1 ||
        !c->name.len || core_at(p, p->pos) != '{')
        return STEP_NO;
    return core_lit(p, p->pos, "{'");
}

/* Reads the dictionary. For the scanner of the object it counts as a value. */
static enum step scan_dictionary(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum python_step r = PYTHON_MORE;

    while (r == PYTHON_MORE && p->pos < core_end(p)) {
        c->unsaid = p->pos - python_scan_pending(&c->python);
        r = python_scan_byte(&c->python, core_at(p, p->pos), &c->made);
        p->pos += r != PYTHON_BAD;
    }
    if (r == PYTHON_MORE)
        c->unsaid = p->pos - python_scan_pending(&c->python);
    if (r != PYTHON_DONE)
        return r == PYTHON_MORE ? STEP_MORE : STEP_NO;
    c->scan.state = SCAN_AFTER;
    c->field = FIELD_OTHER;
    c->unsaid = 0;
    return STEP_YES;
}

static enum step scan_object(struct parser *p)
{
    struct tool_call *c = &p->call;
    struct object_scan *s = &c->scan;
    enum step r = STEP_YES;

    while (r == STEP_YES && p->pos < core_end(p)) {
        uint8_t before = s->state;
        unsigned depth = s->depth;

        r = c->field == FIELD_DICTIONARY ? STEP_YES : is_dictionary(p);
        if (r == STEP_YES) {
            if (c->field != FIELD_DICTIONARY && tool_call_ready(p) != STEP_YES)
                return STEP_NO;
            c->args_made = true;
            c->field = FIELD_DICTIONARY;
            r = scan_dictionary(p);
            continue;
        }
        if (r == STEP_MORE)
            return r;
        r = STEP_YES;
        object_scan_byte(s, core_at(p, p->pos));
        if (s->state == SCAN_BAD || !follow_byte(p, before, depth))
            return STEP_NO;
        p->pos++;
        if (s->state == SCAN_DONE)
            return STEP_YES;
    }
    return r == STEP_YES ? STEP_MORE : r;
}

static enum step object_ends(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (!c->args_from && !c->args_made) {
        if (p->grammar->json->needs_args)
            return STEP_NO;
        c->args_made = true;
        buf_puts(&c->made, "{}");
    }
    return tool_call_ready(p);
}

/* Reads up to an object, or up to a list of objects. */
static enum step begin_object(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = core_blanks(p);

    c->listed = c->listed || p->in_list;
    if (r == STEP_YES && p->grammar->json->lists && !c->listed && !core_over(p) &&
        core_at(p, p->pos) == '[') {
        c->listed = true;
        p->pos++;
        r = core_blanks(p);
    }
    if (r != STEP_YES)
        return r;
    if (core_over(p) || core_at(p, p->pos) != '{')
        return STEP_NO;
    c->item = c->listed ? p->pos : 0;
    r = p->grammar->json->escaped ? core_lit(p, p->pos, ESCAPED_HEAD) : STEP_NO;
    if (r == STEP_MORE)
        return r;
    object_scan_init(&c->scan);
    c->st = r == STEP_YES ? ST_ESCAPED : ST_OBJECT;
    return STEP_YES;
}

/* Reads one piece of a call object that is escaped like HTML. Some templates write it so, and
 * therefore models may, too: {&#34;name&#34;: &#34;N&#34;, &#34;arguments&#34;: {...}[,
 * &#34;id&#34;: ...]}. struct tool_call's `field` counts the pieces. */
static enum step escaped_piece(struct parser *p)
{
    static const char *const quote[] = {QUOTE};
    struct tool_call *c = &p->call;
    size_t which;
    enum step r;

    switch (c->field) {
    case 0:
        r = core_eat(p, ESCAPED_HEAD);
        c->from = p->pos;
        return r;
    case 1:
    case 5:
        r = core_find(p, quote, 1, &which);
        if (core_beyond(p, c->from, NAME_MAX_BYTES))
            return STEP_NO;
        if (r == STEP_YES)
            buf_add_str(c->field == 1 ? &c->name : &c->id, core_cut(p, c->from, p->pos));
        return r == STEP_YES ? core_eat(p, QUOTE) : r;
    case 2:
        r = core_eat(p, ", " QUOTE "arguments" QUOTE ": ");
        return r == STEP_YES ? tool_call_ready(p) : r;
    case 3:
        return tool_call_scan_args(p);
    case 4:
        r = core_eat(p, ", " QUOTE "id" QUOTE ": " QUOTE);
        c->from = p->pos;
        c->field += r == STEP_NO; /* skips the piece of the id if there is none */
        return r == STEP_NO ? STEP_YES : r;
    default:
        return core_eat(p, "}");
    }
}

static enum step escaped_object(struct parser *p)
{
    enum step r = STEP_YES;

    while (r == STEP_YES && p->call.field <= 6) {
        r = escaped_piece(p);
        p->call.field += r == STEP_YES;
    }
    return r;
}

/* Reads the object itself, plain or with its quotes escaped. */
static enum step run_object(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r;

    if (c->st == ST_ESCAPED) {
        r = escaped_object(p);
    } else {
        r = scan_object(p);
        if (r == STEP_YES)
            r = object_ends(p);
    }
    if (r == STEP_YES)
        c->st = c->listed ? ST_LIST : ST_CLOSE;
    return r;
}

enum step json_call_run(struct parser *p)
{
    const char *end = p->grammar->json->end;
    struct tool_call *c = &p->call;
    enum step r = STEP_YES;

    if (c->st == ST_BEGIN)
        r = begin_object(p);
    if (r == STEP_YES && (c->st == ST_OBJECT || c->st == ST_ESCAPED))
        r = run_object(p);
    if (r == STEP_YES && c->st == ST_LIST) {
        r = core_end_item(p);
        if (r == STEP_YES)
            c->st = p->in_list ? ST_DONE : ST_CLOSE;
    }
    if (r == STEP_YES && c->st == ST_CLOSE && end)
        r = core_eat_close(p, end);
    return r;
}

static enum step next_is(struct parser *p, const char *openers)
{
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    return !core_over(p) && strchr(openers, core_at(p, p->pos)) ? STEP_YES : STEP_NO;
}

/* Finds the next call of a list, the next one of a section without commas, or a call without any
 * mark. */
enum step json_call_bare(struct parser *p)
{
    bool split = p->in_list || p->grammar->json->bare;
    char c = core_at(p, p->pos);

    if (p->in_list)
        return c == ',' ? (p->pos++, next_is(p, "{")) : STEP_NO;
    if (!split && !p->in_section)
        return STEP_NO;
    if (p->n_calls && split && (c == ';' || c == ',')) {
        p->pos++;
        return next_is(p, "{");
    }
    return c == '{' || (c == '[' && !p->n_calls && p->grammar->json->lists) ? STEP_YES : STEP_NO;
}
