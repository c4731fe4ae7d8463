/* Filters that return a generator: map, select and their family, batch, slice, unique.
 *
 * A filter f_NAME only makes a generator; next_NAME makes one item in each call (iter.h). The
 * arguments are checked when the first item is requested (`prepare`), as in Python: a wrong
 * argument of a generator that is never read is not an error. The comment at each next_NAME lists
 * the content of args[]. */
#include "worker/text/template/compare.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/method_str.h"
#include "worker/text/template/pystr.h"

static int next_mapped(struct template_run *r, struct gen *g, struct value *ret);
static int next_selected(struct template_run *r, struct gen *g, struct value *ret);
static bool prepare_map(struct template_run *r, struct gen *g);
static bool prepare_select(struct template_run *r, struct gen *g);

/* Prepares a generator when its first item is requested. */
static bool prepare_generator(struct template_run *r, struct gen *g)
{
    bool (*prepare)(struct template_run *, struct gen *) = g->prepare;

    g->prepare = NULL;
    return !prepare || prepare(r, g);
}

/* Makes a generator over v. Returns V_ERR if v cannot be iterated. */
static struct value
start_generator(struct template_run *r, struct value v,
                int (*next)(struct template_run *, struct gen *, struct value *), struct gen **ret)
{
    *ret = gen_new(r, next);
    /* map and select first test `if value:`. So None, 0 and "" give an empty generator and no
     * error, even if the filter or test does not exist. */
    if ((next == next_mapped || next == next_selected) && !value_truth(r, v))
        v = v_text("");
    else
        (*ret)->prepare = next == next_mapped     ? prepare_map
                          : next == next_selected ? prepare_select
                                                  : NULL;
    if (!iter_init(r, &(*ret)->src, v))
        return v_err();
    return v_gen(*ret);
}

/* Collects the arguments that map and select pass on: positional ones from `from` on, and named
 * ones. */
static struct argv pass_args(struct template_run *r, struct list *pos, uint32_t from,
                             struct dict *named)
{
    struct argv argv = {.pos = pos->at + MIN_OF(from, pos->n),
                        .n_pos = pos->n - MIN_OF(from, pos->n),
                        .n_named = named->n};

    argv.names = arena_alloc(r->a, named->n * sizeof(*argv.names));
    argv.named = arena_alloc(r->a, named->n * sizeof(*argv.named));
    for (uint32_t i = 0; i < named->n; i++) {
        argv.names[i] = v_bytes(named->at[i].key);
        argv.named[i] = named->at[i].value;
    }
    return argv;
}

/* Applies the filter g->fn, or reads the attribute if there is no filter. args: 0 positional, 1
 * named, 2 attribute, 3 its default. */
static int next_mapped(struct template_run *r, struct gen *g, struct value *ret)
{
    struct argv argv;
    int more = prepare_generator(r, g) ? iter_next(r, &g->src, ret) : -1;

    if (more <= 0)
        return more;
    if (g->fn) {
        argv = pass_args(r, g->args[0].list, 1, g->args[1].dict);
        *ret = filter_call(r, g->fn, *ret, &argv);
    } else {
        *ret = filter_attribute_or(r, *ret, g->args[2], g->args[3]);
    }
    return ret->t == V_ERR ? -1 : 1;
}

/* Looks up the filter of map("name", ...). Returns false with the error if it does not exist. */
static bool find_filter(struct template_run *r, struct gen *g, struct value name)
{
    g->fn = name.t == V_STR ? filter_find(v_bytes(name)) : NULL;
    if (!g->fn)
        (void)run_fail(r, "TemplateRuntimeError", "No filter named '%.*s'.",
                       name.t == V_STR ? (int)name.n : 1, name.t == V_STR ? name.s : "?");
    return g->fn != NULL;
}

/* Decides between map(filter, arguments...) and map(attribute=..., default=...). */
static bool prepare_map(struct template_run *r, struct gen *g)
{
    struct list *pos = g->args[0].list;
    struct dict *named = g->args[1].dict;
    struct dict_entry *attribute = dict_find_str(r->a, named, STR("attribute"));
    struct dict_entry *dflt = dict_find_str(r->a, named, STR("default"));

    if (pos->n > 0)
        return find_filter(r, g, pos->at[0]);
    if (!attribute)
        return run_fail(r, "FilterArgumentError", "map requires a filter argument").t != V_ERR;
    g->args[2] = attribute->value;
    g->args[3] = dflt ? dflt->value : v_missing();
    if (named->n > 1U + (dflt != NULL))
        return run_fail(r, "FilterArgumentError", "Unexpected keyword argument").t != V_ERR;
    return true;
}

