/* Filters over sequences that return a result at once. Each filter gets its operand v and the bound
 * arguments a[], in the order of its parameter list in the table below. Arguments that are not
 * given are V_MISSING. Items are read with the iterator of iter.h, so any iterable is accepted, and
 * every item counts a step. */
#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/print.h"
#include "worker/text/template/pystr.h"

static struct value f_length(struct template_run *r, struct value v, struct value *a)
{
    int64_t n = value_len(r, v);

    (void)a;
    return n < 0 ? v_err() : v_int(n);
}

static struct value f_list(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return iter_collect(r, v);
}

/* Joins within autoescape: if an item or the separator is HTML, all others are escaped. */
static struct value join_html(struct template_run *r, struct value v, struct value sep,
                              struct value path)
{
    struct value items = iter_collect(r, v);
    uint8_t html = sep.flags;
    struct buf out = {0};
    struct value *at;
    uint32_t n;

    if (items.t == V_ERR)
        return items;
    n = items.list->n;
    if (!run_room(r, (uint64_t)n * sizeof(*at)))
        return v_err();
    at = arena_alloc(r->a, n * sizeof(*at));
    for (uint32_t i = 0; i < n; i++) {
        at[i] = run_spend(r, 1) ? filter_attribute(r, items.list->at[i], path) : v_err();
        if (at[i].t != V_ERR)
            at[i] = filter_text(r, at[i]);
        if (at[i].t == V_ERR)
            return at[i];
        html |= at[i].flags;
    }
    for (uint32_t i = 0; i < n && !r->error.kind; i++) {
        if (i)
            buf_add_str(&out, v_bytes(html ? text_to_html(r, sep) : sep));
        buf_add_str(&out, v_bytes(html ? text_to_html(r, at[i]) : at[i]));
        (void)run_spend_text(r, at[i].n, out.len);
    }
    if (r->error.kind) {
        buf_done(&out);
        return v_err();
    }
    v = run_take_text(r, &out);
    return html ? v_markup(v) : v;
}

/* Writes the items after the output so far and removes them again, so no second buffer is needed.
 * The memory budget limits what is written. */
static struct value f_join(struct template_run *r, struct value v, struct value *a)
{
    struct value sep = a[0].t == V_MISSING ? v_text("") : filter_text(r, a[0]);
    size_t from = r->out->len;
    struct iter it;
    struct value item;
    int more;

    if (sep.t != V_ERR && r->autoescape)
        return join_html(r, v, sep, a[1]);
    if (sep.t == V_ERR || !iter_init(r, &it, v))
        return v_err();
    for (uint32_t i = 0; (more = iter_next(r, &it, &item)) > 0; i++) {
        item = filter_attribute(r, item, a[1]);
        if (i)
            buf_add_str(r->out, v_bytes(sep));
        if (sep.n >= 64 && !run_spend(r, sep.n / 64))
            item = v_err();
        if (item.t == V_ERR || !print_str(r, r->out, item) || !run_room(r, r->out->len - from)) {
            r->out->len = from;
            return v_err();
        }
    }
    item = exec_cut_output(r, from);
    return more < 0 ? v_err() : item;
}

/* An empty sequence has an undefined first item, not an error. */
static struct value f_first(struct template_run *r, struct value v, struct value *a)
{
    struct iter it;
    struct value item;
    int more;

    (void)a;
    if (!iter_init(r, &it, v))
        return v_err();
    more = iter_next(r, &it, &item);
    return more < 0 ? v_err() : more ? item : v_undef(UNDEF_NAME, STR("the first item"));
}

/* Reports whether reversed() accepts the value: a sequence or a dict. */
static bool is_reversible(struct template_run *r, struct value v)
{
    if (v.t != V_GEN && v.t != V_LOOP)
        return true;
    (void)run_fail(r, "TypeError", "'%s' object is not reversible", v_type_name(v));
    return false;
}

/* Generators cannot be read from their end, so they are refused as in Python. */
static struct value f_last(struct template_run *r, struct value v, struct value *a)
{
    struct value l;

    (void)a;
    if (!is_reversible(r, v))
        return v_err();
    if (v.t == V_STR) {
        return v.n ? attr_item(r, v, v_int(-1)) : v_undef(UNDEF_NAME, STR("the last item"));
    }
    l = iter_collect(r, v);
    if (l.t == V_ERR)
        return l;
    return l.list->n ? l.list->at[l.list->n - 1] : v_undef(UNDEF_NAME, STR("the last item"));
}

/* --- ordering --- */

