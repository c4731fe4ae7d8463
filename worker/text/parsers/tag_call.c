/*
 * Calls whose parameters are in tags, one by one, as plain text: the arguments are composed (struct
 * tag_shape; families.c has the tags of Qwen3-Coder, MiniMax, DSML, GLM, Hunyuan ...). The text of
 * a string-only parameter streams. A long list or object that is JSON so far also streams when it
 * exceeds hold_bytes. Other values wait for their end.
 */
#include <string.h>

#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/shapes.h"

enum {
    ST_NAME,
    ST_NAME_REST,
    ST_BODY,
    ST_KEY,
    ST_KIND,
    ST_TYPE,
    ST_VALUE_TAG,
    ST_VALUE,
    ST_JSON,
    ST_DONE
};

/* Notation of the present call: struct tool_call's `stage`. */
enum { AS_UNKNOWN, AS_TAGS, AS_JSON };

/* How the present value is being sent: struct tool_call's `field`. */
enum { VALUE_WAITS, VALUE_TEXT, VALUE_JSON };

static bool name_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.p[i] <= ' ' || strchr("<>\"{}", s.p[i]))
            return false;
    return s.len > 0;
}

/* Handles <invoke name="N"/>: a call without parameters. */
static void self_close(struct parser *p, const char *mark)
{
    core_eat(p, mark);
    buf_puts(&p->call.made, "{}");
    p->call.st = ST_DONE;
}

/* Shortens NAME.NAME to NAME if no tool has the long name. */
static void halve_double_name(struct parser *p)
{
    struct buf *name = &p->call.name;
    size_t half = name->len / 2;
    bool known;

    (void)tool_call_schema(p, &known);
    if ((!known || !p->tools) && name->len % 2 && name->p[half] == '.' &&
        memcmp(name->p, name->p + half + 1, half) == 0)
        name->len = half;
}

static enum step read_tag_name(struct parser *p, const struct tag_shape *t)
{
    struct tool_call *c = &p->call;
    struct str name;
    size_t which = 0;
    enum step r;

    if (!c->from)
        c->from = p->pos;
    r = core_find(p, t->name_stops, ARRAY_LEN(t->name_stops), &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    name = str_trim(core_cut(p, c->from, p->pos));
    if (t->entities)
        value_unescape_xml(&c->name, name);
    else
        buf_add_str(&c->name, name);
    if (!name_plain(buf_str(&c->name)))
        return STEP_NO;
    if (t->doubled)
        halve_double_name(p);
    c->args_made = true;
    c->from = p->pos;
    c->st = t->name_rest ? ST_NAME_REST : ST_BODY;
    if (which == 0 || !t->name_stops[which][1])
        core_eat(p, t->name_stops[which]);
    else if (t->self_closes)
        self_close(p, t->name_stops[which]);
    return tool_call_ready(p);
}

/* Skips the rest of the name's tag: attributes without a meaning. */
static enum step skip_name_attributes(struct parser *p, const struct tag_shape *t)
{
    size_t which;
    enum step r = core_find(p, &t->name_rest, 1, &which);

    if (core_beyond(p, p->call.from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r == STEP_YES) {
        core_eat(p, t->name_rest);
        p->call.st = ST_BODY;
    }
    return r;
}

/* Replaces the arguments by the content of the only parameter, `arguments` or `input`, if no schema
 * declares it. */
static bool unwrap_arguments(struct parser *p, const struct json *schema)
{
    struct tool_call *c = &p->call;
    struct arena a = {0};
    const struct json *v = NULL;
    bool good = false;

    buf_add_c(&c->made, '}');
    if (json_parse(&a, buf_str(&c->made), &v, NULL) == 0 && v->n == 1) {
        v = &v->members[0].value;
        good = !json_is(v, JSON_STRING) || json_parse(&a, json_string(v), &v, NULL) == 0;
        good = good && v->kind == JSON_OBJECT;
    }
    for (uint32_t i = 0; good && i < v->n; i++)
        good = schema &&
               tool_index_property(p->tools, schema, json_text(&v->members[i].key), 0) != NULL;
    if (good) {
        buf_clear(&c->made);
        json_write(&c->made, v);
    }
    arena_done(&a);
    return good;
}

static enum step call_over(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (c->wrapped) {
        bool known;

        c->wrapped = false;
        c->ready = true;
        if (c->n_params == 1 && unwrap_arguments(p, tool_call_schema(p, &known)))
            return STEP_YES;
        c->made.len--;
    }
    buf_puts(&c->made, c->n_params ? "}" : "{}");
    return STEP_YES;
}

/* Ends a call whose own mark is missing: the section closes, or all text ends. */
static enum step call_unclosed(struct parser *p)
{
    p->call.unclosed = true;
    return call_over(p);
}

static enum step body_step(struct parser *p, const struct tag_shape *t)
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
        c->ready = true;
        c->wrapped = false;
        return STEP_YES;
    }
    end = core_lit(p, p->pos, p->grammar->end);
    if (end == STEP_YES) {
        core_eat(p, p->grammar->end);
        return call_over(p);
    }
    section = t->early_stops && p->grammar->close[0] ? core_lit(p, p->pos, p->grammar->close[0])
                                                     : STEP_NO;
    if (section == STEP_YES)
        return call_unclosed(p);
    if (t->json_body && !c->n_params && core_at(p, p->pos) == '{') {
        c->args_made = false;
        c->st = ST_JSON;
        return STEP_YES;
    }
    return param == STEP_MORE || end == STEP_MORE || section == STEP_MORE ? STEP_MORE : STEP_NO;
}

