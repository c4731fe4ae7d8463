/* Formatting of one value by a specification (format_value, used by str.format and by %), and text
 * % values. A number is written as lead and digits, which write_padded() joins with the fill around
 * or between them:
 *
 *   fill   lead (sign, 0x)   fill if align is '='   digits   fill
 *
 * Width and precision are limited by FIELD_MAX, because a template can ask for any. */

#include "worker/text/template/text_format.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "common/base/utf8.h"
#include "common/codec/json_number.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/number.h"
#include "worker/text/template/print.h"
#include "worker/text/template/pystr.h"

enum { FIELD_MAX = 1 << 20 }; /* largest width and precision */

/* Puts commas or underscores between groups of the digits at the front of text. */
static void group_digits(struct buf *text, char mark, size_t every)
{
    struct buf out = {0};
    size_t digits = 0;

    while (digits < text->len && isxdigit((unsigned char)text->p[digits]))
        digits++;
    for (size_t i = 0; i < digits; i++) {
        if (i && (digits - i) % every == 0)
            buf_add_c(&out, mark);
        buf_add_c(&out, text->p[i]);
    }
    buf_add(&out, text->p + digits, text->len - digits);
    buf_done(text);
    *text = out;
}

/* Writes sign, prefix and digits, with fill around them up to the width. */
static void write_padded(struct buf *out, const struct format_spec *s, struct str lead,
                         struct str body, char dflt)
{
    uint64_t have = pystr_len(lead) + pystr_len(body);
    uint64_t fill = s->width > 0 && (uint64_t)s->width > have ? (uint64_t)s->width - have : 0;
    char align = s->align ? s->align : dflt;
    uint64_t left = align == '<' ? 0 : align == '^' ? fill / 2 : fill;
    struct str unit = s->fill.p ? s->fill : STR(" ");

    if (align == '=')
        buf_add_str(out, lead);
    for (uint64_t i = 0; i < left; i++)
        buf_add_str(out, unit);
    if (align != '=')
        buf_add_str(out, lead);
    buf_add_str(out, body);
    for (uint64_t i = left; i < fill; i++)
        buf_add_str(out, unit);
}

/* Writes the digits of v in a base from 2 to 16. */
static void integer_digits(struct buf *out, uint64_t v, unsigned base, bool upper)
{
    char digits[65];
    size_t n = 0;

    do {
        digits[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base];
        v /= base;
    } while (v);
    while (n > 0)
        buf_add_c(out, digits[--n]);
}

static unsigned base_of(const struct format_spec *s)
{
    switch (s->type) {
    case 'x':
    case 'X':
        return 16;
    case 'o':
        return 8;
    case 'b':
        return 2;
    default:
        return 10;
    }
}

/* Formats types b c d o x X and none. Grouping is by four digits in bases other than ten. */
static bool format_integer(struct template_run *r, struct buf *out, struct value v,
                           const struct format_spec *s)
{
    struct buf body = {0};
    char lead[4] = {0};
    bool negative = v.t == V_BIG ? v.big->negative : v.i < 0;
    unsigned base = base_of(s);

    if (negative || s->sign == '+' || s->sign == ' ')
        lead[0] = negative ? '-' : s->sign;
    if (s->type == 'c') {
        if (v.t == V_BIG || v.i < 0 || v.i > 0x10ffff) {
            (void)run_fail(r, "OverflowError", "%%c arg not in range(0x110000)");
            return false;
        }
        body.len += utf8_encode(buf_reserve(&body, 4), (uint32_t)v.i);
    } else if (v.t == V_BIG) {
        big_digits(&body, v.big, base, s->type == 'X');
    } else {
        integer_digits(&body, negative ? 0 - (uint64_t)v.i : (uint64_t)v.i, base, s->type == 'X');
    }
    if (s->grouping)
        group_digits(&body, s->grouping, base == 10 ? 3 : 4);
    if (s->alternate && base != 10)
        (void)snprintf(lead + (lead[0] != 0), 3, "0%c", s->type);
    if (s->precision > (int64_t)body.len) { /* %.3d */
        size_t zeros = (size_t)s->precision - body.len;

        (void)buf_reserve(&body, zeros);
        memmove(body.p + zeros, body.p, body.len);
        memset(body.p, '0', zeros);
        body.len += zeros;
    }
    write_padded(out, s, str_cstr(lead), buf_str(&body), '>');
    buf_done(&body);
    return true;
}