static struct value fold_case(struct template_run *r, struct value v, bool sensitive)
{
    if (v.t != V_STR || sensitive)
        return v;
    if (!run_spend_chars(r, v_bytes(v)) || !run_room(r, (uint64_t)v.n * 3))
        return v_err();
    return v_str(pystr_case(r->a, v_bytes(v), PYSTR_TO_LOWER));
}

/* Returns the sort key of an item: one value for each attribute of "a,b.c". */
static struct value sort_key(struct template_run *r, struct value v, struct value attribute,
                             bool sensitive)
{
    struct list_builder b = {0};
    struct str rest = v_bytes(attribute);

    if (!run_spend(r, 1))
        return v_err();
    if (attribute.t != V_STR) {
        v = fold_case(r, filter_attribute(r, v, attribute), sensitive);
        if (v.t == V_ERR || !builder_add(r, &b, v))
            return v_err();
        return builder_list(r, &b);
    }
    for (;;) {
        size_t comma = str_find(rest, STR(","), 0);
        struct value part =
            fold_case(r, filter_attribute(r, v, v_str(str_sub(rest, 0, comma))), sensitive);

        if (part.t == V_ERR || !builder_add(r, &b, part))
            return v_err();
        if (comma == SIZE_MAX)
            return builder_list(r, &b);
        rest = str_sub(rest, comma + 1, rest.len);
    }
}

/* Returns a sorted copy. *keys (may be NULL) gets the key of each item. */
static struct value sort_copy(struct template_run *r, struct value v, struct value attribute,
                              bool sensitive, bool reverse)
{
    struct value l = iter_collect(r, v), copy;
    struct value *keys;

    if (l.t == V_ERR || !run_room(r, (uint64_t)l.list->n * 8 * sizeof(*keys)))
        return v_err();
    copy = run_list(r, l.list->at, l.list->n);
    if (copy.t == V_ERR)
        return copy;
    keys = arena_alloc(r->a, l.list->n * sizeof(*keys));
    for (uint32_t i = 0; i < l.list->n; i++) {
        struct value key = sort_key(r, copy.list->at[i], attribute, sensitive);

        if (key.t == V_ERR)
            return key;
        keys[i] = key;
    }
    return value_sort(r, copy.list->at, keys, l.list->n, reverse) ? copy : v_err();
}

static bool is_true(struct template_run *r, struct value v)
{
    return v.t != V_MISSING && value_truth(r, v);
}

static struct value f_sort(struct template_run *r, struct value v, struct value *a)
{
    return sort_copy(r, v, a[2], is_true(r, a[1]), is_true(r, a[0]));
}

/* Sorts the (key, value) pairs of a dict by element 0 or 1 of the pair. */
static struct value f_dictsort(struct template_run *r, struct value v, struct value *a)
{
    bool by_value = a[1].t == V_STR && str_eq_c(v_bytes(a[1]), "value");

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (v.t != V_DICT)
        return run_fail(r, "AttributeError", "'%s' object has no attribute 'items'",
                        v_type_name(v));
    if (a[1].t != V_MISSING && !by_value && !(a[1].t == V_STR && str_eq_c(v_bytes(a[1]), "key")))
        return run_fail(r, "FilterArgumentError",
                        "You can only sort by either \"key\" or \"value\"");
    v = (struct value){.t = V_VIEW, .sub = VIEW_ITEMS, .dict = v.dict};
    return sort_copy(r, v, v_int(by_value), is_true(r, a[0]), is_true(r, a[2]));
}

/* Finds the min or max. Of equal items the first wins. a[0] is case_sensitive, a[1] the
 * attribute. */
static struct value find_extreme(struct template_run *r, struct value v, struct value *a, bool max)
{
    struct value l = iter_collect(r, v), best = v_missing(), best_key = v_missing();

    if (l.t == V_ERR)
        return l;
    for (uint32_t i = 0; i < l.list->n; i++) {
        struct value key = filter_attribute(r, l.list->at[i], a[1]);
        int better = 1;

        key = fold_case(r, key, is_true(r, a[0]));
        if (key.t == V_ERR || !run_spend(r, 1))
            return v_err();
        if (i)
            better = max ? value_less(r, best_key, key) : value_less(r, key, best_key);
        if (better < 0)
            return v_err();
        if (better) {
            best = l.list->at[i];
            best_key = key;
        }
    }
    return best.t == V_MISSING ? v_undef(UNDEF_NAME, STR("an item of an empty sequence")) : best;
}

static struct value f_min(struct template_run *r, struct value v, struct value *a)
{
    return find_extreme(r, v, a, false);
}

static struct value f_max(struct template_run *r, struct value v, struct value *a)
{
    return find_extreme(r, v, a, true);
}