/* Reports whether a text can be a key that no schema declares. If it has a blank, a tag or a colon,
 * the model has left out the key's end, and the rest is a value. */
static bool key_plain(struct str s)
{
    return s.len > 0 && name_plain(s) && !memchr(s.p, ':', s.len) && s.p[s.len - 1] != '=';
}

/* Reports whether the present key may be a wrapper. After a commit it cannot be. */
static bool may_wrap(const struct parser *p, const struct json *schema)
{
    const struct tool_call *c = &p->call;
    struct str key = buf_str(&c->key);

    return (str_eq_c(key, "arguments") || str_eq_c(key, "input")) && c->n_params == 0 &&
           !c->committed && p->pos - p->done < p->hold_bytes && schema &&
           json_is(json_get(schema, "properties"), JSON_OBJECT) &&
           !tool_index_property(p->tools, schema, key, 0);
}

static enum step read_tag_key(struct parser *p, const struct tag_shape *t)
{
    struct tool_call *c = &p->call;
    const struct json *schema;
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
    if (t->entities)
        value_unescape_xml(&c->key, key);
    else
        buf_add_str(&c->key, t->loose ? str_trim(key) : key);
    schema = tool_call_schema(p, &known);
    c->types = tool_call_types(p, buf_str(&c->key));
    if (!c->types && !key_plain(buf_str(&c->key)))
        return STEP_NO;
    if (!c->types && !t->loose)
        c->types = TYPE_STRING;
    c->wrapped = t->unwraps && may_wrap(p, schema);
    c->ready = !c->wrapped;
    core_eat(p, t->key_stop);
    object_scan_init(&c->scan);
    c->args_sent = c->args_from = 0;
    c->st = t->kind_forms[0] ? ST_KIND
            : t->type_tag[0] ? ST_TYPE
            : t->value_tag   ? ST_VALUE_TAG
                             : ST_VALUE;
    c->from = p->pos;
    return STEP_YES;
}

/* Reads whether a value is text, which DSML states explicitly. */
static enum step read_kind(struct parser *p, const struct tag_shape *t)
{
    static const unsigned types[] = {TYPE_STRING, 0, 0};
    enum step best = STEP_NO;

