/* Filters over single values: numbers, JSON, formats, defaults. Each gets its operand v and the
 * bound arguments a[] in the order of its parameter list in the tables below. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/method_str.h"
#include "worker/text/template/number.h"
#include "worker/text/template/print.h"
#include "worker/text/template/text_format.h"

/* Returns the default for an undefined value; with boolean=true also for a false one. */
static struct value f_default(struct template_run *r, struct value v, struct value *a)
{
    bool boolean = a[1].t != V_MISSING && value_truth(r, a[1]);

    if (v.t == V_UNDEF || (boolean && !value_truth(r, v)))
        return a[0].t == V_MISSING ? v_text("") : a[0];
    return v;
}

/* Reads text as an integer of the base, else as a float whose fraction is dropped, else returns
 * `default`. */
static struct value f_int(struct template_run *r, struct value v, struct value *a)
{
    struct value dflt = a[0].t == V_MISSING ? v_int(0) : a[0], n;
    int64_t base;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (!arg_int(r, a[1], 10, &base))
        return v_err();
    if (v.t == V_FLOAT)
        return isfinite(v.f) ? number_truncate(r, v.f) : dflt;
    if (v_is_number(v))
        return v.t == V_BOOL ? v_int(v.i) : v;
    if (v.t != V_STR)
        return dflt;
    if (base == 0 || base < 2 || base > 36)
        base = 10;
    n = number_parse_int(r, v_bytes(v), (int)base);
    if (n.t != V_MISSING)
        return n;
    n = number_parse_float(r, v_bytes(v));
    if (n.t == V_ERR)
        return n;
    return n.t == V_FLOAT && isfinite(n.f) ? number_truncate(r, n.f) : dflt;
}

/* Returns `default` for text that is not a number. An undefined value is an error. */
static struct value f_float(struct template_run *r, struct value v, struct value *a)
{
    struct value dflt = a[0].t == V_MISSING ? v_float(0) : a[0], n;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (v_is_number(v))
        return v_float(number_to_double(v));
    if (v.t != V_STR)
        return dflt;
    n = number_parse_float(r, v_bytes(v));
    return n.t == V_FLOAT || n.t == V_ERR ? n : dflt;
}

/* Keeps the type, except that a bool becomes an int. */
static struct value f_abs(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (!v_is_number(v))
        return run_fail(r, "TypeError", "bad operand type for abs(): '%s'", v_type_name(v));
    if (v.t == V_FLOAT)
        return v_float(fabs(v.f));
    if (v.t == V_BIG ? v.big->negative : v.i < 0)
        return number_negate(r, v);
    return v.t == V_BOOL ? v_int(v.i) : v;
}

/* Computes round(d, -tens): to a multiple of 10^tens. Printing rounds exactly as long as a digit is
 * left. */
static double round_tens(double d, int64_t tens)
{
    char text[512];
    long exponent;

    (void)snprintf(text, sizeof(text), "%.17e", d);
    exponent = strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent < tens - 1)
        return copysign(0, d);
    if (exponent == tens - 1)
        return copysign(fabs(d) > 5 * pow(10, (double)exponent) ? pow(10, (double)tens) : 0, d);
    (void)snprintf(text, sizeof(text), "%.*e", (int)(exponent - tens), d);
    return strtod(text, NULL);
}

/* Computes round(d, places): half to even, by the exact binary value. */
static double round_places(double d, int64_t places)
{
    char text[512];

    if (!isfinite(d) || places > 300)
        return d;
    if (places >= 0) {
        (void)snprintf(text, sizeof(text), "%.*f", (int)MIN_OF(places, 100), d);
        return fabs(d) > 1e300 ? d : strtod(text, NULL);
    }
    return round_tens(d, -places);
}

/* Rounds an integer to a multiple of 10^places, half to even. */
static struct value round_whole(struct template_run *r, struct value v, uint64_t places)
{
    const struct big *whole = number_to_big(r->a, v), *unit = big_from_i64(r->a, 1), *q, *rest;
    const struct big *two = big_from_i64(r->a, 2), *one = unit, *ten = big_from_i64(r->a, 10);
    int c;

    if (places > 9 * ((uint64_t)whole->n + 1))
        return v_int(0);
    if (!run_spend(r, places * (places / 36 + 8)) || !run_room(r, places * (places / 2 + 64)))
        return v_err();
    for (uint64_t i = 0; i < places && unit; i++)
        unit = big_mul(r->a, unit, ten);
    if (!unit)
        return v_int(0);
    big_divmod(r->a, whole, unit, &q, &rest);
    c = big_cmp(big_mul(r->a, rest, two), unit);
    if (c > 0 || (c == 0 && q->n > 0 && q->at[0] % 2 == 1))
        q = big_add(r->a, q, one, false);
    return number_of_big(r, big_mul(r->a, q, unit));
}

