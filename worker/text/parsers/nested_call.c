/*
 * MiniMax-M3's calls: parameters are elements, their values are text or further elements, and every
 * tag follows a mark M that no text contains:
 *   M<invoke name="NAME"> M<key>text M</key> M<list> M<item>text M</item> M</list> M</invoke>
 *
 * The tool's schema decides what is a text, and whether elements are a list or an object. Without a
 * schema, elements called item are a list. Successive elements with the same name are a list as
 * well. The arguments are composed. Texts that the schema declares as text are streamed.
 */
#include <string.h>

#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/shapes.h"

#define MARK "]<]minimax[>["

enum { ST_NAME, ST_INSIDE, ST_TAG, ST_DONE };

/* Kind of an element so far: struct tool_call's levels. */
enum { LEVEL_UNKNOWN, LEVEL_OBJECT, LEVEL_LIST, LEVEL_FILLED = 4, LEVEL_REPEATS = 8 };

enum { UNIONS = 4 }; /* levels of anyOf and the like in which a property is searched */

static unsigned types_here(const struct parser *p)
{
    const struct json *schema = p->call.schemas[p->call.depth];

    return schema ? tool_index_types(p->tools, schema) : 0;
}

static enum step read_element_name(struct parser *p)
{
    static const char *const stop[] = {"\">"};
    struct tool_call *c = &p->call;
    size_t which;
    bool known;
    enum step r;

    if (!c->from)
        c->from = p->pos;
    r = core_find(p, stop, 1, &which);
    if (core_beyond(p, c->from, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES)
        return r;
    buf_add_str(&c->name, str_trim(core_cut(p, c->from, p->pos)));
    p->pos += 2;
    c->args_made = true;
    c->schemas[0] = tool_call_schema(p, &known);
    c->levels[0] = LEVEL_OBJECT;
    buf_puts(&c->made, "{");
    c->unsaid = c->from = p->pos;
    c->st = ST_INSIDE;
    return tool_call_ready(p);
}

/* Sends text of an element at once if the schema declares it as text. */
static void send_text(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (c->levels[c->depth] != LEVEL_UNKNOWN || types_here(p) != TYPE_STRING ||
        (!c->field && p->pos == c->from))
        return;
    buf_puts(&c->made, c->field ? "" : "\"");
    c->field = 1;
    value_escape(&c->made, core_cut(p, c->from, p->pos));
    c->unsaid = c->from = p->pos;
}

/* Reads text up to the next tag. */
static enum step read_inside(struct parser *p)
{
    static const char *const mark[] = {MARK};
    struct tool_call *c = &p->call;
    size_t which;
    enum step r = core_find(p, mark, 1, &which);

    send_text(p);
    if (r != STEP_YES)
        return r;
    if (c->levels[c->depth] != LEVEL_UNKNOWN && !core_all_blank(core_cut(p, c->from, p->pos)))
        return STEP_NO;
    c->st = ST_TAG;
    c->args_sent = p->pos; /* start of the tag's mark */
    return STEP_YES;
}

/* Decides the kind of an element by the first element inside of it. */
static void decide_level(struct parser *p, struct str tag)
{
    struct tool_call *c = &p->call;
    unsigned types = types_here(p) & (TYPE_OBJECT | TYPE_ARRAY);
    bool list = types == TYPE_ARRAY || (types != TYPE_OBJECT && str_eq_c(tag, "item"));

    c->levels[c->depth] = list ? LEVEL_LIST : LEVEL_OBJECT;
    buf_add_c(&c->made, list ? '[' : '{');
}

/* Returns the name of the element at a level, or of the last one there. `key` has the names of all
 * levels. */
static struct str name_at(const struct tool_call *c, unsigned level)
{
    size_t from = level > 1 ? c->name_ends[level - 1] : 0;