    for (size_t i = 0; i < ARRAY_LEN(t->kind_forms); i++) {
        enum step r = core_eat(p, t->kind_forms[i]);

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

/* Reads a type in words: text, or what JSON says. */
static enum step read_type(struct parser *p, const struct tag_shape *t)
{
    struct tool_call *c = &p->call;
    size_t which, begins;
    enum step r = core_blanks(p);

    if (r == STEP_YES)
        r = core_lit(p, p->pos, t->type_tag[0]);
    if (r == STEP_MORE)
        return r;
    c->st = t->value_tag ? ST_VALUE_TAG : ST_VALUE;
    if (r == STEP_NO)
        return STEP_YES;
    begins = p->pos;
    p->pos += strlen(t->type_tag[0]);
    c->from = p->pos;
    r = core_find(p, &t->type_tag[1], 1, &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES) {
        p->pos = begins;
        c->st = ST_TYPE;
        return r;
    }
    c->types = str_eq_c(str_trim(core_cut(p, c->from, p->pos)), "string") ? TYPE_STRING : 0;
    core_eat(p, t->type_tag[1]);
    return STEP_YES;
}

static enum step read_value_tag(struct parser *p, const struct tag_shape *t)
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
static struct str value_text(const struct parser *p, const struct tag_shape *t, size_t to)
{
    struct str s = core_cut(p, p->call.from, to);

    if (t->newlines && s.len && s.p[0] == '\n')
        s = str_sub(s, 1, s.len);
    if (t->newlines && s.len && s.p[s.len - 1] == '\n')
        s.len--;
    return s;
}

static bool is_verbatim(const struct parser *p, const struct tag_shape *t)
{
    unsigned types = p->call.types;

    return value_verbatim(t->loose ? types & ~(unsigned)TYPE_NULL : types);
}

/* Reports whether the present value begins like a quoted text, or has no bytes yet. */
static bool may_be_quoted(struct parser *p)
{
    size_t at = core_blanks_end(p, p->call.from);

    return p->call.field == VALUE_WAITS && (at >= p->pos || core_at(p, at) == '"');
}

/* Sends the text so far of an open string, except bytes that may still be layout or a mark. */
static void compose_piece(struct parser *p, const struct tag_shape *t)
{
    struct tool_call *c = &p->call;
    struct str s = core_cut(p, c->from, p->pos);

    if (!is_verbatim(p, t) || t->xml || (t->json_text && may_be_quoted(p)))
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

/* Reports whether a value of the parameter's types that begins like JSON may be sent as JSON. */
static bool may_be_json(const struct parser *p, const struct tag_shape *t)
{
    unsigned types = p->call.types;

    if (t->xml)
        return false;
    if (t->loose)
        return !is_verbatim(p, t);
    return types & (TYPE_OBJECT | TYPE_ARRAY) && !(types & TYPE_STRING);
}

/* Follows one byte of the value as JSON. args_from is set where the JSON ends. */
static void follow_byte(struct parser *p, size_t at)
{
    struct tool_call *c = &p->call;
    char byte = core_at(p, at);
    bool begun = c->scan.state != SCAN_VALUE || c->scan.depth > 0;

    if (!begun && core_blank(byte)) {
        c->from = at + 1; /* skips white space before the value */
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

/* Follows the value as JSON up to pos. A list or object that has become long is sent as it arrives.
 * Returns NO, with pos at the wrong byte, if a value that was sent partly is not JSON. */
static enum step compose_json(struct parser *p, const struct tag_shape *t)
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

/* Writes the whole value, from `from` to pos. */
static void write_tag_value(struct parser *p, const struct tag_shape *t)
{
    struct str raw = value_text(p, t, p->pos);
    struct tool_call *c = &p->call;
    struct buf plain = {0};
    struct str s = str_trim(raw);

    if (t->json_text && s.len && s.p[0] == '"' && object_scan_valid(s)) {
        buf_add_str(&c->made, s);
        return;
    }
    if (t->xml) {
        value_unescape_xml(&plain, s);
        raw = buf_str(&plain);
    }
    if (t->loose)
        value_write_loose(&c->made, raw, c->types);
    else
        value_write(&c->made, raw, c->types);
    buf_done(&plain);
}

static enum step compose_value(struct parser *p, const struct tag_shape *t)
{
    struct tool_call *c = &p->call;

    if (compose_json(p, t) != STEP_YES)
        return STEP_NO;
    if (is_verbatim(p, t))
        compose_piece(p, t);
    if (c->field == VALUE_TEXT) {
        buf_add_c(&c->made, '"');
    } else if (c->field == VALUE_WAITS) {
        begin_param(p);
        write_tag_value(p, t);
    } else if (c->scan.state != SCAN_DONE) {
        return STEP_NO;
    }
    c->field = VALUE_WAITS;
    return STEP_YES;
}

static enum step read_value(struct parser *p, const struct tag_shape *t)
{
    const char *marks[] = {t->param_end, t->early_stops ? t->param : NULL,
                           t->early_stops ? p->grammar->end : NULL};
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

/* Reads the object that replaces parameters. Its closing mark is missing if a further call begins
 * or all text ends. */
static enum step json_body(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r = c->args_to ? STEP_YES : tool_call_scan_args(p);

    if (r == STEP_YES)
        r = core_blanks(p);
    if (r != STEP_YES)
        return r;
    r = core_lit(p, p->pos, p->grammar->begin[0]);
    if (r != STEP_NO) {
        c->unclosed = r == STEP_YES;
        return r;
    }
    return core_eat_close(p, p->grammar->end);
}

static enum step tags_step(struct parser *p, const struct tag_shape *t)
{
    switch (p->call.st) {
    case ST_NAME:
        return read_tag_name(p, t);
    case ST_NAME_REST:
        return skip_name_attributes(p, t);
    case ST_BODY:
        return body_step(p, t);
    case ST_KEY:
        return read_tag_key(p, t);
    case ST_KIND:
        return read_kind(p, t);
    case ST_TYPE:
        return read_type(p, t);
    case ST_VALUE_TAG:
        return read_value_tag(p, t);
    case ST_VALUE:
        return read_value(p, t);
    case ST_JSON:
        return json_body(p);
    default:
        return STEP_YES;
    }
}

/* Reports whether a whole call in JSON is in the place of the name. */
static enum step choose_notation(struct parser *p)
{
    enum step r = core_blanks(p);

    if (r == STEP_YES)
        p->call.stage = !core_over(p) && core_at(p, p->pos) == '{' ? AS_JSON : AS_TAGS;
    return r;
}

enum step tag_call_run(struct parser *p)
{
    const struct tag_shape *t = p->grammar->tags;
    struct tool_call *c = &p->call;
    enum step r = STEP_YES;

    if (t->json_call && c->stage == AS_UNKNOWN)
        r = choose_notation(p);
    if (r == STEP_YES && c->stage == AS_JSON)
        return json_call_run(p);
    while (r == STEP_YES && c->st != ST_DONE) {
        int was = c->st;

        r = tags_step(p, t);
        /* After the body's end, or an object instead of a body, no further state follows. */
        if (r == STEP_YES && c->st == was && (was == ST_BODY || was == ST_JSON))
            return r;
    }
    return r;
}
