/* Comparison of values as in Python (compare.h). Numbers compare by value across int, float and
 * bool; lists, tuples and dicts by their elements; other objects by identity. Lists and dicts may
 * be lazy views of JSON (value.h). list_need and dict_need unfold them before their elements are
 * read.
 *
 * A list may contain one list several times, so that comparing takes far more steps than there are
 * lists. So each comparison counts. Equality returns "different" if the budget is spent. The
 * exception is set then, and the next function that can fail reports it. */

#include "worker/text/template/compare.h"

#include "worker/text/template/iter.h"
#include "worker/text/template/number.h"
#include "worker/text/template/pystr.h"

/* Compares lengths and elements. */
static bool eq_lists(struct template_run *r, struct list *x, struct list *y)
{
    bool same;

    if (x == y)
        return true;
    list_need(r->a, x);
    list_need(r->a, y);
    if (x->n != y->n || !run_enter(r))
        return false;
    same = true;
    for (uint32_t i = 0; i < x->n && same; i++)
        same = value_eq(r, x->at[i], y->at[i]);
    run_leave(r);
    return same;
}

/* Compares sizes, and checks that each key of x is in y with an equal value. The order does not
 * matter. */
static bool eq_dicts(struct template_run *r, struct dict *x, struct dict *y)
{
    bool same;

    if (x == y)
        return true;
    dict_need(r->a, x);
    dict_need(r->a, y);
    if (x->n != y->n || !run_enter(r))
        return false;
    same = true;
    for (uint32_t i = 0; i < x->n && same; i++) {
        struct dict_entry *e = dict_find(r, y, x->at[i].key);

        same = e && value_eq(r, x->at[i].value, e->value);
    }
    run_leave(r);
    return same;
}

static bool eq_ranges(const struct py_range *x, const struct py_range *y)
{
    return x->n == y->n &&
           (x->n == 0 || (x->start == y->start && (x->n == 1 || x->step == y->step)));
}

/* Two views of keys or items are equal only if they are views of one dict. Two views of values
 * never are, as in Python. */
bool value_eq(struct template_run *r, struct value x, struct value y)
{
    if (!run_spend(r, 1))
        return false;
    if (v_is_number(x) && v_is_number(y))
        return number_cmp(r->a, x, y) == 0;
    if (x.t != y.t)
        return false;
    switch (x.t) {
    case V_NONE:
    case V_UNDEF:
        return true;
    case V_STR:
        return x.n == y.n && run_spend(r, x.n / 64) && str_eq(v_bytes(x), v_bytes(y));
    case V_LIST:
    case V_TUPLE:
        return eq_lists(r, x.list, y.list);
    case V_DICT:
        return eq_dicts(r, x.dict, y.dict);
    case V_VIEW:
        return x.dict == y.dict && x.sub == y.sub && x.sub != VIEW_VALUES;
    case V_RANGE:
        return eq_ranges(x.range, y.range);
    default:
        return x.list == y.list;
    }
}

/* The first pair that is not equal decides. Without such a pair, the shorter list is less. */
static int less_lists(struct template_run *r, struct list *x, struct list *y)
{
    list_need(r->a, x);
    list_need(r->a, y);
    for (uint32_t i = 0; i < x->n && i < y->n; i++) {
        int less;

        if (value_eq(r, x->at[i], y->at[i]))
            continue;
        if (!run_enter(r))
            return -1;
        less = value_less(r, x->at[i], y->at[i]);
        run_leave(r);
        return less;
    }
    return x->n < y->n;
}

int value_less(struct template_run *r, struct value x, struct value y)
{
    if (!run_spend(r, 1))
        return -1;
    if (v_is_number(x) && v_is_number(y))
        return number_cmp(r->a, x, y) == -1;
    if (x.t == V_STR && y.t == V_STR && !run_spend(r, MIN_OF(x.n, y.n) / 64))
        return -1;
    if (x.t == V_STR && y.t == V_STR)
        return str_cmp(v_bytes(x), v_bytes(y)) < 0;
    if (x.t == y.t && v_is_seq(x))
        return less_lists(r, x.list, y.list);
    if (x.t == V_UNDEF || y.t == V_UNDEF)
        (void)run_undefined(r, x.t == V_UNDEF ? x : y);
    else
        (void)run_fail(r, "TypeError", "'<' not supported between instances of '%s' and '%s'",
                       v_type_name(x), v_type_name(y));
    return -1;
}

/* Reports whether `needle` is a substring of a string: 1, 0, or -1 with the TypeError. */
static int contains_str(struct template_run *r, struct value hay, struct value needle)
{
    if (needle.t != V_STR) {
        (void)run_fail(r, "TypeError", "'in <string>' requires string as left operand, not %s",
                       v_type_name(needle));
        return -1;
    }
    if (!run_spend(r, hay.n / 64))
        return -1;
    return str_find(v_bytes(hay), v_bytes(needle), 0) != SIZE_MAX;
}

