/*
 * pythonic: [NAME(key=literal, ...), NAME(...)] as the whole answer, or after <|python_start|>.
 * Every call is a unit of its own; its literals are read when its parenthesis closes.
 */
#include <string.h>

#include "worker/parsers/core.h"
#include "worker/parsers/value.h"

enum { ST_BEGIN, ST_OPEN, ST_NAME, ST_ARGS, ST_AFTER };

enum { NAME_MAX_BYTES = 256 };

static bool word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

static enum step read_name(struct parser *p)
{
    struct call *c = &p->call;

    for (; p->pos < core_end(p); p->pos++) {
        char byte = core_at(p, p->pos);

        if (byte == '(' && p->pos > c->from) {
            buf_add_str(&c->name, core_cut(p, c->from, p->pos++));
            c->from = p->pos;
            c->types = 0;
            c->st = ST_ARGS;
            if (call_ready(p) != STEP_YES)
                return STEP_NO;
            c->ready = false; /* nothing is certain before the literals are read */
            return STEP_YES;
        }
        if (!word_byte(byte) || p->pos - c->from > NAME_MAX_BYTES)
            return STEP_NO;
    }
    return STEP_MORE;
}

/* One `key=literal`; *at stands behind it. */
static bool compose_param(struct parser *p, struct str args, size_t *at)
{
    struct call *c = &p->call;
    size_t from = *at;

    while (*at < args.len && word_byte(args.p[*at]))
        ++*at;
    if (*at == from)
        return false;
    buf_puts(&c->made, c->n_params++ ? ", \"" : "{\"");
    value_escape(&c->made, str_sub(args, from, *at - from));
    buf_puts(&c->made, "\": ");
    while (*at < args.len && core_blank(args.p[*at]))
        ++*at;
    if (*at >= args.len || args.p[*at] != '=')
        return false;
    ++*at;
    return value_python(&c->made, args, at) == 0;
}

static bool compose_args(struct parser *p, struct str args)
{
    struct call *c = &p->call;
    size_t at = 0;

    c->args_made = true;
    for (;;) {
        while (at < args.len && core_blank(args.p[at]))
            at++;
        if (at == args.len)
            break;
        if (!compose_param(p, args, &at))
            return false;
        while (at < args.len && core_blank(args.p[at]))
            at++;
        if (at < args.len && args.p[at++] != ',')
            return false;
    }
    buf_puts(&c->made, c->n_params ? "}" : "{}");
    return true;
}

/* Looks for the closing parenthesis: n_params counts brackets, types holds the open quote and
 * whether a backslash stands before. */
static enum step read_args(struct parser *p)
{
    struct call *c = &p->call;

    for (; p->pos < core_end(p); p->pos++) {
        char byte = core_at(p, p->pos);

        if (c->field) {
            c->field = 0;
        } else if (c->types) {
            if (byte == '\\')
                c->field = 1;
            else if ((unsigned char)byte == c->types)
                c->types = 0;
        } else if (byte == '"' || byte == '\'') {
            c->types = (unsigned char)byte;
        } else if (byte == ')' && !c->n_params) {
            struct str args = core_cut(p, c->from, p->pos++);

            c->st = ST_AFTER;
            return compose_args(p, args) ? STEP_YES : STEP_NO;
        } else if (strchr("([{", byte)) {
            c->n_params++;
        } else if (strchr(")]}", byte) && c->n_params-- == 0) {
            return STEP_NO;
        }
    }
    return STEP_MORE;
}

/* Behind a call: a comma is left for the next one, the bracket ends the list. */
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
    struct call *c = &p->call;
    enum step r = core_blanks(p);

    if (r == STEP_YES && c->st == ST_BEGIN && !p->in_list)
        r = core_eat(p, "[");
    if (r != STEP_YES)
        return r;
    c->st = ST_OPEN;
    r = core_blanks(p);
    if (r == STEP_YES) {
        c->from = p->pos;
        c->st = ST_NAME;
    }
    return r;
}

static enum step python_run(struct parser *p)
{
    struct call *c = &p->call;
    enum step r = STEP_YES;

    if (c->st <= ST_OPEN)
        r = open_list(p);
    if (r == STEP_YES && c->st == ST_NAME)
        r = read_name(p);
    if (r == STEP_YES && c->st == ST_ARGS)
        r = read_args(p);
    if (r == STEP_YES)
        r = after_call(p);
    return r;
}

/* The list opens the answer, or goes on behind a call. */
static enum step python_bare(struct parser *p)
{
    if (p->in_list)
        return core_eat(p, ",");
    return !p->n_calls && core_at(p, p->pos) == '[' ? STEP_YES : STEP_NO;
}

static const struct grammar python = {.begin = {"<|python_start|>"},
                                      .close = {"<|python_end|>"},
                                      .run = python_run,
                                      .bare = python_bare};

const struct grammar *grammar_python(enum tool_kind kind)
{
    return kind == TOOL_PYTHONIC ? &python : NULL;
}
