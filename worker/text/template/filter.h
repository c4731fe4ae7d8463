/*
 * The filters and tests of jinja2 3.1 by name, with tojson as transformers replaces it. Parameter
 * lists are those of callable.h.
 */
#ifndef RG_TEMPLATE_FILTER_H
#define RG_TEMPLATE_FILTER_H

#include "worker/text/template/callable.h"

struct filter {
    const char *name;
    const char *params;
    native_fn fn;
};

struct test {
    const char *name;
    const char *params;
    int (*fn)(struct template_run *r, struct value v, struct value *a); /* 1, 0, or -1 on error */
};

const struct filter *filter_find(struct str name);
const struct test *test_find(struct str name);

/* Applies the filter with arguments from a list. */
struct value filter_call(struct template_run *r, const struct filter *f, struct value v,
                         const struct argv *argv);
int test_call(struct template_run *r, const struct test *t, struct value v,
              const struct argv *argv);

/* tables of the filter files, each of which ends with a NULL name */
extern const struct filter text_filters[], format_filters[], list_filters[], pick_filters[],
    value_filters[];

/* Returns the item of a value at a key, an index, or a dotted path of them (map(attribute=...)).
 * dflt stands in for each undefined segment, unless it is V_MISSING or none. */
struct value filter_attribute(struct template_run *r, struct value v, struct value path);
struct value filter_attribute_or(struct template_run *r, struct value v, struct value path,
                                 struct value dflt);

/* Returns str(v) as a string value. Markup is not changed. */
struct value filter_text(struct template_run *r, struct value v);

#endif
