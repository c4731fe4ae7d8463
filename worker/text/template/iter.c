/* Iteration (iter.h) for statements, filters and calls with *.
 *
 * A running loop has up to three items: `current` and `previous` for the template, `ahead` if the
 * template asked about the next one (loop.last, loop.nextitem). loop.length of a generator reads it
 * to its end and keeps the items in `rest`. From then on the loop reads its items there.
 *
 *   previous   current   ahead (maybe)   rest[rest_at ...] or the iterator */

#include "worker/text/template/iter.h"

#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/pystr.h"

/* Unfolds lazy lists and dicts now, so that iter_next can index them. Undefined values are empty,
 * except those that the sandbox made. */
bool iter_init(struct template_run *r, struct iter *it, struct value v)
{
    *it = (struct iter){.of = v};
    switch (v.t) {
    case V_LIST:
    case V_TUPLE:
        list_need(r->a, v.list);
        return true;
    case V_DICT:
    case V_VIEW:
        dict_need(r->a, v.dict);
        return true;
    case V_STR:
    case V_RANGE:
    case V_GEN:
    case V_LOOP:
        return true;
    case V_UNDEF:
        if ((v.sub & 0xff) != UNDEF_UNSAFE)
            return true;
        (void)run_undefined(r, v);
        return false;
    default:
        (void)run_fail(r, "TypeError", "'%s' object is not iterable", v_type_name(v));
        return false;
    }
}

/* Returns item i of a dict's keys, values or pairs. Iterating a dict gives its keys. */
static struct value view_item(struct template_run *r, struct value view, size_t i)
{
    struct dict_entry *e = &view.dict->at[i];

    if (view.t == V_DICT || view.sub == VIEW_KEYS)
        return e->key;
    return view.sub == VIEW_VALUES ? e->value : run_pair(r, e->key, e->value);
}

/* Levels of depth of a generator: reading generators through generators recurses with frames as
 * large as a macro's. */
enum { GEN_DEPTH = 4 };

static bool enter_gen(struct template_run *r)
{
    if (r->budget.depth < GEN_DEPTH) {
        (void)budget_exhaust(&r->budget, BUDGET_DEPTH);
        return run_over(r);
    }
    r->budget.depth -= GEN_DEPTH;
    return true;
}

static void leave_gen(struct template_run *r)
{
    r->budget.depth += GEN_DEPTH;
}

/* Counts a step, so an endless generator ends at the budget. Strings are read by code points. A
 * generator that has ended or failed is not called again. */
int iter_next(struct template_run *r, struct iter *it, struct value *ret)
{
    if (!run_spend(r, 1))
        return -1;
    switch (it->of.t) {
    case V_LIST:
    case V_TUPLE:
        if (it->at >= it->of.list->n)
            return 0;
        *ret = it->of.list->at[it->at++];
        return 1;
    case V_DICT:
    case V_VIEW:
        if (it->at >= it->of.dict->n)
            return 0;
        *ret = view_item(r, it->of, it->at++);
        return 1;
    case V_STR: {
        size_t from = it->at;

        if (from >= it->of.n)
            return 0;
        it->at = MIN_OF(from + pystr_width((unsigned char)it->of.s[from]), it->of.n);
        *ret = v_str(str_of(it->of.s + from, it->at - from));
        return 1;
    }
    case V_RANGE:
        if ((int64_t)it->at >= it->of.range->n)
            return 0;
        *ret = v_int(it->of.range->start + (int64_t)it->at++ * it->of.range->step);
        return 1;
    case V_GEN: {
        int more = 0;

        if (it->of.gen->done)
            return 0;
        if (!enter_gen(r))
            return -1;
        more = it->of.gen->next(r, it->of.gen, ret);
        leave_gen(r);
        it->of.gen->done = more <= 0;
        return more;
    }
    case V_LOOP: {
        struct value v;
        int more = loop_step(r, it->of.loop, &v);

        if (more > 0)
            *ret = run_pair(r, v, (struct value){.t = V_LOOP, .loop = it->of.loop});
        return more;
    }
    default:
        return 0;
    }
}

/* A list is returned as it is; everything else is read into a new one. */
struct value iter_collect(struct template_run *r, struct value v)
{
    struct list_builder b = {0};
    struct iter it;
    struct value item;
    int more;

    if (v_is_seq(v))
        return v_list(list_need(r->a, v.list));
    if (!iter_init(r, &it, v))
        return v_err();
    while ((more = iter_next(r, &it, &item)) > 0) {
        if (!builder_add(r, &b, item))
            return v_err();
    }
    return more < 0 ? v_err() : builder_list(r, &b);
}