/* "common" rounds half to even at `precision` places. "ceil" and "floor" work on the scaled value,
 * as in jinja2, and return a float. */
static struct value f_round(struct template_run *r, struct value v, struct value *a)
{
    struct str method = STR("common");
    int64_t places;
    double unit, d;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (v.t == V_BOOL)
        v.t = V_INT;
    if (!arg_int(r, a[0], 0, &places) || (a[1].t != V_MISSING && !arg_str(r, a[1], &method)))
        return v_err();
    if (!v_is_number(v))
        return run_fail(r, "TypeError", "type %s doesn't define __round__ method", v_type_name(v));
    if (str_eq_c(method, "common")) {
        if (v.t == V_FLOAT)
            return v_float(round_places(v.f, places));
        return places >= 0 ? v : round_whole(r, v, 0 - (uint64_t)places);
    }
    if (!str_eq_c(method, "ceil") && !str_eq_c(method, "floor"))
        return run_fail(r, "FilterArgumentError", "method must be common, ceil or floor");
    if (v.t != V_FLOAT && places >= 0)
        return v_float(number_to_double(v));
    unit = pow(10, (double)places);
    d = number_to_double(v) * unit;
    return v_float(((method.p[0] == 'c' ? ceil(d) : floor(d)) + 0.0) / unit); /* avoids -0 */
}

/* Writes bytes with a decimal prefix (kB, MB ...), or with a binary one (KiB, MiB ...) if `binary`
 * is true. */
static struct value f_filesizeformat(struct template_run *r, struct value v, struct value *a)
{
    static const char *const prefixes[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary = a[0].t != V_MISSING && value_truth(r, a[0]);
    double base = binary ? 1024 : 1000, unit = base, bytes;
    struct value n = v.t == V_STR ? number_parse_float(r, v_bytes(v)) : v;
    int i = 0;

    if (!v_is_number(n))
        return run_fail(r, "TypeError", "filesizeformat wants a number, not %s", v_type_name(v));
    bytes = number_to_double(n);
    if (bytes == 1)
        return v_text("1 Byte");
    if (bytes < base)
        return v_str(arena_printf(r->a, "%.0f Bytes", trunc(bytes) + 0.0));
    for (; i < 7 && bytes >= unit * base; i++)
        unit *= base;
    return v_str(arena_printf(r->a, "%.1f %s", bytes / unit, prefixes[binary][i]));
}

/* Reads the indent argument of json.dumps as text; absent: no indentation. */
static bool indent_text(struct template_run *r, struct value v, struct str *ret)
{
    char *p;
    int64_t n;

    *ret = (struct str){0};
    if (v.t == V_MISSING || v.t == V_NONE)
        return true;
    if (v.t == V_STR) {
        *ret = v_bytes(v);
        return true;
    }
    if (!arg_int(r, v, 0, &n))
        return false;
    n = MIN_OF(MAX_OF(n, 0), 1000);
    p = arena_alloc(r->a, (size_t)n + 1);
    memset(p, ' ', (size_t)n);
    *ret = str_of(p, (size_t)n);
    return true;
}

/* Reads the separators argument of json.dumps: None or a pair of strings. */
static bool read_separators(struct template_run *r, struct value v, struct dump_options *o)
{
    if (v.t == V_MISSING || v.t == V_NONE)
        return true;
    if (!v_is_seq(v) || list_need(r->a, v.list)->n != 2)
        return run_fail(r, "ValueError", "separators must be a pair").t != V_ERR;
    return arg_str(r, v.list->at[0], &o->item_separator) &&
           arg_str(r, v.list->at[1], &o->key_separator);
}

/* Writes JSON like json.dumps with transformers' settings: no HTML escaping, ensure_ascii off, and
 * with an indentation no space after commas. Writes to the output and removes the text again. */
static struct value f_tojson(struct template_run *r, struct value v, struct value *a)
{
    struct dump_options o = {.key_separator = STR(": ")};
    size_t from = r->out->len;

