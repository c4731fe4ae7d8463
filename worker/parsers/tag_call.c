/*
 * Calls whose parameters stand in tags, one by one, as plain text: the arguments are composed.
 *   qwen3_coder  <tool_call> (<function=NAME> (<parameter=KEY>\nVALUE\n</parameter>)* </function>)+
 *   minimax_m2   <minimax:tool_call> (<invoke name="NAME"> (<parameter name="KEY">V</parameter>)*
 *   deepseek_v32 <｜DSML｜function_calls> (<｜DSML｜invoke name="NAME"> parameters with
 * string="..." glm45 glm47  <tool_call>NAME (<arg_key>KEY</arg_key> <arg_value>VALUE</arg_value>)*
 * The text of a string-only parameter streams, and so does a long list or object that is JSON so
 * far (longer than hold_bytes: the same choice between truth and haste); other values wait for
 * their end.
 */
#include <string.h>

#include "worker/parsers/core.h"
#include "worker/parsers/param_value.h"

enum { ST_NAME, ST_BODY, ST_KEY, ST_KIND, ST_VALUE_TAG, ST_VALUE, ST_JSON, ST_DONE };

/* How much of the value being read is out: struct tool_call's `field`. */
enum { VALUE_WAITS, VALUE_TEXT, VALUE_JSON };

enum { NAME_MAX_BYTES = 256 };

struct tags {
    enum tool_kind kind;
    struct grammar grammar;
    const char *name_stops[3]; /* the first one is part of the tag, others begin what follows */
    const char *param;         /* parameter begins */
    const char *key_stop;
    const char *value_tag; /* stands between key and value, or NULL */
    const char *param_end; /* what closes the value */
    bool newlines;         /* one newline at either end of a value is layout */
    bool early_stops;      /* the next parameter or the function's end closes a value as well */
    bool loose;            /* GLM's typing */
};

static const struct tags *tags_of(const struct parser *p);

static bool name_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.p[i] <= ' ' || strchr("<>\"{}", s.p[i]))
            return false;
    return s.len > 0;
}

/* <invoke name="N"/>: a call without parameters. */
static void self_close(struct parser *p, const char *mark)
{
    core_eat(p, mark);
    buf_puts(&p->call.made, "{}");
    p->call.st = ST_DONE;
}

static enum step read_name(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;
    size_t which = 0;
    enum step r;

    if (!c->from)
        c->from = p->pos;
    r = core_find(p, t->name_stops, ARRAY_LEN(t->name_stops), &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    buf_add_str(&c->name, str_trim(core_cut(p, c->from, p->pos)));
    if (!name_plain(buf_str(&c->name)))
        return STEP_NO;
    c->args_made = true;
    c->st = ST_BODY;
    if (which == 0)
        core_eat(p, t->name_stops[0]);
    else if (t->kind == TOOL_DEEPSEEK_V32)
        self_close(p, t->name_stops[which]);
    return tool_call_ready(p);
}

static enum step call_over(struct parser *p)
{
    struct tool_call *c = &p->call;

    buf_puts(&c->made, c->n_params ? "}" : "{}");
    return STEP_YES;
}

/* The section closes, or all text ends, where the call's own mark should stand. */
static enum step call_unclosed(struct parser *p)
{
    p->call.unclosed = true;
    return call_over(p);
}

static enum step body_step(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;
    enum step param, end, section;

    if (core_blanks(p) != STEP_YES)
        return STEP_MORE;
    if (core_over(p))
        return t->early_stops && c->n_params ? call_unclosed(p) : STEP_NO;
    c->unsaid = p->pos;
    param = core_eat(p, t->param);
    if (param == STEP_YES) {
        c->from = p->pos;
        c->st = ST_KEY;
        return STEP_YES;
    }
    end = core_lit(p, p->pos, t->grammar.end);
    if (end == STEP_YES) {
        core_eat(p, t->grammar.end);
        return call_over(p);
    }
    section = t->early_stops ? core_lit(p, p->pos, t->grammar.close[0]) : STEP_NO;
    if (section == STEP_YES)
        return call_unclosed(p);
    if (t->kind == TOOL_DEEPSEEK_V32 && !c->n_params && core_at(p, p->pos) == '{') {
        c->args_made = false;
        c->st = ST_JSON;
        return STEP_YES;
    }
    return param == STEP_MORE || end == STEP_MORE || section == STEP_MORE ? STEP_MORE : STEP_NO;
}

static enum step read_key(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;
    size_t which;
    struct str key;
    bool known;
    enum step r = core_find(p, &t->key_stop, 1, &which);

    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    key = core_cut(p, c->from, p->pos);
    buf_clear(&c->key);
    buf_add_str(&c->key, t->loose ? str_trim(key) : key);
    c->types = value_param_types(tool_call_schema(p, &known), buf_str(&c->key));
    if (!c->types && !t->loose)
        c->types = TYPE_STRING;
    core_eat(p, t->key_stop);
    object_scan_init(&c->scan);
    c->args_sent = c->args_from = 0;
    c->st = t->kind == TOOL_DEEPSEEK_V32 ? ST_KIND : t->value_tag ? ST_VALUE_TAG : ST_VALUE;
    c->from = p->pos;
    return STEP_YES;
}

/* DSML says by itself whether a value is text. */
static enum step read_kind(struct parser *p)
{
    static const char *const forms[] = {" string=\"true\">", " string=\"false\">", ">"};
    static const unsigned types[] = {TYPE_STRING, 0, 0};
    enum step best = STEP_NO;

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        enum step r = core_eat(p, forms[i]);

        if (r == STEP_YES) {
            if (i < 2)
                p->call.types = types[i];
            p->call.from = p->pos;
            p->call.st = ST_VALUE;
            return r;
        }
        if (r == STEP_MORE)
            best = r;
    }
    return best;
}