/* Writes the digits of Python's format without a type: like repr, or 'g' with a digit after the
 * point. */
static void general_digits(struct buf *out, double d, int64_t precision)
{
    size_t from = out->len;
    bool plain = true;

    if (precision < 0) {
        out->len += json_number_write(buf_reserve(out, JSON_DOUBLE_TEXT_MAX), d);
        return;
    }
    buf_printf(out, "%.*g", (int)MAX_OF(precision, 1), d);
    for (size_t i = from; i < out->len; i++)
        plain = plain && isdigit((unsigned char)out->p[i]);
    if (plain && out->len - from >= (size_t)MAX_OF(precision, 1)) {
        out->len = from; /* repr switches to an exponent one digit earlier */
        buf_printf(out, "%.*e", (int)MAX_OF(precision - 1, 0), d);
    } else if (plain) {
        buf_puts(out, ".0");
    }
}

static void odd_digits(struct buf *out, double d, bool upper)
{
    if (isnan(d))
        buf_puts(out, upper ? "NAN" : "nan");
    else
        buf_puts(out, upper ? "INF" : "inf");
}

/* Formats by a type letter that C has, or by '%' or 'n'. */
static void typed_digits(struct buf *out, double d, const struct format_spec *s)
{
    char format[8] = {'%', 0};
    char type = s->type == 'F' ? 'f' : s->type;
    size_t n = 1;

    if (s->alternate)
        format[n++] = '#';
    format[n++] = '.';
    format[n++] = '*';
    format[n++] = type == '%' ? 'f' : type == 'n' ? 'g' : type;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    buf_printf(out, format, s->precision < 0 ? 6 : (int)s->precision, type == '%' ? d * 100 : d);
#pragma GCC diagnostic pop
    if (type == '%')
        buf_add_c(out, '%');
}

/* Writes the magnitude of d by its type letter. Without a letter it is Python's own general
 * format. */
static void float_digits(struct buf *out, double d, const struct format_spec *s)
{
    if (isnan(d) || isinf(d))
        odd_digits(out, d, isupper((unsigned char)s->type) != 0);
    else if (s->type == 0)
        general_digits(out, d, s->precision);
    else
        typed_digits(out, d, s);
}

/* Writes sign, digits, grouping and padding of a float. */
static void format_float(struct buf *out, double d, const struct format_spec *s)
{
    struct buf body = {0};
    char lead[2] = {0};
    bool negative = signbit(d) && !isnan(d);

    if (negative || s->sign == '+' || s->sign == ' ')
        lead[0] = negative ? '-' : s->sign;
    float_digits(&body, fabs(d), s);
    if (s->grouping)
        group_digits(&body, s->grouping, 3);
    write_padded(out, s, str_cstr(lead), buf_str(&body), '>');
    buf_done(&body);
}

static bool bad_type(struct template_run *r, const struct format_spec *s, struct value v)
{
    (void)run_fail(r, "ValueError", "Unknown format code '%c' for object of type '%s'", s->type,
                   v_type_name(v));
    return false;
}

/* A precision cuts the text. Sign, grouping and '=' are allowed for numbers only. */
static bool format_text(struct template_run *r, struct buf *out, struct value v,
                        const struct format_spec *s)
{
    struct str text = v_bytes(v);

    if (s->type && s->type != 's')
        return bad_type(r, s, v);
    if (s->sign || s->grouping || s->align == '=') {
        (void)run_fail(r, "ValueError", "Sign not allowed in string format specifier");
        return false;
    }
    if (s->precision >= 0)
        text = str_sub(text, 0, pystr_offset(text, 0, (size_t)s->precision));
    write_padded(out, s, STR(""), text, '<');
    return true;
}

