/* str.format: replacement fields, their conversions and specifications.
 *
 *   "{0.name[key]!r:>10}"     root 0 (position, name or empty), then attributes and items,
 *                             conversion r, specification >10
 *
 * expand_fields copies text and finds the fields. replace_field evaluates one of them: field_value
 * walks to the value, convert_value applies !s, !r or !a. The specification may contain fields
 * itself (one level). It is expanded and passed to format_value (text_format.h). Errors have
 * Python's types and words. */
#include <ctype.h>

#include "worker/text/template/escape.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/print.h"
#include "worker/text/template/pystr.h"
#include "worker/text/template/text_format.h"

struct braces {
    struct template_run *r;
    struct list *args;
    struct dict *named;
    bool html;    /* the text is HTML, so inserted values are escaped */
    int64_t next; /* next automatic number; -1 after a field was numbered explicitly */
};

static bool fail_format(struct braces *b, const char *message)
{
    (void)run_fail(b->r, "ValueError", "%s", message);
    return false;
}

/* Matches a position: up to nine digits. */
static bool is_position(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!isdigit((unsigned char)s.p[i]))
            return false;
    }
    return s.len > 0 && s.len < 10;
}

static int64_t to_number(struct str s)
{
    uint64_t v = 0;

    (void)str_to_u64(s, INT32_MAX, &v);
    return (int64_t)v;
}

/* Evaluates the first part of a field's name: a position, a name, or nothing. */
static struct value field_root(struct braces *b, struct str name)
{
    struct dict_entry *e;
    int64_t i;

    if (name.len && !is_position(name)) {
        e = dict_find_str(b->r->a, b->named, name);
        return e ? e->value
                 : run_fail(b->r, "KeyError", "'%.*s'", (int)MIN_OF(name.len, (size_t)100), name.p);
    }
    if ((name.len && b->next > 0) || (!name.len && b->next < 0))
        return run_fail(b->r, "ValueError",
                        "cannot switch between manual and automatic field "
                        "numbering");
    i = name.len ? to_number(name) : b->next++;
    if (name.len)
        b->next = -1;
    if (i >= b->args->n)
        return run_fail(b->r, "IndexError",
                        "Replacement index %lld out of range for positional args tuple",
                        (long long)i);
    return b->args->at[i];
}

/* Evaluates name.attr[item]... */
static struct value field_value(struct braces *b, struct str path)
{
    size_t end = 0;
    struct value v;

    while (end < path.len && path.p[end] != '.' && path.p[end] != '[')
        end++;
    v = field_root(b, str_sub(path, 0, end));
    while (end < path.len && v.t != V_ERR) {
        bool item = path.p[end] == '[';
        size_t from = ++end;
        struct str name;

        while (end < path.len &&
               (item ? path.p[end] != ']' : path.p[end] != '.' && path.p[end] != '['))
            end++;
        name = str_sub(path, from, end - from);
        end += item;
        if (item)
            v = attr_item(b->r, v, is_position(name) ? v_int(to_number(name)) : v_str(name));
        else
            v = attr_get(b->r, v, name);
    }
    return v;
}

/* Reads the digits at *at as a number, limited to INT32_MAX; -1 if there are none. */
static int64_t read_position(struct str s, size_t *at)
{
    int64_t v = -1;

    for (; *at < s.len && isdigit((unsigned char)s.p[*at]); ++*at)
        v = MIN_OF(MAX_OF(v, 0) * 10 + (s.p[*at] - '0'), INT32_MAX);
    return v;
}

static bool is_align(struct str s, size_t at)
{
    return at < s.len && s.p[at] && strchr("<>=^", s.p[at]);
}

static bool at_char(struct str s, size_t *at, const char *set, char *ret)
{
    if (*at >= s.len || !s.p[*at] || !strchr(set, s.p[*at]))
        return false;
    *ret = s.p[(*at)++];
    return true;
}

/* Parses [[fill]align][sign][#][0][width][grouping][.precision][type]. */
static bool read_spec(struct braces *b, struct str s, struct format_spec *ret)
{
    size_t at = 0, fill = s.len ? MIN_OF(pystr_width((unsigned char)s.p[0]), s.len) : 0;
    char c;

    *ret = (struct format_spec){.width = -1, .precision = -1};
    if (is_align(s, fill)) {
        ret->fill = str_sub(s, 0, fill);
        ret->align = s.p[fill];
        at = fill + 1;
    } else if (is_align(s, 0)) {
        ret->align = s.p[at++];
    }
    (void)at_char(s, &at, "+- ", &ret->sign);
    ret->alternate = at_char(s, &at, "#", &c);
    ret->zero = at_char(s, &at, "0", &c);
    ret->width = read_position(s, &at);
    (void)at_char(s, &at, ",_", &ret->grouping);
    if (at_char(s, &at, ".", &c)) {
        ret->precision = read_position(s, &at);
        if (ret->precision < 0)
            return fail_format(b, "Format specifier missing precision");
    }
    if (at < s.len)
        ret->type = s.p[at++];
    return at == s.len || fail_format(b, "Invalid format specifier");
}