static enum step read_value_tag(struct parser *p, const struct tags *t)
{
    enum step r = core_blanks(p);

    if (r == STEP_YES)
        r = core_eat(p, t->value_tag);
    if (r != STEP_YES)
        return r;
    p->call.from = p->pos;
    p->call.st = ST_VALUE;
    return r;
}

static void begin_param(struct parser *p)
{
    struct tool_call *c = &p->call;

    buf_puts(&c->made, c->n_params++ ? ", \"" : "{\"");
    value_escape(&c->made, buf_str(&c->key));
    buf_puts(&c->made, "\": ");
    c->unsaid = 0;
}

/* The value's text without the layout newlines. */
static struct str value_text(const struct parser *p, const struct tags *t, size_t to)
{
    struct str s = core_cut(p, p->call.from, to);

    if (t->newlines && s.len && s.p[0] == '\n')
        s = str_sub(s, 1, s.len);
    if (t->newlines && s.len && s.p[s.len - 1] == '\n')
        s.len--;
    return s;
}

static bool verbatim(const struct parser *p, const struct tags *t)
{
    unsigned types = p->call.types;

    return value_verbatim(t->loose ? types & ~(unsigned)TYPE_NULL : types);
}

/* Text so far of a string that is not over: all but what may still be layout or a mark. */
static void compose_piece(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;
    struct str s = core_cut(p, c->from, p->pos);

    if (!verbatim(p, t))
        return;
    if (c->field == VALUE_WAITS) {
        s = value_text(p, t, p->pos);
        if (!s.len)
            return;
        begin_param(p);
        buf_add_c(&c->made, '"');
        c->field = VALUE_TEXT;
    } else if (t->newlines && s.len && s.p[s.len - 1] == '\n') {
        s.len--;
    }
    value_escape(&c->made, s);
    c->from = p->base + (size_t)(s.p - p->in.p) + s.len;
}

/* Whether a value of the parameter's types that begins like JSON may be sent as JSON. */
static bool may_be_json(const struct parser *p, const struct tags *t)
{
    unsigned types = p->call.types;

    if (t->loose)
        return !verbatim(p, t);
    return types & (TYPE_OBJECT | TYPE_ARRAY) && !(types & TYPE_STRING);
}

/* One byte of the value that is followed as JSON; args_from is set where the JSON ends. */
static void follow_byte(struct parser *p, size_t at)
{
    struct tool_call *c = &p->call;
    char byte = core_at(p, at);
    bool begun = c->scan.state != SCAN_VALUE || c->scan.depth > 0;

    if (!begun && core_blank(byte)) {
        c->from = at + 1; /* white space in front */
        return;
    }
    if (c->scan.state == SCAN_DONE) {
        if (!core_blank(byte))
            c->scan.state = SCAN_BAD;
        return;
    }
    object_scan_byte(&c->scan, byte);
    if (c->scan.state == SCAN_DONE)
        c->args_from = at + 1;
    if (c->field == VALUE_WAITS && c->scan.state != SCAN_BAD && c->scan.depth > 0 &&
        at - c->from >= p->hold_bytes) {
        begin_param(p);
        c->field = VALUE_JSON;
    }
}

/* Follows the value as JSON up to pos. A list or object that has grown long goes out as it comes;
 * NO, with pos at the byte that is wrong: it has begun to and is no JSON. */
static enum step compose_json(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;
    size_t at = MAX_OF(c->args_sent, c->from);
    size_t to;

    if (!may_be_json(p, t))
        return STEP_YES;
    while (at < p->pos && c->scan.state != SCAN_BAD)
        follow_byte(p, at++);
    c->args_sent = at;
    if (c->field != VALUE_JSON)
        return STEP_YES;
    if (c->scan.state == SCAN_BAD)
        p->pos = --at;
    to = c->args_from ? c->args_from : at;
    if (to > c->from) {
        buf_add_str(&c->made, core_cut(p, c->from, to));
        c->from = to;
    }
    c->unsaid = c->scan.state == SCAN_BAD ? at : 0;
    return c->scan.state == SCAN_BAD ? STEP_NO : STEP_YES;
}