/* A zero before the width means fill '0' after the sign, unless a fill is given. */
bool format_value(struct template_run *r, struct buf *out, struct value v,
                  const struct format_spec *s)
{
    struct format_spec spec = *s;

    if (!run_spend(r, (uint64_t)(MAX_OF(spec.width, 0) + MAX_OF(spec.precision, 0)) / 16 + 1))
        return false;
    if (spec.width > FIELD_MAX || spec.precision > FIELD_MAX ||
        !run_room(r, out->len + FIELD_MAX)) {
        (void)run_fail(r, "ValueError", "Too many decimal digits in format string");
        return false;
    }
    if (spec.zero && !spec.fill.p) {
        spec.fill = STR("0");
        if (!spec.align)
            spec.align = v.t == V_STR ? '<' : '=';
    }
    if (v.t == V_STR)
        return format_text(r, out, v, &spec);
    if (v.t == V_FLOAT || (v_is_number(v) && spec.type && strchr("eEfFgG%n", spec.type))) {
        if (spec.type && !strchr("eEfFgG%n", spec.type))
            return bad_type(r, &spec, v);
        format_float(out, number_to_double(v), &spec);
        return true;
    }
    if (!v_is_number(v) || (spec.type && !strchr("bcdoxXn", spec.type)))
        return bad_type(r, &spec, v);
    if (spec.precision >= 0 && !spec.percent) {
        (void)run_fail(r, "ValueError", "Precision not allowed in integer format specifier");
        return false;
    }
    return format_integer(r, out, v, &spec);
}

/* --- text % values --- */

struct percent {
    struct template_run *r;
    struct str text;
    size_t at;
    struct value arg;
    uint32_t used; /* number of used items of a tuple */
    bool by_name;
    bool html; /* the text is HTML, so inserted values are escaped */
};

/* Returns the next item of the tuple. A single value that is not a tuple is used once. */
static struct value next_arg(struct percent *p)
{
    if (p->arg.t == V_TUPLE && p->used < list_need(p->r->a, p->arg.list)->n)
        return p->arg.list->at[p->used++];
    if (p->arg.t != V_TUPLE && p->used++ == 0)
        return p->arg;
    return run_fail(p->r, "TypeError", "not enough arguments for format string");
}

/* Returns the argument of "(name)" after the percent sign. */
static struct value named_arg(struct percent *p)
{
    size_t end = str_find(p->text, STR(")"), p->at);
    struct dict_entry *e;
    struct str name;

    if (end == SIZE_MAX)
        return run_fail(p->r, "ValueError", "incomplete format key");
    if (p->arg.t != V_DICT)
        return run_fail(p->r, "TypeError", "format requires a mapping");
    name = str_sub(p->text, p->at + 1, end - p->at - 1);
    p->at = end + 1;
    p->by_name = true;
    e = dict_find_str(p->r->a, p->arg.dict, name);
    if (!e)
        return run_fail(p->r, "KeyError", "'%.*s'", (int)name.len, name.p);
    return e->value;
}

/* Reads a number, or "*" for one from the arguments; -1 if there is none, -2 on error. */
static int64_t read_width(struct percent *p)
{
    int64_t v = -1;

    if (p->at < p->text.len && p->text.p[p->at] == '*') {
        struct value a = next_arg(p);

        p->at++;
        if (a.t != V_ERR && !v_is_int(a))
            a = run_fail(p->r, "TypeError", "* wants int");
        return a.t == V_ERR ? -2 : MAX_OF(a.i, 0);
    }
    for (; p->at < p->text.len && isdigit((unsigned char)p->text.p[p->at]); p->at++)
        v = MIN_OF(MAX_OF(v, 0) * 10 + (p->text.p[p->at] - '0'), (int64_t)FIELD_MAX + 1);
    return v;
}

/* Converts an argument for its type letter: text for s and r, whole numbers for d and i. */
static struct value percent_value(const struct percent *p, struct value v, char *type)
{
    struct template_run *r = p->r;
    struct buf text = {0};