/* Strings search a substring, dicts a key; everything else is iterated and compared. */
int value_contains(struct template_run *r, struct value hay, struct value needle)
{
    struct iter it;
    struct value v;
    int more;

    if (hay.t == V_STR)
        return contains_str(r, hay, needle);
    if (hay.t == V_DICT || (hay.t == V_VIEW && hay.sub == VIEW_KEYS)) {
        if (!value_hashable(r, needle))
            return -1;
        if (dict_find(r, hay.dict, needle))
            return 1;
        return r->budget.over ? -1 : 0;
    }
    if (!iter_init(r, &it, hay))
        return -1;
    while ((more = iter_next(r, &it, &v)) > 0) {
        if (value_eq(r, v, needle))
            return 1;
    }
    return more;
}

/* Empty containers, zeros, None and undefined values are false; all other objects are true. */
bool value_truth(struct template_run *r, struct value v)
{
    switch (v.t) {
    case V_BOOL:
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.n > 0;
    case V_LIST:
    case V_TUPLE:
        return v.list->n > 0;
    case V_DICT:
    case V_VIEW:
        return v.dict->n > 0;
    case V_RANGE:
        return v.range->n > 0;
    case V_NONE:
    case V_UNDEF:
    case V_MISSING:
    case V_ERR:
        return false;
    default:
        (void)r;
        return true;
    }
}

/* The length of an undefined value is 0, unless the sandbox hid something. */
int64_t value_len(struct template_run *r, struct value v)
{
    switch (v.t) {
    case V_STR:
        return run_spend(r, v.n / 64) ? (int64_t)pystr_len(v_bytes(v)) : -1;
    case V_LIST:
    case V_TUPLE:
        return v.list->n;
    case V_DICT:
    case V_VIEW:
        return v.dict->n;
    case V_RANGE:
        return v.range->n;
    case V_UNDEF:
        if ((v.sub & 0xff) != UNDEF_UNSAFE)
            return 0;
        (void)run_undefined(r, v);
        return -1;
    case V_LOOP: {
        struct value n = loop_length(r, v.loop);

        return n.t == V_ERR ? -1 : n.i;
    }
    default:
        (void)run_fail(r, "TypeError", "object of type '%s' has no len()", v_type_name(v));
        return -1;
    }
}

bool value_hashable(struct template_run *r, struct value v)
{
    if (v.t == V_LIST || v.t == V_DICT || v.t == V_VIEW) {
        (void)run_fail(r, "TypeError", "unhashable type: '%s'", v_type_name(v));
        return false;
    }
    if (v.t == V_TUPLE) {
        bool hashable = true;

        if (!run_enter(r))
            return false;
        for (uint32_t i = 0; i < list_need(r->a, v.list)->n && hashable; i++)
            hashable = run_spend(r, 1) && value_hashable(r, v.list->at[i]);
        run_leave(r);
        return hashable;
    }
    return true;
}

struct sort_item {
    struct value v, key;
};

/* Merges two sorted neighbours of `from` (n[0] and n[1] items) into `to`. Of equal keys the left
 * one goes first, also in reverse, so the sort is stable. Returns false if two keys cannot be
 * compared. */
static bool merge_runs(struct template_run *r, struct sort_item *to, struct sort_item *from,
                       uint32_t n[2], bool reverse)
{
    uint32_t i = 0, j = n[0], at = 0, end = n[0] + n[1];

    while (i < n[0] && j < end) {
        int swap = reverse ? value_less(r, from[i].key, from[j].key)
                           : value_less(r, from[j].key, from[i].key);

        if (swap < 0)
            return false;
        to[at++] = swap ? from[j++] : from[i++];
    }
    while (i < n[0])
        to[at++] = from[i++];
    while (j < end)
        to[at++] = from[j++];
    return true;
}

/* A bottom-up merge sort between two arrays of the arena. It counts a step per moved item. After a
 * failed comparison `at` and `keys` are unchanged. */
bool value_sort(struct template_run *r, struct value *at, struct value *keys, uint32_t n,
                bool reverse)
{
    struct sort_item *from, *to;

    if (!run_room(r, 2 * sizeof(*from) * (uint64_t)n))
        return false;
    from = arena_alloc(r->a, sizeof(*from) * n);
    to = arena_alloc(r->a, sizeof(*to) * n);
    for (uint32_t i = 0; i < n; i++)
        from[i] = (struct sort_item){at[i], keys[i]};
    for (uint64_t width = 1; width < n; width *= 2) {
        struct sort_item *swap;

        for (uint64_t i = 0; i < n; i += 2 * width) {
            uint32_t parts[2] = {(uint32_t)MIN_OF(width, n - i),
                                 i + width < n ? (uint32_t)MIN_OF(width, n - i - width) : 0};

            if (!run_spend(r, parts[0] + parts[1]) ||
                !merge_runs(r, to + i, from + i, parts, reverse))
                return false;
        }
        swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < n; i++) {
        at[i] = from[i].v;
        keys[i] = from[i].key;
    }
    return true;
}
