/* Values as text (print.h): print_str is str(), print_repr is repr(), print_json is json.dumps().
 * All append to `out`. If one fails, `out` has a fragment of the text, which the caller removes.
 * Structures spend a level of depth for each level of nesting, because a namespace can contain
 * itself. */

#include "worker/text/template/print.h"

#include <math.h>

#include "worker/text/template/callable.h"
#include "worker/text/template/compare.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/number.h"
#include "worker/text/template/pystr.h"

/* Counts an item, and compares the text so far with the memory budget. */
static bool next_item(struct template_run *r, const struct buf *out)
{
    return run_spend(r, 1) && run_room(r, out->len);
}

/* Writes the reprs of the items, separated by commas. */
static bool repr_items(struct template_run *r, struct buf *out, struct list *l)
{
    list_need(r->a, l);
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            buf_puts(out, ", ");
        if (!next_item(r, out) || !print_repr(r, out, l->at[i]))
            return false;
    }
    return true;
}

/* Writes [...] or (...). A tuple of one has a comma after its item. */
static bool repr_seq(struct template_run *r, struct buf *out, struct value v)
{
    bool tuple = v.t == V_TUPLE;
    bool ok;

    if (!run_enter(r))
        return false;
    buf_add_c(out, tuple ? '(' : '[');
    ok = repr_items(r, out, v.list);
    if (tuple && v.list->n == 1)
        buf_add_c(out, ',');
    buf_add_c(out, tuple ? ')' : ']');
    run_leave(r);
    return ok;
}

/* Writes {key: value, ...}. */
static bool repr_dict(struct template_run *r, struct buf *out, struct dict *d)
{
    bool ok = true;

    if (!run_enter(r))
        return false;
    dict_need(r->a, d);
    buf_add_c(out, '{');
    for (uint32_t i = 0; i < d->n && ok; i++) {
        if (i)
            buf_puts(out, ", ");
        ok = next_item(r, out) && print_repr(r, out, d->at[i].key);
        buf_puts(out, ": ");
        ok = ok && print_repr(r, out, d->at[i].value);
    }
    buf_add_c(out, '}');
    run_leave(r);
    return ok;
}

/* Writes dict_keys([...]) and similar views. */
static bool repr_view(struct template_run *r, struct buf *out, struct value v)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    struct value items = iter_collect(r, v);
    bool ok = items.t != V_ERR;

    buf_puts(out, names[v.sub]);
    ok = ok && print_repr(r, out, items);
    buf_add_c(out, ')');
    return ok;
}

