/*
 * Calls in Python's form: [NAME(key=literal, ...), NAME(...)] as the whole answer or between marks,
 * or one a line between marks. Every call is a unit of its own. Its literals are converted to JSON
 * while they arrive.
 */
#include <string.h>

#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/python_quote.h"
#include "worker/text/parsers/shapes.h"

enum { ST_BEGIN, ST_OPEN, ST_NAME, ST_ARGS, ST_AFTER };

/* Notation of the present call: struct tool_call's `stage`. */
enum { AS_UNKNOWN, AS_PYTHON, AS_JSON };

bool python_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static enum step read_python_name(struct parser *p)
{
    struct tool_call *c = &p->call;

    for (; p->pos < core_end(p); p->pos++) {
        char byte = core_at(p, p->pos);

        if (byte == '(' && p->pos > c->from) {
            buf_add_str(&c->name, core_cut(p, c->from, p->pos++));
            c->from = 0;
            c->st = ST_ARGS;
            c->args_made = true;
            return tool_call_ready(p);
        }
        if (!python_name_byte(byte) || p->pos - c->from > NAME_MAX_BYTES)
            return STEP_NO;
    }
    return STEP_MORE;
}

static void begin_param(struct tool_call *c)
{
    buf_puts(&c->made, c->n_params++ ? ", \"" : "{\"");
    value_escape(&c->made, buf_str(&c->key));
    buf_puts(&c->made, "\": ");
    python_scan_reset(&c->python);
    c->field = IN_VALUE;
    c->depth = 0;
}

/* Handles a value's first byte. If the schema wants a different type than text (templates of Llama
 * 4 write "3" for 3), the text is first read whole into `key`. Then its value is written:
 * `wrapped`, from `from` on. */
static void first_byte(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (c->field != IN_VALUE || c->depth || core_blank(core_at(p, p->pos)))
        return;
    c->types = tool_call_types(p, buf_str(&c->key));
    c->wrapped = c->types && !(c->types & TYPE_STRING) && strchr("\"'", core_at(p, p->pos)) != NULL;
    c->from = c->wrapped ? p->pos : 0;
    c->depth = 1;
    buf_clear(&c->key);
}

static void write_unwrapped(struct tool_call *c)
{
    struct buf text = {0};

    if (value_unquote(&text, buf_str(&c->key)) == 0)
        value_write(&c->made, buf_str(&text), c->types);
    else
        buf_add_str(&c->made, buf_str(&c->key));
    buf_done(&text);
    buf_clear(&c->key);
    c->wrapped = false;
    c->from = 0;
}

/* Handles a byte between parameters, in a key or after it. DONE: the parenthesis has closed. */
static enum python_step key_byte(struct tool_call *c, char byte)
{
    bool key_over = c->field == BEHIND_KEY || core_blank(byte) || byte == '=';

    if (!key_over && python_name_byte(byte)) {
        buf_add_c(&c->key, byte);
        return c->key.len > NAME_MAX_BYTES ? PYTHON_BAD : PYTHON_MORE;
    }
    if (core_blank(byte)) {
        if (c->key.len)
            c->field = BEHIND_KEY;
        return PYTHON_MORE;
    }
    if (c->key.len == 0 && byte == ')') {
        buf_puts(&c->made, c->n_params ? "}" : "{}");
        return PYTHON_DONE;
    }
    if (c->key.len == 0 || byte != '=')
        return PYTHON_BAD;
    begin_param(c);
    return PYTHON_MORE;
}

/* Handles the byte after a value. */
static enum python_step behind_byte(struct tool_call *c, char byte)
{
    if (core_blank(byte))
        return PYTHON_MORE;
    c->field = IN_KEY;
    /* A template of Gemma 3 writes no commas. */
    if (byte == ')' || python_name_byte(byte))
        return key_byte(c, byte);
    return byte == ',' ? PYTHON_MORE : PYTHON_BAD;
}

enum python_step python_params_byte(struct tool_call *c, char byte)
{
    enum python_step r;

    if (c->field == BEHIND_VALUE)
        return behind_byte(c, byte);
    if (c->field != IN_VALUE)
        return key_byte(c, byte);
    r = python_scan_byte(&c->python, byte, c->wrapped ? &c->key : &c->made);
    if (r == PYTHON_DONE || r == PYTHON_BEFORE)
        c->field = BEHIND_VALUE;
    if (c->field == BEHIND_VALUE && c->wrapped)
        write_unwrapped(c);
    if (r == PYTHON_BEFORE)
        return behind_byte(c, byte);
    return r == PYTHON_DONE ? PYTHON_MORE : r;
}

static bool closes_string(const struct parser *p)
{
    return p->call.field == IN_VALUE && python_scan_closes(&p->call.python, core_at(p, p->pos));
}

/* Adds a quote that is part of its string. */
static enum python_step keep_quote(struct parser *p)
{
    struct tool_call *c = &p->call;
    char byte = core_at(p, p->pos);