    o.ensure_ascii = a[0].t != V_MISSING && value_truth(r, a[0]);
    o.sort_keys = a[3].t != V_MISSING && value_truth(r, a[3]);
    if (!indent_text(r, a[1], &o.indent))
        return v_err();
    o.item_separator = o.indent.p ? STR(",") : STR(", ");
    if (!read_separators(r, a[2], &o))
        return v_err();
    if (!print_json(r, r->out, v, &o)) {
        r->out->len = from;
        return v_err();
    }
    return exec_cut_output(r, from);
}

/* Formats with %: positional arguments or named ones, never both. */
static struct value f_format(struct template_run *r, struct value v, struct value *a)
{
    v = filter_text(r, v);
    if (v.t == V_ERR)
        return v;
    if (a[0].list->n && a[1].dict->n)
        return run_fail(r, "FilterArgumentError",
                        "can't handle positional and keyword arguments at the same time");
    return format_percent(r, v, a[1].dict->n ? a[1] : a[0]);
}

static struct value sort_items(struct template_run *r, struct value v);
static struct value sort_dict(struct template_run *r, struct value v);

/* Copies a value with the keys of all dicts in it sorted, as pprint writes them. */
static struct value sort_dicts(struct template_run *r, struct value v)
{
    struct value sorted;

    if (v.t != V_DICT && !v_is_seq(v))
        return v;
    if (!run_enter(r))
        return v_err();
    sorted = v.t == V_DICT ? sort_dict(r, v) : sort_items(r, v);
    run_leave(r);
    return sorted;
}

/* Makes a copy of a list or tuple whose items went through sort_dicts. */
static struct value sort_items(struct template_run *r, struct value v)
{
    struct value copy = run_list(r, list_need(r->a, v.list)->at, v.list->n);

    for (uint32_t i = 0; copy.t != V_ERR && i < copy.list->n; i++) {
        struct value item = run_spend(r, 1) ? sort_dicts(r, copy.list->at[i]) : v_err();

        if (item.t == V_ERR)
            return item;
        copy.list->at[i] = item;
    }
    return copy.t == V_LIST && v.t == V_TUPLE ? v_tuple(copy.list) : copy;
}

/* Makes a copy of a dict, sorted by its keys, whose values went through sort_dicts. */
static struct value sort_dict(struct template_run *r, struct value v)
{
    struct value at;
    struct dict *d;

    at = filter_call(r, filter_find(STR("dictsort")), v,
                     &(struct argv){.pos = (struct value[]){v_bool(true)}, .n_pos = 1});
    if (at.t == V_ERR || !run_room(r, at.list->n * sizeof(struct dict_entry)))
        return v_err();
    d = dict_new(r->a, at.list->n);
    for (uint32_t i = 0; i < at.list->n; i++) {
        struct value value = run_spend(r, 1) ? sort_dicts(r, at.list->at[i].list->at[1]) : v_err();

        if (value.t == V_ERR)
            return value;
        dict_set(r, d, at.list->at[i].list->at[0], value);
    }
    return v_dict(d);
}

/* Returns the repr with sorted keys if it fits on one line of 80. Longer values would need Python's
 * line breaking and are refused. */
static struct value f_pprint(struct template_run *r, struct value v, struct value *a)
{
    struct buf out = {0};
    struct value sorted = sort_dicts(r, v);
    bool ok = sorted.t != V_ERR && print_repr(r, &out, sorted);

    (void)a;
    if (ok && out.len > 80 && (v.t == V_STR || v.t == V_DICT || v_is_seq(v)))
        ok = run_fail(r, "NotImplementedError", "pprint of more than one line").t != V_ERR;
    sorted = run_take_text(r, &out);
    return ok ? sorted : v_err();
}

/* Reads attributes only: the keys of a dict do not count. */
static struct value f_attr(struct template_run *r, struct value v, struct value *a)
{
    struct value name = filter_text(r, a[0]);

    if (name.t == V_ERR)
        return name;
    if (v.t == V_DICT && !method_any(v_bytes(name)))
        return v_undef_attr(v.t, v_bytes(name));
    return attr_get(r, v, v_bytes(name));
}

const struct filter value_filters[] = {
    {"tojson", "ensure_ascii indent separators sort_keys", f_tojson},
    {"default", "default_value boolean", f_default},
    {"d", "default_value boolean", f_default},
    {"int", "default base", f_int},
    {"float", "default", f_float},
    {"format", "* **", f_format},
    {"abs", "", f_abs},
    {"round", "precision method", f_round},
    {"attr", "name!", f_attr},
    {NULL, NULL, NULL},
};

const struct filter format_filters[] = {
    {"filesizeformat", "binary", f_filesizeformat},
    {"pprint", "verbose", f_pprint},
    {NULL, NULL, NULL},
};
