/*
 * Gemma's calls: call:NAME{key:VALUE,...}, with a mark instead of quotes (struct gemma_shape). Keys
 * are bare. Values are marked texts, numbers, true, false, null, lists and objects of these. The
 * arguments are composed; marked texts are streamed.
 */
#include <string.h>

#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/shapes.h"

enum { ST_NAME, ST_KEY, ST_VALUE, ST_STRING, ST_QUOTED, ST_WORD, ST_AFTER, ST_CLOSE };

static enum step read_gemma_name(struct parser *p)
{
    static const char *const stop[] = {"{"};
    struct tool_call *c = &p->call;
    size_t which;
    enum step r;

    if (!c->from) {
        r = core_blanks(p);
        if (r == STEP_YES)
            r = core_eat(p, "call:");
        if (r != STEP_YES)
            return r;
        c->from = p->pos;
    }
    r = core_find(p, stop, 1, &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    buf_add_str(&c->name, str_trim(core_cut(p, c->from, p->pos)));
    p->pos++;
    c->args_made = true;
    c->levels[c->depth++] = '{';
    buf_puts(&c->made, "{");
    c->st = ST_KEY;
    c->unsaid = p->pos;
    return tool_call_ready(p);
}

/* Begins a container. Returns false if it is too deep. */
static bool push_bracket(struct tool_call *c, char bracket)
{
    if (c->depth == CALL_DEPTH_MAX)
        return false;
    c->levels[c->depth++] = (uint8_t)bracket;
    buf_add_c(&c->made, bracket);
    c->st = bracket == '{' ? ST_KEY : ST_VALUE;
    return true;
}

static enum step pop_bracket(struct parser *p, char byte)
{
    struct tool_call *c = &p->call;

    if (byte != (c->levels[c->depth - 1] == '{' ? '}' : ']'))
        return STEP_NO;
    p->pos++;
    buf_add_c(&c->made, byte);
    c->st = --c->depth ? ST_AFTER : ST_CLOSE;
    c->unsaid = p->pos;
    return STEP_YES;
}

/* Finds the mark that opens the key at pos, which also closes it; NULL: no mark is there.
 * STEP_MORE: not decided yet. */
static enum step key_mark(const struct parser *p, const char **mark)
{
    const char *quote = p->grammar->gemma->quote;
    enum step r = core_lit(p, p->pos, quote);

    *mark = r == STEP_YES ? quote : NULL;
    if (r == STEP_NO && !core_over(p) && core_at(p, p->pos) == '"')
        *mark = "\"";
    return r == STEP_MORE ? r : STEP_YES;
}

/* Reads a key between two marks, and the colon. */
static enum step marked_key(struct parser *p, const char *mark)
{
    struct tool_call *c = &p->call;
    size_t begins = c->from + strlen(mark), which;
    enum step r;

    p->pos = begins;
    r = core_find(p, &mark, 1, &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    buf_add_str(&c->key, core_cut(p, begins, p->pos));
    core_eat(p, mark);
    r = core_blanks(p);
    return r == STEP_YES ? core_eat(p, ":") : r;
}

/* Reports whether an unmarked text can be a key. It cannot if it contains the end of a text whose
 * marks are missing. */
static bool key_plain(const struct parser *p, struct str key)
{
    return str_find(key, str_cstr(p->grammar->gemma->quote), 0) == SIZE_MAX &&
           !memchr(key.p, ',', key.len) && !memchr(key.p, '{', key.len) &&
           !memchr(key.p, '[', key.len);
}

/* Reads a key as most are written, and the colon; or the end of an object without members. */
static enum step plain_key(struct parser *p)
{
    static const char *const stops[] = {":", "}"};
    struct tool_call *c = &p->call;
    size_t which;
    enum step r = core_find(p, stops, ARRAY_LEN(stops), &which);
    struct str key;

    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    key = str_trim(core_cut(p, c->from, p->pos));
    if (which == 1)
        return key.len == 0 ? pop_bracket(p, '}') : STEP_NO;
    if (!key_plain(p, key))
        return STEP_NO;
    buf_add_str(&c->key, key);
    p->pos++;
    return STEP_YES;
}

static enum step read_gemma_key(struct parser *p)
{
    struct tool_call *c = &p->call;
    const char *mark;
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    c->unsaid = c->from = p->pos;
    buf_clear(&c->key);
    r = key_mark(p, &mark);
    if (r == STEP_YES)
        r = mark ? marked_key(p, mark) : plain_key(p);
    if (r == STEP_MORE)
        p->pos = c->from;
    if (r != STEP_YES || c->st != ST_KEY)
        return r;
    if (c->depth == 1)
        c->types = tool_call_types(p, buf_str(&c->key));
    c->st = ST_VALUE;
    return STEP_YES;
}

/* Writes what precedes a value: a comma (n_params: the number of values before), a key. */
static void begin_gemma_value(struct tool_call *c)
{
    buf_puts(&c->made, c->n_params ? ", " : "");
    if (c->levels[c->depth - 1] != '{')
        return;
    buf_add_c(&c->made, '"');
    value_escape(&c->made, buf_str(&c->key));
    buf_puts(&c->made, "\": ");
}

static enum step read_value(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    if (core_over(p))
        return STEP_NO;
    r = core_lit(p, p->pos, p->grammar->gemma->quote);
    if (r == STEP_MORE)
        return r;
    if (core_at(p, p->pos) == ']' && c->levels[c->depth - 1] == '[')
        return pop_bracket(p, ']');
    begin_gemma_value(c);
    c->n_params = 0;
    c->from = p->pos;
    c->field = 0;
    if (r == STEP_YES) {
        core_eat(p, p->grammar->gemma->quote);
        c->from = p->pos;
        c->st = ST_STRING;
    } else if (strchr("{[", core_at(p, p->pos))) {
        p->pos++;
        r = push_bracket(c, core_at(p, p->pos - 1)) ? STEP_YES : STEP_NO;
        c->unsaid = p->pos;
        return r;
    } else {
        c->st = core_at(p, p->pos) == '"' ? ST_QUOTED : ST_WORD;
    }
    c->unsaid = c->from;
    return STEP_YES;
}

static void value_done(struct parser *p)
{
    p->call.st = ST_AFTER;
    p->call.unsaid = p->pos;
}

static enum step read_string(struct parser *p)
{
    const struct gemma_shape *shape = p->grammar->gemma;
    struct tool_call *c = &p->call;
    bool typed = shape->all_quoted && c->depth == 1 && !value_verbatim(c->types);
    size_t which;
    enum step r = core_find(p, &shape->quote, 1, &which);
    struct str text = core_cut(p, c->from, p->pos);