static enum step compose_value(struct parser *p, const struct tags *t)
{
    struct tool_call *c = &p->call;

    if (compose_json(p, t) != STEP_YES)
        return STEP_NO;
    if (verbatim(p, t))
        compose_piece(p, t);
    if (c->field == VALUE_TEXT) {
        buf_add_c(&c->made, '"');
    } else if (c->field == VALUE_WAITS) {
        begin_param(p);
        if (t->loose)
            value_write_loose(&c->made, value_text(p, t, p->pos), c->types);
        else
            value_write(&c->made, value_text(p, t, p->pos), c->types);
    } else if (c->scan.state != SCAN_DONE) {
        return STEP_NO;
    }
    c->field = VALUE_WAITS;
    return STEP_YES;
}

static enum step read_value(struct parser *p, const struct tags *t)
{
    const char *marks[] = {t->param_end, t->early_stops ? t->param : NULL,
                           t->early_stops ? t->grammar.end : NULL};
    size_t which = 0;

    if (core_find(p, marks, ARRAY_LEN(marks), &which) != STEP_YES) {
        compose_piece(p, t);
        return compose_json(p, t) == STEP_YES ? STEP_MORE : STEP_NO;
    }
    if (compose_value(p, t) != STEP_YES)
        return STEP_NO;
    if (which == 0)
        core_eat(p, t->param_end);
    p->call.st = ST_BODY;
    return STEP_YES;
}

static enum step json_body(struct parser *p, const struct tags *t)
{
    enum step r = p->call.args_to ? STEP_YES : tool_call_scan_args(p);

    return r == STEP_YES ? core_eat_close(p, t->grammar.end) : r;
}

static enum step tags_run(struct parser *p)
{
    const struct tags *t = tags_of(p);
    enum step r = STEP_YES;

    while (r == STEP_YES) {
        switch (p->call.st) {
        case ST_NAME:
            r = read_name(p, t);
            break;
        case ST_BODY:
            r = body_step(p, t);
            if (r == STEP_YES && p->call.st == ST_BODY)
                return r;
            break;
        case ST_KEY:
            r = read_key(p, t);
            break;
        case ST_KIND:
            r = read_kind(p);
            break;
        case ST_VALUE_TAG:
            r = read_value_tag(p, t);
            break;
        case ST_VALUE:
            r = read_value(p, t);
            break;
        case ST_JSON:
            return json_body(p, t);
        default:
            return STEP_YES;
        }
    }
    return r;
}

static const struct tags all_tags[] = {
    {
        .kind = TOOL_QWEN3_CODER,
        .grammar = {.open = {"<tool_call>"},
                    .begin = {"<function="},
                    .close = {"</tool_call>"},
                    .end = "</function>",
                    .run = tags_run},
        .name_stops = {">"},
        .param = "<parameter=",
        .key_stop = ">",
        .param_end = "</parameter>",
        .newlines = true,
        .early_stops = true,
    },
    {
        .kind = TOOL_MINIMAX_M2,
        .grammar = {.open = {"<minimax:tool_call>"},
                    .begin = {"<invoke name=\""},
                    .close = {"</minimax:tool_call>"},
                    .end = "</invoke>",
                    .run = tags_run},
        .name_stops = {"\">"},
        .param = "<parameter name=\"",
        .key_stop = "\">",
        .param_end = "</parameter>",
    },
    {
        .kind = TOOL_DEEPSEEK_V32,
        .grammar = {.open = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
                    .begin = {"<｜DSML｜invoke name=\""},
                    .close = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
                    .end = "</｜DSML｜invoke>",
                    .run = tags_run},
        .name_stops = {"\">", "\"/>", "\" />"},
        .param = "<｜DSML｜parameter name=\"",
        .key_stop = "\"",
        .param_end = "</｜DSML｜parameter>",
        .loose = true,
    },
    {
        .kind = TOOL_GLM45,
        .grammar = {.begin = {"<tool_call>"},
                    .end = "</tool_call>",
                    .within = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
                    .run = tags_run},
        .name_stops = {"\n", "<arg_key>", "</tool_call>"},
        .param = "<arg_key>",
        .key_stop = "</arg_key>",
        .value_tag = "<arg_value>",
        .param_end = "</arg_value>",
        .loose = true,
    },
};

static const struct tags *tags_of_kind(enum tool_kind kind)
{
    /* 4.7 only dropped the newline behind the name, which 4.5's reader accepts as well. */
    if (kind == TOOL_GLM47)
        kind = TOOL_GLM45;
    for (size_t i = 0; i < ARRAY_LEN(all_tags); i++)
        if (all_tags[i].kind == kind)
            return &all_tags[i];
    return NULL;
}

static const struct tags *tags_of(const struct parser *p)
{
    return tags_of_kind(p->tool);
}

const struct grammar *grammar_tags(enum tool_kind kind)
{
    const struct tags *t = tags_of_kind(kind);

    return t ? &t->grammar : NULL;
}
