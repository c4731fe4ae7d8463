/* The functions and classes of every template's global scope. A name in the context hides the
 * function of that name (exec_enter looks there first). Parameter lists are those of callable.h;
 * a[] has the bound arguments. */
#include <stdlib.h>
#include <time.h>

#include "worker/text/template/callable.h"
#include "worker/text/template/compare.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"

enum { RANGE_MAX = 100000 }; /* jinja2's sandbox limit */

enum { STRFTIME_BYTES = 64 << 10 }; /* a longer format is refused */

/* A range keeps start, stop, step and its count; no list is made. Its size has the limit of
 * jinja2's sandbox. */
static struct value g_range(struct template_run *r, struct value self, struct value *a)
{
    struct py_range *g = ARENA_NEW(r->a, struct py_range);
    int64_t v[3] = {0, 0, 1};

    (void)self;
    for (int i = 0; i < 3; i++) {
        if (a[i].t == V_UNDEF)
            return run_undefined(r, a[i]);
        if (a[i].t != V_MISSING && !v_is_int(a[i]))
            return run_fail(r, "TypeError", "'%s' object cannot be interpreted as an integer",
                            v_type_name(a[i]));
        if (a[i].t != V_MISSING)
            v[i] = a[i].i;
    }
    if (a[1].t == V_MISSING) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return run_fail(r, "ValueError", "range() arg 3 must not be zero");
    for (int i = 0; i < 3; i++) {
        if (v[i] > INT64_MAX / 4 || v[i] < INT64_MIN / 4)
            return run_fail(r, "OverflowError", "range is too large");
    }
    *g = (struct py_range){v[0], v[1], v[2], 0};
    if (v[2] > 0 ? v[1] > v[0] : v[0] > v[1])
        g->n = (llabs(v[1] - v[0]) - 1) / llabs(v[2]) + 1;
    if (g->n > RANGE_MAX)
        return run_fail(r, "OverflowError",
                        "Range too big. The sandbox blocks ranges larger than"
                        " MAX_RANGE (100000).");
    return (struct value){.t = V_RANGE, .range = g};
}

/* Adds the pairs of an iterable to d. Each must have two items, the first of which is hashable. */
static bool add_pairs(struct template_run *r, struct dict *d, struct value from)
{
    struct iter it;
    struct value pair;
    int more;

    if (!iter_init(r, &it, from))
        return false;
    while ((more = iter_next(r, &it, &pair)) > 0) {
        struct value kv = iter_collect(r, pair);

        if (kv.t == V_ERR)
            return false;
        if (kv.list->n != 2) {
            (void)run_fail(r, "ValueError",
                           "dictionary update sequence element has length %u; "
                           "2 is required",
                           kv.list->n);
            return false;
        }
        if (!value_hashable(r, kv.list->at[0]) || !run_spend(r, 1))
            return false;
        dict_set(r, d, kv.list->at[0], kv.list->at[1]);
    }
    return more == 0;
}

/* Makes the dict of dict(...) and namespace(...): a mapping or pairs, then named values. */
static struct dict *make_dict(struct template_run *r, struct value *a)
{
    struct list *pos = a[0].list;
    struct dict *named = a[1].dict, *d = dict_new(r->a, 8);

    if (pos->n > 1) {
        (void)run_fail(r, "TypeError", "dict expected at most 1 argument, got %u", pos->n);
        return NULL;
    }
    if (pos->n == 1 && pos->at[0].t == V_UNDEF) {
        (void)run_undefined(r, pos->at[0]);
        return NULL;
    }
    if (pos->n == 1 && pos->at[0].t == V_DICT) {
        struct dict *from = dict_need(r->a, pos->at[0].dict);

        for (uint32_t i = 0; i < from->n && run_spend(r, 1); i++)
            dict_set(r, d, from->at[i].key, from->at[i].value);
    } else if (pos->n == 1 && !add_pairs(r, d, pos->at[0])) {
        return NULL;
    }
    for (uint32_t i = 0; i < named->n && run_spend(r, 1); i++)
        dict_set(r, d, named->at[i].key, named->at[i].value);
    return r->budget.over ? NULL : d;
}