/* Adds with the template's own +, beginning at `start`. Strings are refused as by Python's sum. */
static struct value f_sum(struct template_run *r, struct value v, struct value *a)
{
    struct value sum = a[1].t == V_MISSING ? v_int(0) : a[1];
    struct iter it;
    struct value item;
    int more;

    if (sum.t == V_STR)
        return run_fail(r, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    if (!iter_init(r, &it, v))
        return v_err();
    while ((more = iter_next(r, &it, &item)) > 0) {
        item = filter_attribute(r, item, a[0]);
        if (item.t != V_ERR)
            sum = operator_binary(r, '+', sum, item);
        if (item.t == V_ERR || sum.t == V_ERR)
            return v_err();
    }
    return more < 0 ? v_err() : sum;
}

/* Makes the next item of reverse. n_args: number of items left. */
static int next_reversed(struct template_run *r, struct gen *g, struct value *ret)
{
    (void)r;
    if (g->n_args == 0)
        return 0;
    *ret = g->src.of.list->at[--g->n_args];
    return 1;
}

/* Returns a string for a string, and a generator for anything else. */
static struct value f_reverse(struct template_run *r, struct value v, struct value *a)
{
    const struct value back[3] = {v_none(), v_none(), v_int(-1)};
    struct gen *g;
    struct value l;

    (void)a;
    if (v.t == V_STR)
        return attr_slice(r, v, back);
    l = iter_collect(r, v);
    if (l.t == V_ERR)
        return l;
    g = gen_new(r, next_reversed);
    g->src.of = l;
    g->n_args = l.list->n;
    return v_gen(g);
}

/* Groups consecutive items of a sorted list that have equal keys as (key, items). */
static struct value f_groupby(struct template_run *r, struct value v, struct value *a)
{
    bool sensitive = is_true(r, a[2]);
    struct value l = iter_collect(r, v);
    struct list_builder groups = {0}, group = {0};
    struct value last = v_missing(), *keys, *at;

    if (l.t == V_ERR || !run_room(r, (uint64_t)l.list->n * 8 * sizeof(*keys)))
        return v_err();
    keys = arena_alloc(r->a, l.list->n * sizeof(*keys));
    at = arena_alloc(r->a, l.list->n * sizeof(*at));
    for (uint32_t i = 0; i < l.list->n; i++) {
        struct value plain = filter_attribute_or(r, l.list->at[i], a[0], a[1]);

        if (plain.t == V_ERR)
            return plain;
        at[i] = run_pair(r, plain, l.list->at[i]);
        keys[i] = fold_case(r, plain, sensitive);
        if (keys[i].t == V_ERR || !run_spend(r, 1))
            return v_err();
    }
    if (!value_sort(r, at, keys, l.list->n, false))
        return v_err();
    for (uint32_t i = 0; i < l.list->n; i++) {
        if (i == 0 || !value_eq(r, keys[i], last)) {
            struct value pair;

            group = (struct list_builder){0};
            pair = run_pair(r, at[i].list->at[0], v_missing());
            pair.list->named = true;
            if (!builder_add(r, &groups, pair))
                return v_err();
        }
        last = keys[i];
        if (!builder_add(r, &group, at[i].list->at[1]))
            return v_err();
        groups.at[groups.n - 1].list->at[1] = builder_list(r, &group);
    }
    return builder_list(r, &groups);
}

/* Always returns the same item, which keeps renders repeatable. */
static struct value f_random(struct template_run *r, struct value v, struct value *a)
{
    int64_t n = value_len(r, v);

    (void)a;
    if (n < 0)
        return v_err();
    if (v.t == V_DICT || v.t == V_VIEW)
        return run_fail(r, "TypeError", "'%s' object is not subscriptable", v_type_name(v));
    return n ? attr_item(r, v, v_int(n / 2)) : v_undef(UNDEF_NAME, STR("a random item"));
}

const struct filter list_filters[] = {
    {"length", "", f_length},
    {"count", "", f_length},
    {"list", "", f_list},
    {"join", "d attribute", f_join},
    {"first", "", f_first},
    {"last", "", f_last},
    {"sort", "reverse case_sensitive attribute", f_sort},
    {"dictsort", "case_sensitive by reverse", f_dictsort},
    {"min", "case_sensitive attribute", f_min},
    {"max", "case_sensitive attribute", f_max},
    {"sum", "attribute start", f_sum},
    {"reverse", "", f_reverse},
    {"groupby", "attribute! default case_sensitive", f_groupby},
    {"random", "", f_random},
    {NULL, NULL, NULL},
};