    if (typed && r != STEP_YES)
        return r;
    if (typed) {
        value_write_loose(&c->made, text, c->types);
    } else {
        buf_puts(&c->made, c->field ? "" : "\"");
        c->field = 1;
        value_escape(&c->made, text);
        c->unsaid = c->from = p->pos;
    }
    if (r != STEP_YES)
        return r;
    buf_puts(&c->made, typed ? "" : "\"");
    core_eat(p, shape->quote);
    value_done(p);
    return STEP_YES;
}

/* Reads a text in JSON's quotes. */
static enum step read_quoted(struct parser *p)
{
    struct tool_call *c = &p->call;

    for (p->pos = MAX_OF(p->pos, c->from + 1); p->pos < core_end(p); p->pos++) {
        if (core_at(p, p->pos) == '"' && !c->field) {
            p->pos++;
            if (!object_scan_valid(core_cut(p, c->from, p->pos)))
                return STEP_NO;
            buf_add_str(&c->made, core_cut(p, c->from, p->pos));
            value_done(p);
            return STEP_YES;
        }
        c->field = core_at(p, p->pos) == '\\' && !c->field; /* whether the next byte is escaped */
    }
    return STEP_MORE;
}

/* Reports whether the word is an integer and a dot: both engines read "3." as 3.0. */
static bool is_dotted(struct str word)
{
    size_t sign = word.len > 0 && word.p[0] == '-';

    for (size_t i = sign; i + 1 < word.len; i++)
        if (word.p[i] < '0' || word.p[i] > '9')
            return false;
    return str_ends(word, STR(".")) && object_scan_valid(str_sub(word, 0, word.len - 1));
}

/* Writes a value without marks. A word that has no other meaning is an empty text, as in both
 * engines. */
static void write_word(struct buf *out, struct str word)
{
    if (word.len == 0) {
        buf_puts(out, "\"\"");
    } else if (is_dotted(word)) {
        buf_add_str(out, word);
        buf_add_c(out, '0');
    } else {
        value_write_loose(out, word, 0);
    }
}

static enum step read_word(struct parser *p)
{
    static const char *const stops[] = {",", "}", "]"};
    struct tool_call *c = &p->call;
    size_t which;
    enum step r = core_find(p, stops, ARRAY_LEN(stops), &which);

    struct str word;

    if (r != STEP_YES)
        return r;
    word = str_trim(core_cut(p, c->from, p->pos));
    if (c->levels[c->depth - 1] == '[' && word.len == 0)
        return STEP_NO;
    if (str_find(word, str_cstr(p->grammar->gemma->quote), 0) != SIZE_MAX)
        return STEP_NO;
    write_word(&c->made, word);
    value_done(p);
    return STEP_YES;
}

static enum step behind_value(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    if (core_over(p))
        return STEP_NO;
    if (core_at(p, p->pos) != ',')
        return pop_bracket(p, core_at(p, p->pos));
    p->pos++;
    c->n_params = 1;
    c->st = c->levels[c->depth - 1] == '{' ? ST_KEY : ST_VALUE;
    c->unsaid = p->pos;
    return STEP_YES;
}

enum step gemma_call_run(struct parser *p)
{
    static enum step (*const steps[])(struct parser * p) = {
        [ST_NAME] = read_gemma_name, [ST_KEY] = read_gemma_key, [ST_VALUE] = read_value,
        [ST_STRING] = read_string,   [ST_QUOTED] = read_quoted, [ST_WORD] = read_word,
        [ST_AFTER] = behind_value,
    };
    enum step r = STEP_YES;

    while (r == STEP_YES && p->call.st < ST_CLOSE)
        r = steps[p->call.st](p);
    return r == STEP_YES ? core_eat_close(p, p->grammar->gemma->end) : r;
}