    if (*type == 's' || *type == 'r' || *type == 'a') {
        bool ok = print_converted(r, &text, v, *type);
        struct value t = run_take_text(r, &text);

        if (p->html && *type == 's' && v.t == V_STR)
            t = v_like(t, v);
        *type = 's';
        return !ok ? v_err() : p->html ? text_to_html(r, t) : t;
    }
    if (*type == 'c' && v.t == V_STR && pystr_len(v_bytes(v)) == 1) {
        *type = 's';
        return v;
    }
    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (!v_is_number(v))
        return run_fail(r, "TypeError", "%%%c format: a number is required, not %s", *type,
                        v_type_name(v));
    if (*type == 'i' || *type == 'u')
        *type = 'd';
    if (*type == 'd' && v.t == V_FLOAT)
        return number_truncate(r, v.f);
    if (v.t == V_BOOL)
        v.t = V_INT;
    return v;
}

/* Reports whether the next character is one of the set. */
static bool at_any(const struct percent *p, const char *set)
{
    return p->at < p->text.len && p->text.p[p->at] && strchr(set, p->text.p[p->at]);
}

/* Reads [flags][width][.precision][length]: everything before the type letter. */
static void read_spec(struct percent *p, struct format_spec *s, bool *left)
{
    for (; at_any(p, "-+ #0"); p->at++) {
        char c = p->text.p[p->at];

        *left = *left || c == '-';
        s->zero = s->zero || c == '0';
        s->alternate = s->alternate || c == '#';
        if (c == '+' || (c == ' ' && !s->sign))
            s->sign = c;
    }
    s->width = read_width(p);
    if (at_any(p, ".")) {
        p->at++;
        s->precision = read_width(p);
        if (s->precision == -1)
            s->precision = 0;
    }
    while (at_any(p, "hlL"))
        p->at++;
}

/* Formats one conversion: %[(name)][flags][width][.precision][length]type. Length letters are
 * ignored. */
static bool format_conversion(struct percent *p, struct buf *out)
{
    struct format_spec s = {.width = -1, .precision = -1, .percent = true};
    struct value v = v_missing();
    bool left = false;

    if (at_any(p, "("))
        v = named_arg(p);
    read_spec(p, &s, &left);
    if (v.t == V_ERR || s.width == -2 || s.precision == -2)
        return false;
    if (p->at >= p->text.len) {
        (void)run_fail(p->r, "ValueError", "incomplete format");
        return false;
    }
    s.type = p->text.p[p->at++];
    if (s.type == '%') {
        buf_add_c(out, '%');
        return true;
    }
    if (!s.type || !strchr("sradiufFeEgGxXoc", s.type)) {
        (void)run_fail(p->r, "ValueError", "unsupported format character '%c'", s.type);
        return false;
    }
    if (v.t == V_MISSING)
        v = next_arg(p);
    if (v.t != V_ERR)
        v = percent_value(p, v, &s.type);
    if (v.t == V_ERR)
        return false;
    if (s.type == 's')
        s.sign = 0, s.zero = false;
    s.zero = s.zero && !left;
    s.align = left ? '<' : s.zero ? '=' : '>';
    return format_value(p->r, out, v, &s);
}

/* Reports whether the value has a __getitem__ and is neither text nor tuple. Such a value may
 * remain unused. */
static bool is_mapping(struct value v)
{
    return v.t == V_DICT || v.t == V_LIST || v.t == V_RANGE || v.t == V_UNDEF;
}

/* Unused arguments are an error, except for a mapping. */
struct value format_percent(struct template_run *r, struct value text, struct value arg)
{
    struct percent p = {.r = r, .text = v_bytes(text), .arg = arg, .html = text.flags & VF_MARKUP};
    struct buf out = {0};
    struct value v;

    if (!run_spend_text(r, p.text.len, p.text.len))
        return v_err();
    while (p.at < p.text.len) {
        char c = p.text.p[p.at++];

        if (c != '%') {
            buf_add_c(&out, c);
        } else if (!run_spend_text(r, 64, out.len) || !format_conversion(&p, &out)) {
            buf_done(&out);
            return v_err();
        }
    }
    v = v_like(run_take_text(r, &out), text);
    if (!p.by_name && (arg.t == V_TUPLE ? p.used < list_need(r->a, arg.list)->n
                                        : p.used == 0 && !is_mapping(arg)))
        return run_fail(r, "TypeError", "not all arguments converted during string formatting");
    return v;
}
