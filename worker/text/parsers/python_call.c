/*
 * Calls in Python's form: [NAME(key=literal, ...), NAME(...)] as the whole answer or between marks,
 * or one a line between marks. Every call is a unit of its own. Its literals are converted to JSON
 * while they arrive.
 */
#include <string.h>

#include "worker/text/parsers/core.h"
#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/shapes.h"

/* --- quoted texts --- */

/* Pythonic strings with unescaped quotes of their own kind: command='sed -n '1,9p' f'. Coding
 * agents write them. The whole rest of the block decides which quote closes such a string.
 *
 * A string is broken if its first quote cannot close it: a name, a word or an operator follows.
 * Then every later quote that could close it is tried: the text after it must be valid calls up to
 * the block's end, as many as the brackets suggest. A string is mended if exactly one quote passes;
 * vLLM and SGLang have the same rule. Nothing is decided before the block has ended. */

/* Position in the parameters: struct tool_call's `field`. */
enum { IN_KEY, BEHIND_KEY, IN_VALUE, BEHIND_VALUE };

static enum python_step python_params_byte(struct tool_call *c, char byte);

/* True if the byte may be part of a function's or a parameter's name. */
static bool python_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

/* Limits for mending one string: bytes read, and multiples of the block's rest. If a block needs
 * more, it is text. */
enum { TRIED_BYTES = 16 << 10, TRIED_TIMES = 3 };

/* State of reading the rest of a block with one quote as the string's end. */
struct quote_scan {
    const struct parser *p;
    size_t at, end;
    size_t budget;
    /* a call of its own, with only the fields that python_params_byte needs */
    struct tool_call call;
};

static void skip_blanks(struct quote_scan *r)
{
    while (r->at < r->end && core_blank(core_at(r->p, r->at)))
        r->at++;
}

/* Returns the next byte, or NUL at the end. */
static char next_byte(const struct quote_scan *r)
{
    return r->at < r->end ? core_at(r->p, r->at) : '\0';
}

/* Reads up to the parenthesis that closes the parameters. */
static bool read_params(struct quote_scan *r)
{
    struct tool_call *c = &r->call;
    enum python_step step = PYTHON_MORE;

    for (; step == PYTHON_MORE && r->at < r->end && r->budget > 0; r->at++, r->budget--) {
        char byte = core_at(r->p, r->at);

        if (c->field == IN_VALUE && !core_blank(byte))
            buf_clear(&c->key); /* the name of the next parameter is empty so far */
        step = python_params_byte(c, byte);
        buf_clear(&c->made);
    }
    return step == PYTHON_DONE;
}

/* Reads NAME( of a further call. */
static bool read_call_head(struct quote_scan *r)
{
    size_t from = r->at;

    while (r->at < r->end && python_name_byte(core_at(r->p, r->at)))
        r->at++;
    if (r->at == from || next_byte(r) != '(')
        return false;
    r->at++;
    r->call.field = IN_KEY;
    r->call.n_params = 0;
    buf_clear(&r->call.key);
    return true;
}

/* Reports whether the rest is parameters and then at least `least` calls, and nothing else. */
static bool reads_to_end(struct quote_scan *r, unsigned least)
{
    bool lines = r->p->grammar->run == python_lines_run;

    for (unsigned calls = 0;; calls++) {
        if (!read_params(r))
            return false;
        skip_blanks(r);
        if (!lines && next_byte(r) == ']') {
            r->at++;
            skip_blanks(r);
            return r->at == r->end && calls >= least;
        }
        if (lines && r->at == r->end)
            return calls >= least;
        if (!lines && next_byte(r) != ',')
            return false;
        r->at += !lines;
        skip_blanks(r);
        if (!read_call_head(r))
            return false;
    }
}

static bool fits_as_end(struct parser *p, size_t quote, size_t end, unsigned least, size_t *budget)
{
    struct quote_scan r = {.p = p, .at = quote, .end = end, .budget = *budget};
    bool good;

    r.call.field = IN_VALUE;
    r.call.n_params = 1;
    r.call.python = p->call.python;
    r.call.python.word = (struct buf){0}; /* a string has no pending word */
    r.call.python.fresh = false;
    good = reads_to_end(&r, least);
    p->reread += *budget - r.budget;
    *budget = r.budget;
    buf_done(&r.call.key);
    buf_done(&r.call.made);
    python_scan_done(&r.call.python);
    return good;
}