static bool expand_fields(struct braces *b, struct buf *out, struct str s, int depth);

/* Applies !s, !r or !a to *v; 0 does nothing. */
static bool convert_value(struct braces *b, struct value *v, char how)
{
    struct buf text = {0};
    bool ok;

    if (!how)
        return true;
    if (!strchr("sra", how))
        return fail_format(b, "Unknown conversion specifier");
    ok = print_converted(b->r, &text, *v, how);
    *v = run_take_text(b->r, &text);
    return ok && v->t != V_ERR;
}

/* An empty specification prints the value like str(). Containers and None accept no other one. */
static bool write_field(struct braces *b, struct buf *out, struct value v, struct str spec_text)
{
    struct format_spec spec;

    if (spec_text.len == 0)
        return print_str(b->r, out, v);
    if (v.t == V_NONE || v.t == V_LIST || v.t == V_DICT || v.t == V_TUPLE || v.t == V_UNDEF) {
        (void)run_fail(b->r, "TypeError", "unsupported format string passed to %s.__format__",
                       v_type_name(v));
        return false;
    }
    return read_spec(b, spec_text, &spec) && format_value(b->r, out, v, &spec);
}

/* Formats a value into a text that is HTML. */
static bool write_html(struct braces *b, struct buf *out, struct value v, struct str spec_text)
{
    struct buf text = {0};
    bool ok;

    if (v.t == V_STR && (v.flags & VF_MARKUP)) {
        if (spec_text.len > 0)
            return fail_format(b, "Unsupported format specification for Markup.");
        return print_str(b->r, out, v);
    }
    ok = write_field(b, &text, v, spec_text) &&
         run_spend_text(b->r, text.len, out->len + escape_html_size(buf_str(&text)));
    if (ok)
        escape_html(out, buf_str(&text));
    buf_done(&text);
    return ok;
}

/* Replaces one field; s is the inside of {...}. */
static bool replace_field(struct braces *b, struct buf *out, struct str s, int depth)
{
    struct buf spec = {0};
    size_t end = 0;
    char how = 0;
    struct value v;
    bool ok;

    while (end < s.len && s.p[end] != '!' && s.p[end] != ':') {
        if (s.p[end] == '[') {
            while (end < s.len && s.p[end] != ']')
                end++;
        }
        end += end < s.len;
    }
    v = field_value(b, str_sub(s, 0, end));
    if (v.t == V_ERR)
        return false;
    if (end + 1 < s.len && s.p[end] == '!') {
        how = s.p[end + 1];
        end += 2;
        if (end < s.len && s.p[end] != ':')
            return fail_format(b, "expected ':' after conversion specifier");
    }
    if (!convert_value(b, &v, how))
        return false;
    ok = end >= s.len || expand_fields(b, &spec, str_sub(s, end + 1, s.len), depth + 1);
    ok = ok && (b->html ? write_html : write_field)(b, out, v, buf_str(&spec));
    buf_done(&spec);
    return ok;
}

/* Returns the index of the brace that closes a field whose inside begins at `at`; s.len if there is
 * none. */
static size_t find_close(struct str s, size_t at)
{
    for (int open = 1; at < s.len; at++) {
        open += s.p[at] == '{' ? 1 : s.p[at] == '}' ? -1 : 0;
        if (open == 0)
            break;
    }
    return at;
}

/* Writes s with its fields replaced. depth counts nested specifications, of which Python allows one
 * level below the outermost. */
static bool expand_fields(struct braces *b, struct buf *out, struct str s, int depth)
{
    size_t last = 0;

    if (depth > 2)
        return fail_format(b, "Max string recursion exceeded");
    if (!run_spend_text(b->r, s.len, out->len + s.len))
        return false;
    for (size_t at = 0; at < s.len; at++) {
        size_t from = at + 1;

        if (s.p[at] != '{' && s.p[at] != '}') {
            buf_add_c(out, s.p[at]);
            continue;
        }
        if (!run_spend_text(b->r, from - last, out->len))
            return false;
        last = from;
        if (at + 1 < s.len && s.p[at + 1] == s.p[at]) {
            buf_add_c(out, s.p[at++]);
            continue;
        }
        if (s.p[at] == '}')
            return fail_format(b, "Single '}' encountered in format string");
        at = find_close(s, from);
        if (at == s.len)
            return fail_format(b, "Single '{' encountered in format string");
        if (!replace_field(b, out, str_sub(s, from, at - from), depth))
            return false;
    }
    return true;
}

/* Computes text.format(*args, **named). The result is Markup if the text is. */
struct value format_braces(struct template_run *r, struct value text, struct value args,
                           struct value named)
{
    struct braces b = {.r = r,
                       .args = list_need(r->a, args.list),
                       .named = named.dict,
                       .html = text.flags & VF_MARKUP};
    struct buf out = {0};
    struct value v;
    bool ok = expand_fields(&b, &out, v_bytes(text), 0);

    v = v_like(run_take_text(r, &out), text);
    return ok ? v : v_err();
}