static void repr_range(struct buf *out, const struct py_range *g)
{
    buf_printf(out, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    if (g->step != 1)
        buf_printf(out, ", %lld", (long long)g->step);
    buf_add_c(out, ')');
}

/* Writes objects that templates hardly ever print. Addresses are left out, so that output is
 * repeatable. */
static bool repr_object(struct template_run *r, struct buf *out, struct value v)
{
    switch (v.t) {
    case V_NS:
        buf_puts(out, "<Namespace ");
        if (!repr_dict(r, out, v.dict))
            return false;
        buf_add_c(out, '>');
        return true;
    case V_LOOP: {
        struct value n = loop_length(r, v.loop);

        if (n.t == V_ERR)
            return false;
        buf_printf(out, "<LoopContext %lld/%lld>", (long long)v.loop->index, (long long)n.i);
        return true;
    }
    case V_CALL:
        if (v.call->kind == CALL_MACRO)
            buf_printf(out, "<Macro '%.*s'>", (int)v.call->macro->name.len, v.call->macro->name.p);
        else
            buf_printf(out, "<built-in method %s>", v.call->method->name);
        return true;
    default:
        buf_printf(out, "<%s object>", v_type_name(v));
        return true;
    }
}

enum { REPR_PART = 64 << 10 }; /* bytes of a text between two checks of the budget */

/* Writes a text's repr, which may be ten times as long. */
static bool repr_str(struct template_run *r, struct buf *out, struct value v)
{
    struct str s = v_bytes(v);
    char quote = pystr_quote(s);

    if (v.flags & VF_MARKUP)
        buf_puts(out, "Markup(");
    buf_add_c(out, quote);
    for (size_t at = 0; at < s.len;) {
        size_t end = at + MIN_OF(s.len - at, (size_t)REPR_PART);

        while (end < s.len && ((unsigned char)s.p[end] & 0xc0) == 0x80)
            end++;
        pystr_repr_inside(out, str_sub(s, at, end - at), quote);
        if (!run_spend_text(r, end - at, out->len))
            return false;
        at = end;
    }
    buf_add_c(out, quote);
    if (v.flags & VF_MARKUP)
        buf_add_c(out, ')');
    return true;
}

/* Appends a value's repr. */
bool print_repr(struct template_run *r, struct buf *out, struct value v)
{
    switch (v.t) {
    case V_NONE:
        buf_puts(out, "None");
        return true;
    case V_UNDEF:
        buf_puts(out, "Undefined");
        return true;
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        number_print(out, v);
        return true;
    case V_STR:
        return repr_str(r, out, v);
    case V_LIST:
    case V_TUPLE:
        return repr_seq(r, out, v);
    case V_DICT:
        return repr_dict(r, out, v.dict);
    case V_VIEW:
        return repr_view(r, out, v);
    case V_RANGE:
        repr_range(out, v.range);
        return true;
    default:
        return repr_object(r, out, v);
    }
}

/* Appends a text unchanged, nothing for an undefined value, the repr for everything else. */
bool print_str(struct template_run *r, struct buf *out, struct value v)
{
    if (v.t == V_STR) {
        buf_add(out, v.s, v.n);
        return true;
    }
    return v.t == V_UNDEF || print_repr(r, out, v);
}

/* --- json.dumps --- */

/* Writes the escape of one code point: a short one if JSON has it, else one or two \u. */
static void json_escape(struct buf *out, uint32_t cp)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *p = cp && cp < 128 ? strchr(from, (int)cp) : NULL;

    if (p) {
        buf_add_c(out, '\\');
        buf_add_c(out, to[p - from]);
    } else if (cp >= 0x10000) {
        cp -= 0x10000;
        buf_printf(out, "\\u%04x\\u%04x", 0xd800 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
    } else {
        buf_printf(out, "\\u%04x", cp);
    }
}

/* Copies runs that need no escape in one piece. Without ensure_ascii, UTF-8 is unchanged. The
 * budget is checked regularly, because escapes are six times as long as their characters. */
static bool dump_string(struct template_run *r, struct buf *out, struct str s, bool ensure_ascii)
{
    size_t from = 0, n_escapes = 0;

    if (!run_spend_text(r, s.len, out->len + s.len))
        return false;
    (void)buf_reserve(out, s.len + 2);
    buf_add_c(out, '"');
    for (size_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.p[i];

        if (c >= 0x20 && c != '"' && c != '\\' && (!ensure_ascii || c < 0x7f)) {
            i++;
            continue;
        }
        buf_add(out, s.p + from, i - from);
        json_escape(out, pystr_next(s, &i));
        from = i;
        if (++n_escapes % 4096 == 0 && !run_spend_text(r, 4096, out->len))
            return false;
    }
    buf_add(out, s.p + from, s.len - from);
    buf_add_c(out, '"');
    return true;
}

static bool dump_value(struct template_run *r, struct buf *out, struct value v,
                       const struct dump_options *o, int level);

/* Writes a line end and the indentation of a level, if there is an indentation. */
static void dump_newline(struct buf *out, const struct dump_options *o, int level)
{
    if (!o->indent.p)
        return;
    buf_add_c(out, '\n');
    for (int i = 0; i < level; i++)
        buf_add_str(out, o->indent);
}

/* Writes [...]. An empty list stays on one line. */
static bool dump_list(struct template_run *r, struct buf *out, struct list *l,
                      const struct dump_options *o, int level)
{
    list_need(r->a, l);
    if (l->n == 0) {
        buf_puts(out, "[]");
        return true;
    }
    buf_add_c(out, '[');
    for (uint32_t i = 0; i < l->n; i++) {
        if (i)
            buf_add_str(out, o->item_separator);
        dump_newline(out, o, level + 1);
        if (!next_item(r, out) || !dump_value(r, out, l->at[i], o, level + 1))
            return false;
    }
    dump_newline(out, o, level);
    buf_add_c(out, ']');
    return true;
}

/* Writes a number. Infinities and NaN are written like Python's json does, although JSON does not
 * have them. */
static void dump_number(struct buf *out, struct value v)
{
    if (v.t == V_FLOAT && !isfinite(v.f))
        buf_puts(out, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity");
    else if (v.t == V_BOOL)
        buf_puts(out, v.i ? "true" : "false");
    else
        number_print(out, v);
}

/* Writes a key. Numbers and None become strings; other types are an error, as in Python. */
static bool dump_key(struct template_run *r, struct buf *out, struct value k,
                     const struct dump_options *o)
{
    struct buf text = {0};
    bool ok;

    if (k.t == V_STR)
        return dump_string(r, out, v_bytes(k), o->ensure_ascii);
    if (!v_is_number(k) && k.t != V_NONE) {
        (void)run_fail(r, "TypeError", "keys must be str, int, float, bool or None, not %s",
                       v_type_name(k));
        return false;
    }
    if (k.t == V_NONE)
        buf_puts(&text, "null");
    else
        dump_number(&text, k);
    ok = dump_string(r, out, buf_str(&text), o->ensure_ascii);
    buf_done(&text);
    return ok;
}

/* Returns the dict's entries in the order to write; NULL if keys cannot be compared. */
static struct dict_entry *dump_order(struct template_run *r, struct dict *d, bool sort)
{
    struct value *at, *keys;
    struct dict_entry *sorted;

    dict_need(r->a, d);
    if (!sort || d->n < 2)
        return d->at;
    if (!run_room(r, 2 * sizeof(*sorted) * d->n))
        return NULL;
    at = arena_alloc(r->a, d->n * sizeof(*at));
    keys = arena_alloc(r->a, d->n * sizeof(*keys));
    sorted = arena_alloc(r->a, d->n * sizeof(*sorted));
    for (uint32_t i = 0; i < d->n; i++) {
        keys[i] = d->at[i].key;
        at[i] = d->at[i].value;
    }
    if (!value_sort(r, at, keys, d->n, false))
        return NULL;
    for (uint32_t i = 0; i < d->n; i++)
        sorted[i] = (struct dict_entry){keys[i], at[i]};
    return sorted;
}

/* Writes {...}. An empty dict stays on one line. */
static bool dump_dict(struct template_run *r, struct buf *out, struct dict *d,
                      const struct dump_options *o, int level)
{
    const struct dict_entry *at = dump_order(r, d, o->sort_keys);

    if (d->n == 0) {
        buf_puts(out, "{}");
        return true;
    }
    if (!at)
        return false;
    buf_add_c(out, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        if (i)
            buf_add_str(out, o->item_separator);
        dump_newline(out, o, level + 1);
        if (!next_item(r, out) || !dump_key(r, out, at[i].key, o))
            return false;
        buf_add_str(out, o->key_separator);
        if (!dump_value(r, out, at[i].value, o, level + 1))
            return false;
    }
    dump_newline(out, o, level);
    buf_add_c(out, '}');
    return true;
}

/* Writes one value at a level of indentation. A type that json.dumps does not support is a
 * TypeError. */
static bool dump_value(struct template_run *r, struct buf *out, struct value v,
                       const struct dump_options *o, int level)
{
    bool ok;

    switch (v.t) {
    case V_NONE:
        buf_puts(out, "null");
        return true;
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        dump_number(out, v);
        return true;
    case V_STR:
        return dump_string(r, out, v_bytes(v), o->ensure_ascii);
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        if (!run_enter(r))
            return false;
        ok = v.t == V_DICT ? dump_dict(r, out, v.dict, o, level)
                           : dump_list(r, out, v.list, o, level);
        run_leave(r);
        return ok;
    default:
        (void)run_fail(r, "TypeError", "Object of type %s is not JSON serializable",
                       v_type_name(v));
        return false;
    }
}

bool print_json(struct template_run *r, struct buf *out, struct value v,
                const struct dump_options *o)
{
    return dump_value(r, out, v, o, 0);
}

/* ascii() is repr() with escapes for all characters beyond ASCII. */
bool print_converted(struct template_run *r, struct buf *out, struct value v, char how)
{
    struct buf text = {0};
    struct str s;
    bool ok;

    if (how == 's')
        return print_str(r, out, v);
    ok = print_repr(r, how == 'a' ? &text : out, v);
    s = buf_str(&text);
    ok = ok && run_spend_text(r, s.len * 4, out->len);
    for (size_t at = 0; ok && at < s.len;) {
        uint32_t cp = pystr_next(s, &at);

        if (cp < 0x80)
            buf_add_c(out, (char)cp);
        else
            buf_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    buf_done(&text);
    return ok;
}
