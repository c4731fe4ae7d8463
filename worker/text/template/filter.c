/* Filters and tests by name, and what all of them need (filter.h). The tables are in the files of
 * the filters: filter_text.c, filter_list.c, filter_pick.c, filter_value.c; the tests in test.c.
 * The parser resolves each name once, so the linear search costs nothing at rendering. */

#include "worker/text/template/filter.h"

#include "worker/text/template/eval.h"
#include "worker/text/template/print.h"
#include "worker/text/template/pystr.h"

const struct filter *filter_find(struct str name)
{
    static const struct filter *const tables[] = {text_filters, list_filters, pick_filters,
                                                  value_filters, format_filters};

    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        for (const struct filter *f = tables[i]; f->name; f++) {
            if (str_eq_c(name, f->name))
                return f;
        }
    }
    return NULL;
}

struct value filter_call(struct template_run *r, const struct filter *f, struct value v,
                         const struct argv *argv)
{
    struct value a[PARAMS_MAX];

    if (!call_bind(r, f->name, f->params, argv, a))
        return v_err();
    return f->fn(r, v, a);
}

int test_call(struct template_run *r, const struct test *t, struct value v, const struct argv *argv)
{
    struct value a[PARAMS_MAX];

    if (!call_bind(r, t->name, t->params, argv, a))
        return -1;
    return t->fn(r, v, a);
}

struct value filter_text(struct template_run *r, struct value v)
{
    struct buf out = {0};

    if (v.t == V_STR)
        return v;
    if (!print_str(r, &out, v)) {
        buf_done(&out);
        return v_err();
    }
    return run_take_text(r, &out);
}

static bool is_digits(struct str s)
{
    return s.len > 0 && pystr_is(s, "digit");
}

static struct value item_or(struct template_run *r, struct value v, struct value key,
                            struct value dflt)
{
    v = attr_item(r, v, key);
    return v.t == V_UNDEF && dflt.t != V_MISSING && dflt.t != V_NONE ? dflt : v;
}

/* A segment of the path that is all digits is an index, as in jinja2: "a.0.b". The default stands
 * in for each segment that is undefined, and the next one is read from it. */
struct value filter_attribute_or(struct template_run *r, struct value v, struct value path,
                                 struct value dflt)
{
    struct str rest = v_bytes(path);

    if (path.t == V_MISSING || path.t == V_NONE)
        return v;
    if (path.t != V_STR)
        return item_or(r, v, path, dflt);
    for (;;) {
        size_t dot = str_find(rest, STR("."), 0);
        struct str part = str_sub(rest, 0, dot);
        uint64_t index = 0;

        if (!run_spend(r, 1))
            return v_err();
        if (is_digits(part) && str_to_u64(part, INT32_MAX, &index) == 0)
            v = item_or(r, v, v_int((int64_t)index), dflt);
        else
            v = item_or(r, v, v_str(part), dflt);
        if (v.t == V_ERR || dot == SIZE_MAX)
            return v;
        rest = str_sub(rest, dot + 1, rest.len);
    }
}

struct value filter_attribute(struct template_run *r, struct value v, struct value path)
{
    return filter_attribute_or(r, v, path, v_missing());
}