    return str_sub(buf_str(&c->key), from, c->name_ends[level] - from);
}

static void set_name(struct tool_call *c, unsigned level, struct str name)
{
    c->key.len = level > 1 ? c->name_ends[level - 1] : 0;
    buf_add_str(&c->key, name);
    c->name_ends[level] = (uint16_t)c->key.len;
}

/* Handles an element with the name of the one before: both become a list, or the list grows.
 * Returns false if what was sent already cannot become a list. */
static bool repeat_member(struct parser *p)
{
    struct tool_call *c = &p->call;
    struct buf *made = &c->made;
    size_t from = c->values[c->depth + 1];

    if (c->levels[c->depth] & LEVEL_REPEATS) {
        buf_puts(made, ", ");
        return true;
    }
    if (c->committed || p->pos - p->done >= p->hold_bytes)
        return false;
    if (made->p[from] == '[') {
        made->len--;
    } else {
        buf_add_c(made, '[');
        memmove(made->p + from + 1, made->p + from, made->len - 1 - from);
        made->p[from] = '[';
    }
    buf_puts(made, made->len == from + 1 ? "" : ", ");
    c->levels[c->depth] |= LEVEL_REPEATS;
    return true;
}

/* Ends the list of such elements, if there is one. */
static void end_repeats(struct tool_call *c)
{
    if (c->levels[c->depth] & LEVEL_REPEATS)
        buf_add_c(&c->made, ']');
    c->levels[c->depth] &= (uint8_t)~LEVEL_REPEATS;
}

/* Writes what precedes a value: a comma, a key. Returns false if no value is possible here. */
static bool begin_member(struct parser *p, struct str tag)
{
    struct tool_call *c = &p->call;
    unsigned level = c->levels[c->depth];

    if (level & LEVEL_OBJECT && level & LEVEL_FILLED && str_eq(name_at(c, c->depth + 1), tag))
        return repeat_member(p);
    end_repeats(c);
    buf_puts(&c->made, level & LEVEL_FILLED ? ", " : "");
    c->levels[c->depth] |= LEVEL_FILLED;
    if (level & LEVEL_OBJECT) {
        buf_add_c(&c->made, '"');
        value_escape(&c->made, tag);
        buf_puts(&c->made, "\": ");
    }
    c->values[c->depth + 1] = c->made.len;
    return true;
}

static bool open_element(struct parser *p, struct str tag)
{
    struct tool_call *c = &p->call;
    const struct json *outer;
    bool list;

    if (c->depth + 1 == CALL_DEPTH_MAX || c->field || tag.len == 0)
        return false;
    if (c->levels[c->depth] == LEVEL_UNKNOWN) {
        if (!core_all_blank(core_cut(p, c->from, c->args_sent)))
            return false;
        decide_level(p, tag);
    }
    outer = c->schemas[c->depth];
    list = c->levels[c->depth] & LEVEL_LIST;
    if (!begin_member(p, tag))
        return false;
    set_name(c, c->depth + 1, tag);
    if (outer)
        outer = list ? json_get(outer, "items") : tool_index_property(p->tools, outer, tag, UNIONS);
    c->schemas[++c->depth] = outer;
    c->levels[c->depth] = LEVEL_UNKNOWN;
    return true;
}

static void write_leaf(struct parser *p, struct str text)
{
    struct tool_call *c = &p->call;
    unsigned types = types_here(p);

    if (core_all_blank(text) && types == TYPE_ARRAY)
        buf_puts(&c->made, "[]");
    else if (core_all_blank(text) && types == TYPE_OBJECT)
        buf_puts(&c->made, "{}");
    else if (types)
        value_write(&c->made, text, types);
    else
        value_write_loose(&c->made, text, types);
}

/* Closes an element. Returns false if the tag belongs to a different element. */
static bool close_element(struct parser *p, struct str tag)
{
    struct tool_call *c = &p->call;
    unsigned level = c->levels[c->depth];

    if (!str_eq(name_at(c, c->depth), tag))
        return false;
    end_repeats(c);
    if (level & (LEVEL_LIST | LEVEL_OBJECT))
        buf_add_c(&c->made, level & LEVEL_LIST ? ']' : '}');
    else if (c->field)
        buf_add_c(&c->made, '"');
    else
        write_leaf(p, core_cut(p, c->from, c->args_sent));
    c->field = 0;
    c->depth--;
    return true;
}

/* Reads <key>, </key>, or </invoke> after the mark. */
static enum step read_tag(struct parser *p)
{
    static const char *const stop[] = {">"};
    struct tool_call *c = &p->call;
    struct str tag;
    size_t which;
    enum step r;

    p->pos = c->args_sent + strlen(MARK);
    r = core_blanks(p);
    if (r == STEP_YES)
        r = core_find(p, stop, 1, &which);
    if (core_beyond(p, c->args_sent, NAME_MAX_BYTES))
        return STEP_NO;
    if (r != STEP_YES) {
        p->pos = c->args_sent;
        return r;
    }
    tag = str_trim(core_cut(p, c->args_sent + strlen(MARK), p->pos));
    if (tag.len < 2 || tag.p[0] != '<')
        return STEP_NO;
    p->pos++;
    if (tag.p[1] != '/') {
        if (!open_element(p, str_sub(tag, 1, tag.len)))
            return STEP_NO;
    } else if (c->depth > 0) {
        if (!close_element(p, str_trim(str_sub(tag, 2, tag.len))))
            return STEP_NO;
    } else if (str_eq_c(tag, "</invoke")) {
        end_repeats(c);
        buf_puts(&c->made, "}");
        c->st = ST_DONE;
        return STEP_YES;
    } else {
        return STEP_NO;
    }
    c->unsaid = c->from = p->pos;
    c->st = ST_INSIDE;
    return STEP_YES;
}

enum step nested_call_run(struct parser *p)
{
    enum step r = STEP_YES;

    while (r == STEP_YES && p->call.st != ST_DONE)
        r = p->call.st == ST_NAME     ? read_element_name(p)
            : p->call.st == ST_INSIDE ? read_inside(p)
                                      : read_tag(p);
    return r;
}
