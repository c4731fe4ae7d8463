/*
 * A string is broken if its first quote cannot close it: a name, a word or an operator follows.
 * Then every later quote that could close it is tried: the text after it must be valid calls up to
 * the block's end, as many as the brackets suggest. A string is mended if exactly one quote passes;
 * vLLM and SGLang have the same rule. Nothing is decided before the block has ended.
 */
#include "worker/text/parsers/python_quote.h"

#include <string.h>

#include "worker/text/parsers/shapes.h"

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

enum step python_quote_closes(struct parser *p)
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
