/* Reads JSON values (json.h): members, numbers, equality. Equality is that of messages: numbers by
 * value, objects in any order of their members. */

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/json_number.h"

static inline bool has_key(const struct json *k, struct str key)
{
    return k->n == key.len && bytes_eq(k->text, key.p, key.len);
}

const struct json *json_get_str(const struct json *v, struct str key)
{
    for (size_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++)
        if (has_key(&v->members[i].key, key))
            return &v->members[i].value;
    return NULL;
}

void json_get_each(const struct json *v, const struct str *names, size_t n, const struct json **ret)
{
    for (size_t k = 0; k < n; k++)
        ret[k] = NULL;
    for (size_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++)
        for (size_t k = 0; k < n; k++)
            if (!ret[k] && has_key(&v->members[i].key, names[k])) {
                ret[k] = &v->members[i].value;
                break;
            }
}

int json_to_i64(const struct json *v, int64_t *ret)
{
    return json_is(v, JSON_NUMBER) ? json_number_i64(json_text(v), ret) : -1;
}

int json_to_double(const struct json *v, double *ret)
{
    return json_is(v, JSON_NUMBER) ? json_number_double(json_text(v), ret) : -1;
}

double json_number_of(const struct json *v, const char *name)
{
    double n = 0;

    (void)json_to_double(json_get(v, name), &n);
    return n;
}

/* --- equality --- */

/* Reports whether the text has a fraction or an exponent. */
static bool is_float(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '.' || text.p[i] == 'e' || text.p[i] == 'E')
            return true;
    }
    return false;
}

/* Compares by value, exactly as decimals. Two texts with fraction or exponent are also equal if
 * they are the same double, because every client rewrites those through a double. */
static bool number_equal(struct str a, struct str b)
{
    double x, y;

    if (str_eq(a, b) || json_number_same(a, b))
        return true;
    return is_float(a) && is_float(b) && json_number_double(a, &x) == 0 &&
           json_number_double(b, &y) == 0 && x == y;
}

static int by_key(const void *a, const void *b)
{
    const struct json_member *const *x = a, *const *y = b;

    return str_cmp(json_text(&(*x)->key), json_text(&(*y)->key));
}

/* Returns pointers to the members, sorted by key. The caller frees them. */
static const struct json_member **sort_members(const struct json *v)
{
    const struct json_member **m = mem_calloc(v->n, sizeof(const struct json_member *));

    for (size_t i = 0; i < v->n; i++)
        m[i] = &v->members[i];
    qsort(m, v->n, sizeof(*m), by_key);
    return m;
}

static bool member_equal(const struct json_member *a, const struct json_member *b)
{
    return str_eq(json_text(&a->key), json_text(&b->key)) && json_equal(&a->value, &b->value);
}

/* Compares two objects with the same number of members, in O(n log n) for any order of members. */
static bool object_equal(const struct json *a, const struct json *b)
{
    const struct json_member **x, **y;
    size_t same = 0;
    bool equal = true;

    while (same < a->n &&
           str_eq(json_text(&a->members[same].key), json_text(&b->members[same].key)))
        same++;
    if (same == a->n) {
        for (size_t i = 0; i < a->n && equal; i++)
            equal = json_equal(&a->members[i].value, &b->members[i].value);
        return equal;
    }
    x = sort_members(a);
    y = sort_members(b);
    for (size_t i = 0; i < a->n && equal; i++)
        equal = member_equal(x[i], y[i]);
    free(x);
    free(y);
    return equal;
}

bool json_equal(const struct json *a, const struct json *b)
{
    if (!a || !b)
        return a == b;
    if (a->kind != b->kind)
        return false;
    switch ((enum json_kind)a->kind) {
    case JSON_NULL:
        return true;
    case JSON_BOOL:
        return ((a->flags ^ b->flags) & JSON_TRUE) == 0;
    case JSON_NUMBER:
        return number_equal(json_text(a), json_text(b));
    case JSON_STRING:
        return str_eq(json_text(a), json_text(b));
    case JSON_ARRAY:
        for (size_t i = 0; i < a->n && i < b->n; i++) {
            if (!json_equal(&a->items[i], &b->items[i]))
                return false;
        }
        return a->n == b->n;
    case JSON_OBJECT:
        return a->n == b->n && object_equal(a, b);
    }
    return false;
}

/* --- making --- */

struct json json_make_string(struct str s)
{
    return (struct json){.kind = JSON_STRING, .n = (uint32_t)s.len, {.text = s.p ? s.p : ""}};
}

struct json json_make_bool(bool b)
{
    return (struct json){.kind = JSON_BOOL, .flags = b ? JSON_TRUE : 0};
}

struct json json_make_i64(struct arena *a, int64_t v)
{
    struct str text = arena_printf(a, "%lld", (long long)v);

    return (struct json){.kind = JSON_NUMBER, .n = (uint32_t)text.len, {.text = text.p}};
}

size_t json_text_bytes(const struct json *v, size_t enough)
{
    size_t n = 0;

    if (!v)
        return 0;
    if (v->kind == JSON_STRING || v->kind == JSON_NUMBER)
        return v->n;
    for (uint32_t i = 0; v->kind == JSON_ARRAY && i < v->n && n < enough; i++)
        n += 1 + json_text_bytes(&v->items[i], enough - n);
    for (uint32_t i = 0; v->kind == JSON_OBJECT && i < v->n && n < enough; i++)
        n += 1 + v->members[i].key.n + json_text_bytes(&v->members[i].value, enough - n);
    return n;
}