struct gen *gen_new(struct template_run *r,
                    int (*next)(struct template_run *, struct gen *, struct value *))
{
    struct gen *g = ARENA_NEW(r->a, struct gen);

    g->next = next;
    return g;
}

/* --- loops --- */

/* Reads the next item that passes the statement's test (`for x in y if test`): 1, 0 or -1. */
static int pull_item(struct template_run *r, struct for_loop *l, struct value *ret)
{
    if (l->rest) {
        if (l->rest_at >= l->rest->n)
            return 0;
        *ret = l->rest->at[l->rest_at++];
        return 1;
    }
    for (;;) {
        int more = iter_next(r, &l->it, ret);
        int pass;

        if (more <= 0 || !l->node)
            return more;
        pass = eval_loop_test(r, l->node, *ret);
        if (pass != 0)
            return pass;
    }
}

/* If the item ahead was read already, uses it before reading a further one. */
int loop_step(struct template_run *r, struct for_loop *l, struct value *ret)
{
    struct value next;
    int more = 1;

    if (l->ahead.t != V_MISSING)
        next = l->ahead;
    else
        more = pull_item(r, l, &next);
    if (more <= 0)
        return more;
    l->ahead = v_missing();
    l->index++;
    l->previous = l->current;
    l->current = next;
    *ret = next;
    return 1;
}

/* Reads the item after the current one: 1, 0, or -1. */
static int peek_item(struct template_run *r, struct for_loop *l)
{
    if (l->ahead.t == V_MISSING) {
        struct value v;
        int more = pull_item(r, l, &v);

        if (more <= 0)
            return more;
        l->ahead = v;
    }
    return 1;
}

/* The length of a sequence without a test is known. Otherwise the rest is read and kept for the
 * loop. */
struct value loop_length(struct template_run *r, struct for_loop *l)
{
    struct value rest;
    struct list_builder b = {0};
    int more;

    if (l->length >= 0)
        return v_int(l->length);
    if (!l->node && l->source.t != V_GEN) {
        l->length = value_len(r, l->source);
        return l->length < 0 ? v_err() : v_int(l->length);
    }
    while ((more = pull_item(r, l, &rest)) > 0) {
        if (!builder_add(r, &b, rest))
            return v_err();
    }
    if (more < 0)
        return v_err();
    l->rest = builder_list(r, &b).list;
    l->length = l->index + l->rest->n + (l->ahead.t != V_MISSING);
    return v_int(l->length);
}

/* Returns loop.nextitem or loop.previtem; undefined at the ends. */
static struct value loop_neighbour(struct template_run *r, struct for_loop *l, bool next)
{
    if (next) {
        int more = peek_item(r, l);

        if (more < 0)
            return v_err();
        return more ? l->ahead : v_undef(UNDEF_NAME, STR("there is no next item"));
    }
    if (l->previous.t == V_MISSING)
        return v_undef(UNDEF_NAME, STR("there is no previous item"));
    return l->previous;
}

/* Returns members of `loop` that need no other items. */
static struct value loop_position(const struct for_loop *l, struct str name)
{
    switch (name.len) {
    case 5:
        if (memcmp(name.p, "first", 5) == 0)
            return v_bool(l->index == 1);
        if (memcmp(name.p, "index", 5) == 0)
            return v_int(l->index);
        return memcmp(name.p, "depth", 5) == 0 ? v_int(l->depth + 1) : v_missing();
    case 6:
        if (memcmp(name.p, "index0", 6) == 0)
            return v_int(l->index - 1);
        return memcmp(name.p, "depth0", 6) == 0 ? v_int(l->depth) : v_missing();
    default:
        return v_missing();
    }
}

/* The length is computed only for attributes that need it (length, revindex, revindex0). */
struct value loop_attr(struct template_run *r, struct for_loop *l, struct str name)
{
    struct value n = loop_position(l, name);
    int more;

    if (n.t != V_MISSING)
        return n;
    if (str_eq(name, STR("last"))) {
        more = peek_item(r, l);
        return more < 0 ? v_err() : v_bool(!more);
    }
    if (str_eq(name, STR("previtem")) || str_eq(name, STR("nextitem")))
        return loop_neighbour(r, l, name.p[0] == 'n');
    if (!str_eq(name, STR("length")) && !str_eq(name, STR("revindex")) &&
        !str_eq(name, STR("revindex0")))
        return v_missing();
    n = loop_length(r, l);
    if (n.t == V_ERR || name.p[0] == 'l')
        return n;
    return v_int(n.i - l->index + (name.len == 8));
}