static struct value g_dict(struct template_run *r, struct value self, struct value *a)
{
    struct dict *d = make_dict(r, a);

    (void)self;
    return d ? v_dict(d) : v_err();
}

static struct value g_namespace(struct template_run *r, struct value self, struct value *a)
{
    struct dict *d = make_dict(r, a);

    (void)self;
    return d ? (struct value){.t = V_NS, .dict = d} : v_err();
}

/* Makes cycler(a, b, ...), whose next() returns its values in turn, again and again. */
static struct value g_cycler(struct template_run *r, struct value self, struct value *a)
{
    struct cycler *c = ARENA_NEW(r->a, struct cycler);

    (void)self;
    if (a[0].list->n == 0)
        return run_fail(r, "RuntimeError", "at least one item has to be provided");
    c->items = a[0].list->at;
    c->n = a[0].list->n;
    return (struct value){.t = V_CYCLER, .cycler = c};
}

/* Makes joiner(sep), which returns "" at the first call and sep at each later one. */
static struct value g_joiner(struct template_run *r, struct value self, struct value *a)
{
    struct cycler *c = ARENA_NEW(r->a, struct cycler);

    (void)self;
    c->sep = a[0].t == V_MISSING ? v_text(", ") : a[0];
    return (struct value){.t = V_JOINER, .cycler = c};
}

static struct value g_raise(struct template_run *r, struct value self, struct value *a)
{
    struct value text = filter_text(r, a[0]);

    (void)self;
    return text.t == V_ERR ? text : run_raise(r, "TemplateError", v_bytes(text));
}

/* Supports the formats of strftime that need neither a time zone nor a fraction, which a naive
 * datetime does not have. */
static struct value g_strftime(struct template_run *r, struct value self, struct value *a)
{
    struct buf format = {0}, out = {0};
    size_t n = 0;

    (void)self;
    if (a[0].t != V_STR)
        return run_fail(r, "TypeError", "strftime() argument 1 must be str, not %s",
                        v_type_name(a[0]));
    if (a[0].n > STRFTIME_BYTES)
        return run_fail(r, "ValueError", "strftime_now: the format is longer than %d bytes",
                        STRFTIME_BYTES);
    if (!r->o->now)
        return run_fail(r, "RuntimeError", "strftime_now: the time is not known here");
    for (uint32_t i = 0; i < a[0].n; i++) {
        char next = i + 1 < a[0].n ? a[0].s[i + 1] : 0;

        if (a[0].s[i] == '%' && next && strchr("fzZ%", next)) {
            buf_puts(&format, next == 'f' ? "000000" : next == '%' ? "%%" : "");
            i++;
        } else {
            buf_add_c(&format, a[0].s[i]);
        }
    }
    if (format.len) {
        size_t room = format.len * 64 + 64;

        buf_add_c(&format, 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = strftime(buf_reserve(&out, room), room, format.p, r->o->now);
#pragma GCC diagnostic pop
    }
    out.len = n;
    buf_done(&format);
    return run_take_text(r, &out);
}

static struct value g_lipsum(struct template_run *r, struct value self, struct value *a)
{
    (void)self;
    (void)a;
    return run_fail(r, "NotImplementedError", "lipsum is not supported");
}

static const struct method functions[] = {
    {"range", "start! stop step", g_range},
    {"dict", "* **", g_dict},
    {"namespace", "* **", g_namespace},
    {"cycler", "* **", g_cycler},
    {"joiner", "sep", g_joiner},
    {"raise_exception", "message!", g_raise},
    {"strftime_now", "format!", g_strftime},
    {"lipsum", "* **", g_lipsum},
};

/* `self` is an empty namespace, because templates have no blocks here that it could contain. */
struct value global_find(struct template_run *r, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        struct callable *c;

        if (!str_eq_c(name, functions[i].name))
            continue;
        c = ARENA_NEW(r->a, struct callable);
        c->kind = CALL_GLOBAL;
        c->method = &functions[i];
        return (struct value){.t = V_CALL, .call = c};
    }
    if (str_eq_c(name, "self"))
        return (struct value){.t = V_NS, .dict = dict_new(r->a, 0)};
    return v_missing();
}