/* Keeps the arguments for prepare_map. */
static struct value f_map(struct template_run *r, struct value v, struct value *a)
{
    struct gen *g;
    struct value ret = start_generator(r, v, next_mapped, &g);

    if (ret.t != V_ERR) {
        g->args[0] = a[0];
        g->args[1] = a[1];
    }
    return ret;
}

/* args: 0 positional, 1 named, 2 attribute or missing, 3 whether items that pass are kept; n_args:
 * first argument of the test */
static int next_selected(struct template_run *r, struct gen *g, struct value *ret)
{
    for (;;) {
        int more = prepare_generator(r, g) ? iter_next(r, &g->src, ret) : -1;
        struct value item;
        struct argv argv;
        int pass;

        if (more <= 0)
            return more;
        item = filter_attribute(r, *ret, g->args[2]);
        if (item.t == V_ERR)
            return -1;
        if (g->fn) {
            argv = pass_args(r, g->args[0].list, g->n_args, g->args[1].dict);
            pass = test_call(r, g->fn, item, &argv);
        } else {
            pass = value_truth(r, item);
        }
        if (pass < 0)
            return -1;
        if ((pass != 0) == g->flag)
            return 1;
    }
}

/* The *attr filters get the attribute's name first, then perhaps the name of a test and its
 * arguments. Without a test the truth of the item decides. */
static bool prepare_select(struct template_run *r, struct gen *g)
{
    const struct list *pos = g->args[0].list;
    bool attr = g->args[3].i != 0;
    uint32_t at = attr ? 1 : 0;

    if (attr && pos->n == 0)
        return run_fail(r, "FilterArgumentError", "Missing parameter for attribute name").t !=
               V_ERR;
    if (attr)
        g->args[2] = pos->at[0];
    if (pos->n > at) {
        g->fn = pos->at[at].t == V_STR ? test_find(v_bytes(pos->at[at])) : NULL;
        if (!g->fn)
            return run_fail(r, "TemplateRuntimeError", "No such test for select or reject").t !=
                   V_ERR;
        g->n_args = at + 1;
    }
    return true;
}

/* Makes select, reject, selectattr and rejectattr. With `keep`, items that pass are kept, otherwise
 * dropped. With `attr`, an attribute of the item is tested. */
static struct value select_items(struct template_run *r, struct value v, struct value *a, bool keep,
                                 bool attr)
{
    struct gen *g;
    struct value ret = start_generator(r, v, next_selected, &g);

    if (ret.t == V_ERR)
        return ret;
    g->flag = keep;
    g->args[0] = a[0];
    g->args[1] = a[1];
    g->args[3] = v_bool(attr);
    return ret;
}

static struct value f_select(struct template_run *r, struct value v, struct value *a)
{
    return select_items(r, v, a, true, false);
}

static struct value f_reject(struct template_run *r, struct value v, struct value *a)
{
    return select_items(r, v, a, false, false);
}

static struct value f_selectattr(struct template_run *r, struct value v, struct value *a)
{
    return select_items(r, v, a, true, true);
}

static struct value f_rejectattr(struct template_run *r, struct value v, struct value *a)
{
    return select_items(r, v, a, false, true);
}

/* args: 0 size, 1 fill */
static int next_batch(struct template_run *r, struct gen *g, struct value *ret)
{
    struct list_builder b = {0};
    struct value item;
    int more = 1;

    while (b.n < (uint64_t)g->args[0].i && (more = iter_next(r, &g->src, &item)) > 0) {
        if (!builder_add(r, &b, item))
            return -1;
    }
    if (more < 0 || b.n == 0)
        return more < 0 ? -1 : 0;
    while (b.n < (uint64_t)g->args[0].i && g->args[1].t != V_MISSING && g->args[1].t != V_NONE) {
        if (!builder_add(r, &b, g->args[1]) || !run_spend(r, 1))
            return -1;
    }
    *ret = builder_list(r, &b);
    return 1;
}

/* Makes lists of n items each; n below 1 counts as 1. */
static struct value f_batch(struct template_run *r, struct value v, struct value *a)
{
    struct gen *g;
    struct value ret = start_generator(r, v, next_batch, &g);
    int64_t n;

