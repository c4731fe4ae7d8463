/* Methods of dicts, lists, numbers, loops and cyclers. Only methods that change nothing are here:
 * values are immutable, and the sandbox refuses the others by name (method_forbidden). The receiver
 * is `self`. a[] has the bound arguments in the order of the parameter list in the tables. */
#include <math.h>

#include "worker/text/template/callable.h"
#include "worker/text/template/compare.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/method_str.h"

static struct value make_view(struct value self, uint16_t sub)
{
    self.t = V_VIEW;
    self.sub = sub;
    return self;
}

static struct value m_keys(struct template_run *r, struct value self, struct value *a)
{
    (void)r;
    (void)a;
    return make_view(self, VIEW_KEYS);
}

static struct value m_values(struct template_run *r, struct value self, struct value *a)
{
    (void)r;
    (void)a;
    return make_view(self, VIEW_VALUES);
}

static struct value m_items(struct template_run *r, struct value self, struct value *a)
{
    (void)r;
    (void)a;
    return make_view(self, VIEW_ITEMS);
}

/* Computes dict.get. A key that is not hashable is an error even though it cannot be in the
 * dict. */
static struct value m_get(struct template_run *r, struct value self, struct value *a)
{
    struct dict_entry *e;

    if (!value_hashable(r, a[0]))
        return v_err();
    e = dict_find(r, self.dict, a[0]);
    if (e)
        return e->value;
    if (r->budget.over)
        return v_err();
    return a[1].t == V_MISSING ? v_none() : a[1];
}

/* Makes a shallow copy. */
static struct value m_dict_copy(struct template_run *r, struct value self, struct value *a)
{
    struct dict *from = dict_need(r->a, self.dict), *d;

    (void)a;
    if (!run_spend(r, from->n) || !run_room(r, from->n * sizeof(*from->at)))
        return v_err();
    d = dict_new(r->a, from->n);
    for (uint32_t i = 0; i < from->n; i++)
        dict_set(r, d, from->at[i].key, from->at[i].value);
    return v_dict(d);
}

const struct method dict_methods[] = {
    {"items", "", m_items},   {"get", "key! default", m_get}, {"keys", "", m_keys},
    {"values", "", m_values}, {"copy", "", m_dict_copy},      {NULL, NULL, NULL},
};

/* Returns the index of the first equal item at or after `start`; ValueError if there is none. */
static struct value m_list_index(struct template_run *r, struct value self, struct value *a)
{
    struct value l = iter_collect(r, self);
    int64_t start;

    if (l.t == V_ERR || !arg_int(r, a[1], 0, &start))
        return v_err();
    for (uint32_t i = 0; i < l.list->n; i++) {
        if (i >= start && value_eq(r, l.list->at[i], a[0]))
            return v_int(i);
    }
    if (r->budget.over)
        return v_err();
    return run_fail(r, "ValueError", "value is not in list");
}

/* Counts the items that are equal to the value. Also for tuples and ranges. */
static struct value m_list_count(struct template_run *r, struct value self, struct value *a)
{
    struct value l = iter_collect(r, self);
    int64_t n = 0;

    if (l.t == V_ERR)
        return l;
    for (uint32_t i = 0; i < l.list->n; i++)
        n += value_eq(r, l.list->at[i], a[0]);
    return r->budget.over ? v_err() : v_int(n);
}

/* For lists only: tuples and ranges have no copy method. */
static struct value m_list_copy(struct template_run *r, struct value self, struct value *a)
{
    (void)a;
    if (self.t != V_LIST)
        return run_undefined(r, v_undef_attr(self.t, STR("copy")));
    list_need(r->a, self.list);
    return run_list(r, self.list->at, self.list->n);
}

const struct method list_methods[] = {
    {"index", "value! start", m_list_index},
    {"count", "value!", m_list_count},
    {"copy", "", m_list_copy},
    {NULL, NULL, NULL},
};

static struct value m_is_integer(struct template_run *r, struct value self, struct value *a)
{
    (void)a;
    if (self.t != V_FLOAT)
        return run_undefined(r, v_undef_attr(self.t, STR("is_integer")));
    return v_bool(isfinite(self.f) && floor(self.f) == self.f);
}

/* Returns the number of bits of the magnitude; 0 for 0. */
static struct value m_bit_length(struct template_run *r, struct value self, struct value *a)
{
    uint64_t m;
    int64_t n = 0;

    (void)a;
    if (!v_is_int(self))
        return run_fail(r, "NotImplementedError", "bit_length() is only supported to 64 bits");
    m = self.i < 0 ? 0 - (uint64_t)self.i : (uint64_t)self.i;
    for (; m; m >>= 1)
        n++;
    return v_int(n);
}

static struct value m_conjugate(struct template_run *r, struct value self, struct value *a)
{
    (void)r;
    (void)a;
    return self.t == V_BOOL ? v_int(self.i) : self;
}

const struct method number_methods[] = {
    {"is_integer", "", m_is_integer},
    {"bit_length", "", m_bit_length},
    {"conjugate", "", m_conjugate},
    {NULL, NULL, NULL},
};

/* Returns the argument of loop.cycle(a, b, ...) for this iteration. */
static struct value m_loop_cycle(struct template_run *r, struct value self, struct value *a)
{
    struct list *items = a[0].list;

    if (items->n == 0)
        return run_fail(r, "TypeError", "no items for cycling given");
    return items->at[(uint64_t)(self.loop->index - 1) % items->n];
}

static struct value m_loop_changed(struct template_run *r, struct value self, struct value *a)
{
    bool same = self.loop->changed.t != V_MISSING && value_eq(r, self.loop->changed, a[0]);

    self.loop->changed = a[0];
    return r->budget.over ? v_err() : v_bool(!same);
}

const struct method loop_methods[] = {
    {"cycle", "* **", m_loop_cycle},
    {"changed", "* **", m_loop_changed},
    {NULL, NULL, NULL},
};

/* Returns the current item and moves to the next one; after the last comes the first. */
static struct value m_cycler_next(struct template_run *r, struct value self, struct value *a)
{
    struct cycler *c = self.cycler;
    struct value v = c->items[c->pos];

    (void)r;
    (void)a;
    c->pos = (c->pos + 1) % c->n;
    return v;
}

static struct value m_cycler_reset(struct template_run *r, struct value self, struct value *a)
{
    (void)r;
    (void)a;
    self.cycler->pos = 0;
    return v_none();
}

const struct method cycler_methods[] = {
    {"next", "", m_cycler_next},
    {"reset", "", m_cycler_reset},
    {NULL, NULL, NULL},
};
