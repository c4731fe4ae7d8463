/* Values of templates (value.h): names of types, lists, dicts, and values from JSON.
 *
 * Messages can be large and templates read little of them. So an array or object of JSON becomes a
 * list or dict that only remembers its source (src). list_need and dict_need convert one level at
 * its first use. Dicts keep the order of insertion in at[]. A dict with more than DICT_SCAN_MAX
 * entries gets an open-addressing index of the string keys (index[] = position + 1, 0 = empty). It
 * is built at the first look-up and brought up to date at later ones. */

#include "worker/text/template/value.h"

#include <stdlib.h>

#include "worker/text/template/compare.h"
#include "worker/text/template/number.h"

/* For fewer entries a scan is faster than a hash. */
enum { DICT_SCAN_MAX = 16 };

const char *v_type_name(struct value v)
{
    static const char *const names[V_TYPE_COUNT] = {
        [V_MISSING] = "missing", [V_ERR] = "error",     [V_UNDEF] = "Undefined",
        [V_NONE] = "NoneType",   [V_BOOL] = "bool",     [V_INT] = "int",
        [V_BIG] = "int",         [V_FLOAT] = "float",   [V_STR] = "str",
        [V_LIST] = "list",       [V_TUPLE] = "tuple",   [V_DICT] = "dict",
        [V_VIEW] = "dict_items", [V_RANGE] = "range",   [V_GEN] = "generator",
        [V_NS] = "Namespace",    [V_CALL] = "function", [V_LOOP] = "LoopContext",
        [V_CYCLER] = "Cycler",   [V_JOINER] = "Joiner",
    };

    return v.t < V_TYPE_COUNT ? names[v.t] : "?";
}

/* The caller must fill at[]. */
struct list *list_new(struct arena *a, uint32_t n)
{
    struct list *l = ARENA_NEW(a, struct list);

    l->n = n;
    l->at = arena_alloc(a, (size_t)n * sizeof(struct value));
    return l;
}

struct dict *dict_new(struct arena *a, uint32_t n)
{
    struct dict *d = ARENA_NEW(a, struct dict);

    d->cap = n;
    d->at = n ? arena_alloc(a, (size_t)n * sizeof(struct dict_entry)) : NULL;
    return d;
}

/* Arrays and objects are not converted yet, so j must live as long as the values. */
struct value v_from_json(struct arena *a, const struct json *j)
{
    switch (j->kind) {
    case JSON_BOOL:
        return v_bool(json_is_true(j));
    case JSON_NUMBER:
        return number_from_json(a, json_text(j));
    case JSON_STRING:
        return v_str(json_text(j));
    case JSON_ARRAY: {
        struct list *l = ARENA_NEW(a, struct list);

        l->n = j->n;
        l->src = j;
        return v_list(l);
    }
    case JSON_OBJECT: {
        struct dict *d = ARENA_NEW(a, struct dict);

        d->n = d->cap = j->n;
        d->src = j;
        return v_dict(d);
    }
    default:
        return v_none();
    }
}

/* Converts one level: nested arrays and objects remain sources. */
void list_convert(struct arena *a, struct list *l)
{
    const struct json *j = l->src;

    l->src = NULL;
    l->at = arena_alloc(a, (size_t)j->n * sizeof(struct value));
    for (uint32_t i = 0; i < j->n; i++)
        l->at[i] = v_from_json(a, &j->items[i]);
}

/* Converts one level of an object. Keys of JSON objects are unique already (the reader keeps the
 * last). */
void dict_convert(struct arena *a, struct dict *d)
{
    const struct json *j = d->src;

    d->src = NULL;
    d->at = arena_alloc(a, (size_t)j->n * sizeof(struct dict_entry));
    for (uint32_t i = 0; i < j->n; i++) {
        const struct json_member *m = &j->members[i];

        d->at[i].key = v_str(str_of(m->key.text, m->key.n));
        d->at[i].value = m->value.kind == JSON_STRING ? v_str(str_of(m->value.text, m->value.n))
                                                      : v_from_json(a, &m->value);
    }
}

/* Adds entry i to the index. Keys that are not strings are never looked up in the index. */
static void dict_index_add(struct dict *d, uint32_t i)
{
    uint32_t mask = d->index_cap - 1;
    uint32_t at;

    if (d->at[i].key.t != V_STR)
        return;
    at = (uint32_t)str_hash(v_bytes(d->at[i].key), 0) & mask;
    while (d->index[at])
        at = (at + 1) & mask;
    d->index[at] = i + 1;
}

/* Brings the index of string keys up to date. */
static void dict_index(struct arena *a, struct dict *d)
{
    if (!d->index || d->n * 2 > d->index_cap) {
        uint32_t cap = 64;

        while (cap < d->n * 4)
            cap *= 2;
        d->index_cap = cap;
        d->index = arena_calloc(a, cap, sizeof(uint32_t));
        d->indexed = 0;
    }
    while (d->indexed < d->n)
        dict_index_add(d, d->indexed++);
}

/* Short dicts are scanned; longer ones have an index. */
struct dict_entry *dict_find_str(struct arena *a, struct dict *d, struct str key)
{
    dict_need(a, d);
    if (d->n > DICT_SCAN_MAX) {
        uint32_t at;

        dict_index(a, d);
        at = (uint32_t)str_hash(key, 0) & (d->index_cap - 1);
        for (; d->index[at]; at = (at + 1) & (d->index_cap - 1)) {
            struct dict_entry *e = &d->at[d->index[at] - 1];

            if (str_eq(v_bytes(e->key), key))
                return e;
        }
        return NULL;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        struct value *k = &d->at[i].key;

        if (k->n == key.len && k->t == V_STR && bytes_same(k->s, key.p, key.len))
            return &d->at[i];
    }
    return NULL;
}

/* For a key that is not a string: numbers of equal value are equal keys (1, 1.0, True), as in
 * Python. */
struct dict_entry *dict_find(struct template_run *r, struct dict *d, struct value key)
{
    if (key.t == V_STR)
        return run_spend(r, key.n / 16) ? dict_find_str(r->a, d, v_bytes(key)) : NULL;
    dict_need(r->a, d);
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->at[i].key.t != V_STR && value_eq(r, d->at[i].key, key))
            return &d->at[i];
    }
    return NULL;
}

/* Replaces the value of an equal key, else appends. Growing copies the entries within the arena.
 * Without memory for that the dict does not change, and the exception is set. */
void dict_set(struct template_run *r, struct dict *d, struct value key, struct value value)
{
    struct dict_entry *e = dict_find(r, d, key);

    if (e) {
        e->value = value;
        return;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 8;
        struct dict_entry *at;

        if (!run_room(r, (uint64_t)cap * sizeof(*at)))
            return;
        at = arena_alloc(r->a, (size_t)cap * sizeof(*at));
        if (d->n)
            memcpy(at, d->at, d->n * sizeof(*at));
        d->at = at;
        d->cap = cap;
    }
    d->at[d->n++] = (struct dict_entry){key, value};
}