    if (ret.t == V_ERR || !arg_int(r, a[0], 0, &n))
        return v_err();
    g->args[0] = v_int(MAX_OF(n, 1));
    g->args[1] = a[1];
    return ret;
}

/* args: 0 all items, 1 number of slices, 2 fill; n_args: index of the next slice */
static int next_slice(struct template_run *r, struct gen *g, struct value *ret)
{
    int64_t n = g->args[0].list->n, slices = g->args[1].i, i = g->n_args;
    int64_t per = n / slices, extra = n % slices;
    int64_t from = i * per + MIN_OF(i, extra), count = per + (i < extra);
    struct list_builder b = {0};

    if (i >= slices)
        return 0;
    if (!run_spend(r, (uint64_t)count / 4))
        return -1;
    g->n_args++;
    for (int64_t k = 0; k < count; k++) {
        if (!builder_add(r, &b, g->args[0].list->at[from + k]))
            return -1;
    }
    if (g->args[2].t != V_MISSING && g->args[2].t != V_NONE && i >= extra &&
        !builder_add(r, &b, g->args[2]))
        return -1;
    *ret = builder_list(r, &b);
    return 1;
}

/* Makes n lists of nearly equal length. If the length is not divisible, the first ones are longer
 * by one. */
static struct value f_slice(struct template_run *r, struct value v, struct value *a)
{
    struct gen *g;
    struct value ret = start_generator(r, v, next_slice, &g);
    int64_t n;

    if (ret.t == V_ERR || !arg_int(r, a[0], 0, &n))
        return v_err();
    if (n <= 0)
        return run_fail(r, "ZeroDivisionError", "integer division or modulo by zero");
    g->args[0] = iter_collect(r, v);
    g->args[1] = v_int(n);
    g->args[2] = a[1];
    return g->args[0].t == V_ERR ? v_err() : ret;
}

/* args: 0 attribute; flag: case sensitive */
static int next_unique(struct template_run *r, struct gen *g, struct value *ret)
{
    for (;;) {
        int more = iter_next(r, &g->src, ret);
        struct value key;
        bool seen = false;

        if (more <= 0)
            return more;
        key = filter_attribute(r, *ret, g->args[0]);
        if (key.t == V_ERR || !value_hashable(r, key))
            return -1;
        if (key.t == V_STR && !g->flag) {
            if (!run_spend_chars(r, v_bytes(key)) || !run_room(r, (uint64_t)key.n * 3))
                return -1;
            key = v_str(pystr_case(r->a, v_bytes(key), PYSTR_TO_LOWER));
        }
        for (uint32_t i = 0; i < g->seen.n && !seen; i++)
            seen = value_eq(r, g->seen.at[i], key);
        if (r->budget.over)
            return -1;
        if (!seen)
            return builder_add(r, &g->seen, key) ? 1 : -1;
    }
}

/* Returns the first item of each key. Keys are searched one by one, and each search counts its
 * steps. */
static struct value f_unique(struct template_run *r, struct value v, struct value *a)
{
    struct gen *g;
    struct value ret = start_generator(r, v, next_unique, &g);

    if (ret.t == V_ERR)
        return ret;
    g->flag = a[0].t != V_MISSING && value_truth(r, a[0]);
    g->args[0] = a[1];
    return ret;
}

static int next_item(struct template_run *r, struct gen *g, struct value *ret)
{
    return iter_next(r, &g->src, ret);
}

/* Returns the (key, value) pairs of a mapping. An undefined value has none. */
static struct value f_items(struct template_run *r, struct value v, struct value *a)
{
    struct gen *g;

    (void)a;
    if (v.t == V_DICT)
        v = (struct value){.t = V_VIEW, .sub = VIEW_ITEMS, .dict = v.dict};
    else if (v.t != V_UNDEF)
        return run_fail(r, "TypeError", "Can only get item pairs from a mapping.");
    return start_generator(r, v, next_item, &g);
}

const struct filter pick_filters[] = {
    {"map", "* **", f_map},
    {"selectattr", "* **", f_selectattr},
    {"rejectattr", "* **", f_rejectattr},
    {"select", "* **", f_select},
    {"reject", "* **", f_reject},
    {"items", "", f_items},
    {"unique", "case_sensitive attribute", f_unique},
    {"batch", "linecount! fill_with", f_batch},
    {"slice", "slices! fill_with", f_slice},
    {NULL, NULL, NULL},
};