    if (!c->closer)
        return PYTHON_BAD;
    c->python.fresh = false;
    value_escape(c->wrapped ? &c->key : &c->made, str_of(&byte, 1));
    return PYTHON_MORE;
}

/* Finds the first byte of the arguments that cannot be sent yet. held: number of bytes that the
 * scanner held before a bad byte, which it may count as read. */
static size_t find_unsent(const struct parser *p, bool bad, size_t held)
{
    const struct tool_call *c = &p->call;

    if (c->field == IN_VALUE && c->wrapped)
        return c->from;
    if (c->field == IN_VALUE)
        return p->pos - (bad ? held : python_scan_pending(&c->python));
    return c->key.len ? c->args_sent : 0;
}

/* Reads the parameters, up to the parenthesis that closes the call. */
static enum step read_python_args(struct parser *p)
{
    struct tool_call *c = &p->call;

    enum python_step r = PYTHON_MORE;
    enum step quote;
    size_t held = 0;

    while (p->pos < core_end(p)) {
        held = python_scan_pending(&c->python);
        if (c->field == IN_KEY && c->key.len == 0)
            c->args_sent = p->pos;
        first_byte(p);
        quote = closes_string(p) ? python_quote_closes(p) : STEP_YES;
        if (quote == STEP_MORE)
            break;
        r = quote == STEP_YES ? python_params_byte(c, core_at(p, p->pos)) : keep_quote(p);
        if (c->field == IN_KEY && c->key.len == 1)
            c->args_sent = p->pos; /* start of the key */
        if (r == PYTHON_BAD)
            break;
        p->pos++;
        if (r == PYTHON_DONE)
            break;
    }
    c->unsaid = find_unsent(p, r == PYTHON_BAD, held);
    if (r == PYTHON_DONE)
        c->st = ST_AFTER;
    return r == PYTHON_DONE ? STEP_YES : r == PYTHON_BAD ? STEP_NO : STEP_MORE;
}

/* Reads on after a call: a comma is left for the next one, the bracket ends the list. */
static enum step after_call(struct parser *p)
{
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    p->in_list = !core_over(p) && core_at(p, p->pos) == ',';
    return p->in_list ? STEP_YES : core_eat_close(p, "]");
}

static enum step open_list(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = core_blanks(p);

    if (r == STEP_YES && c->st == ST_BEGIN && !p->in_list)
        r = core_eat(p, "[");
    if (r != STEP_YES)
        return r;
    c->st = ST_OPEN;
    r = core_blanks(p);
    if (r == STEP_YES) {
        c->from = p->pos;
        c->item = p->pos;
        c->st = ST_NAME;
    }
    return r;
}

/* Finds the notation of the call: LFM2 also writes JSON. */
static enum step choose_notation(struct parser *p)
{
    /* Blanks after a bracket may arrive one by one. Then only their end is searched again. */
    bool stands = p->pos < core_end(p) && core_at(p, p->pos) == '[';
    enum step r = stands ? STEP_YES : core_blanks(p);
    size_t at = p->pos;

    if (r != STEP_YES)
        return r;
    if (at < core_end(p) && !p->in_list && core_at(p, at) == '[')
        at = core_blanks_end(p, at + 1);
    if (at == core_end(p) && !p->final)
        return STEP_MORE;
    p->call.stage = at < core_end(p) && core_at(p, at) == '{' ? AS_JSON : AS_PYTHON;
    return STEP_YES;
}

enum step python_call_run(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = STEP_YES;

    if (p->grammar->json && c->stage == AS_UNKNOWN)
        r = choose_notation(p);
    if (r == STEP_YES && c->stage == AS_JSON)
        return json_call_run(p);
    if (r == STEP_YES && c->st <= ST_OPEN)
        r = open_list(p);
    if (r == STEP_YES && c->st == ST_NAME)
        r = read_python_name(p);
    if (r == STEP_YES && c->st == ST_ARGS)
        r = read_python_args(p);
    if (r == STEP_YES)
        r = after_call(p);
    return r;
}

/* Finds a list that opens the answer, or that continues after a call. */
enum step python_call_bare(struct parser *p)
{
    if (p->in_list)
        return core_eat(p, ",");
    return !p->n_calls && core_at(p, p->pos) == '[' ? STEP_YES : STEP_NO;
}

/* Reads one call per line. The next one begins where a name may begin. */
enum step python_lines_run(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = STEP_YES;

    if (c->st <= ST_OPEN) {
        r = core_blanks(p);
        if (r == STEP_YES) {
            c->from = p->pos;
            c->st = ST_NAME;
        }
    }
    if (r == STEP_YES && c->st == ST_NAME)
        r = read_python_name(p);
    if (r == STEP_YES && c->st == ST_ARGS)
        r = read_python_args(p);
    return r;
}

enum step python_lines_bare(struct parser *p)
{
    return p->in_section && python_name_byte(core_at(p, p->pos)) ? STEP_YES : STEP_NO;
}