/* Reports whether a string may end before `at`. */
static bool may_follow(const struct parser *p, size_t at, size_t end)
{
    while (at < end && core_blank(core_at(p, at)))
        at++;
    return at == end || (core_at(p, at) && strchr(",)]}:", core_at(p, at)));
}

/* Counts the calls after the present one by brackets alone, so that a broken string hides none. */
static unsigned count_calls(const struct parser *p, size_t at, size_t end)
{
    int depth = 1 + p->call.python.depth + MAX_OF(p->call.python.nesting, 0);
    unsigned n = 0;

    for (; at < end; at++) {
        char c = core_at(p, at);

        depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        n += c == ',' && depth == 0;
    }
    return n;
}

/* Finds the quote that closes the broken string whose first quote is at pos; 0: none, or
 * several. */
static size_t find_closer(struct parser *p, size_t end)
{
    char quote = core_at(p, p->pos);
    unsigned least = count_calls(p, p->pos, end);
    size_t budget = TRIED_BYTES + TRIED_TIMES * (end - p->pos), found = 0;

    if (fits_as_end(p, p->pos, end, least, &budget)) /* a template of Gemma 3 writes no commas */
        return p->pos;
    for (size_t at = p->pos + 1; at < end && budget > 0; at++) {
        if (core_at(p, at) == '\\')
            at++;
        else if (core_at(p, at) == quote && may_follow(p, at + 1, end) &&
                 fits_as_end(p, at, end, least, &budget)) {
            if (found)
                return 0;
            found = at;
        }
    }
    return budget ? found : 0;
}

/* Finds the end of the block: its closing mark, or the end of all text. */
static enum step find_end(struct parser *p, size_t *end)
{
    struct tool_call *c = &p->call;
    size_t was = p->pos, which;
    enum step r;

    p->pos = MAX_OF(c->mark_from, was);
    r = core_find(p, p->grammar->close, ARRAY_LEN(p->grammar->close), &which);
    c->mark_from = p->pos; /* the next feed continues the search here */
    *end = r == STEP_YES ? p->pos : core_end(p);
    p->pos = was;
    return r == STEP_YES || p->final ? STEP_YES : STEP_MORE;
}

/* Decides whether a quote at pos closes the present string. YES: it does. NO: it is text, and
 * p->call.closer is the quote that closes; 0: none closes, or several could. MORE: the deciding
 * bytes have not arrived. */
static enum step python_quote_closes(struct parser *p)
{
    struct tool_call *c = &p->call;
    size_t at = p->pos + 1, end;

    if (c->closer)
        return p->pos < c->closer ? STEP_NO : STEP_YES;
    if (at == core_end(p) && !p->final)
        return STEP_MORE;
    if (c->python.fresh && at < core_end(p) && core_at(p, at) == c->python.quote)
        return STEP_YES; /* three quotes open a triple-quoted string */
    at = core_blanks_end(p, at);
    if (at == core_end(p) && !p->final)
        return STEP_MORE;
    if (may_follow(p, at, core_end(p)))
        return STEP_YES;
    if (find_end(p, &end) == STEP_MORE)
        return STEP_MORE;
    p->reread += end - p->pos; /* each of its quotes is tried */
    c->closer = find_closer(p, end);
    return c->closer == p->pos ? STEP_YES : STEP_NO;
}

/* --- calls --- */

enum { ST_BEGIN, ST_OPEN, ST_NAME, ST_ARGS, ST_AFTER };

/* Notation of the present call: struct tool_call's `stage`. */
enum { AS_UNKNOWN, AS_PYTHON, AS_JSON };

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

/* Reads one byte of the call's parameters. DONE: it was the parenthesis that closes them. */
static enum python_step python_params_byte(struct tool_call *c, char byte)
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
        r = core_end_item(p);
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
