/*
 * struct value: one Python value while a template runs; 16 bytes, passed by value. Everything that
 * it points to is in the render's arena, in the compiled template, or in the context's JSON. Values
 * are immutable except for namespaces, cyclers, joiners and generators. V_ERR is returned through
 * every function like an exception; the cause is in struct template_run. Lists and dicts made from
 * JSON are converted at their first use (list_need, dict_need), one level at a time.
 */
#ifndef RG_TEMPLATE_VALUE_H
#define RG_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/codec/json.h"

enum value_type {
    V_MISSING, /* an argument not given, or a name never set */
    V_ERR,     /* an exception was raised */
    V_UNDEF,   /* jinja2.Undefined; sub has the kind */
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG, /* an integer beyond 64 bits */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW,  /* dict.keys() / values() / items(); sub has the kind */
    V_RANGE, /* struct py_range */
    V_GEN,   /* a generator: read once, no length */
    V_NS,    /* namespace() */
    V_CALL,  /* macro, bound method, global function */
    V_LOOP,
    V_CYCLER,
    V_JOINER,
    V_TYPE_COUNT
};

enum { UNDEF_NAME, UNDEF_ATTR, UNDEF_UNSAFE, UNDEF_PARAM }; /* sub of V_UNDEF */

enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS }; /* sub of V_VIEW */

enum { VF_MARKUP = 1 }; /* flags of V_STR */

struct value {
    uint8_t t;     /* enum value_type */
    uint8_t flags; /* flags VF_ */
    uint16_t sub;  /* see above; for V_UNDEF of an attribute: low byte UNDEF_, high byte type */
    uint32_t n;    /* V_STR, V_UNDEF: number of bytes at s */

    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct list *list;
        struct dict *dict;
        const struct big *big;
        struct py_range *range;
        struct gen *gen;
        struct callable *call;
        struct for_loop *loop;
        struct cycler *cycler;
    };
};

struct list {
    struct value *at;
    uint32_t n;
    bool named;             /* the namedtuple of groupby: (grouper, list) */
    const struct json *src; /* source that is not converted yet */
};

struct dict_entry {
    struct value key, value;
};

struct dict {
    struct dict_entry *at;
    uint32_t n, cap;
    uint32_t *index; /* hash table of the string keys, made when the dict is large */
    uint32_t index_cap, indexed;
    const struct json *src;
};

struct py_range {
    int64_t start, stop, step, n;
};

struct cycler {
    struct value *items;
    uint32_t n, pos;
    struct value sep; /* separator of a joiner */
    bool used;
};

/* Copies n values between arrays. An empty array may be NULL. */
static inline void value_copy(struct value *to, const struct value *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof(*to));
}

static inline struct value v_none(void)
{
    return (struct value){.t = V_NONE};
}

static inline struct value v_missing(void)
{
    return (struct value){.t = V_MISSING};
}

static inline struct value v_err(void)
{
    return (struct value){.t = V_ERR};
}

static inline struct value v_bool(bool b)
{
    return (struct value){.t = V_BOOL, .i = b};
}

static inline struct value v_int(int64_t i)
{
    return (struct value){.t = V_INT, .i = i};
}

static inline struct value v_float(double f)
{
    return (struct value){.t = V_FLOAT, .f = f};
}

static inline struct value v_str(struct str s)
{
    return (struct value){.t = V_STR, .n = (uint32_t)s.len, .s = s.p ? s.p : ""};
}

static inline struct value v_text(const char *s)
{
    return v_str(str_cstr(s));
}

static inline struct value v_list(struct list *l)
{
    return (struct value){.t = V_LIST, .list = l};
}

static inline struct value v_tuple(struct list *l)
{
    return (struct value){.t = V_TUPLE, .list = l};
}

static inline struct value v_dict(struct dict *d)
{
    return (struct value){.t = V_DICT, .dict = d};
}

static inline struct value v_undef(uint16_t sub, struct str name)
{
    return (struct value){.t = V_UNDEF, .sub = sub, .n = (uint32_t)name.len, .s = name.p};
}

/* Makes the undefined value for an attribute or item that a value of type t does not have. */
static inline struct value v_undef_attr(uint8_t t, struct str name)
{
    return v_undef((uint16_t)(UNDEF_ATTR | t << 8), name);
}

static inline struct str v_bytes(struct value v)
{
    return str_of(v.s, v.n);
}

static inline bool v_is_seq(struct value v)
{
    return v.t == V_LIST || v.t == V_TUPLE;
}

/* Reports whether Python considers the value an int: int or bool. */
static inline bool v_is_int(struct value v)
{
    return v.t == V_INT || v.t == V_BOOL;
}

static inline bool v_is_number(struct value v)
{
    return v_is_int(v) || v.t == V_BIG || v.t == V_FLOAT;
}

/* Returns a string marked like `model`: with Markup, the result is Markup. */
static inline struct value v_like(struct value v, struct value model)
{
    v.flags = model.flags & VF_MARKUP;
    return v;
}

/* Marks a text as HTML. V_ERR is unchanged. */
static inline struct value v_markup(struct value v)
{
    if (v.t == V_STR)
        v.flags |= VF_MARKUP;
    return v;
}

/* Returns Python's name of a value's type ("dict", "NoneType"). */
const char *v_type_name(struct value v);

/* Returns the value of a JSON node. Containers are converted later. */
struct value v_from_json(struct arena *a, const struct json *j);

void list_convert(struct arena *a, struct list *l);
void dict_convert(struct arena *a, struct dict *d);

static inline struct list *list_need(struct arena *a, struct list *l)
{
    if (l->src)
        list_convert(a, l);
    return l;
}

static inline struct dict *dict_need(struct arena *a, struct dict *d)
{
    if (d->src)
        dict_convert(a, d);
    return d;
}

/* Make a list of n uninitialised items, and an empty dict with space for n entries. */
struct list *list_new(struct arena *a, uint32_t n);
struct dict *dict_new(struct arena *a, uint32_t n);

/* Computes memcmp() == 0 for names, which are so short that a call would cost more than the
 * comparison. */
static inline bool bytes_same(const char *x, const char *y, size_t n)
{
    uint64_t a, b;
    uint32_t c, d;

    if (n >= 8) {
        for (; n > 8; x += 8, y += 8, n -= 8) {
            memcpy(&a, x, 8);
            memcpy(&b, y, 8);
            if (a != b)
                return false;
        }
        memcpy(&a, x + n - 8, 8);
        memcpy(&b, y + n - 8, 8);
        return a == b;
    }
    if (n >= 4) {
        memcpy(&c, x, 4);
        memcpy(&d, y, 4);
        if (c != d)
            return false;
        memcpy(&c, x + n - 4, 4);
        memcpy(&d, y + n - 4, 4);
        return c == d;
    }
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i])
            return false;
    }
    return true;
}

/* Returns the entry of a string key, or NULL. */
struct dict_entry *dict_find_str(struct arena *a, struct dict *d, struct str key);

struct template_run;

/* Returns the entry of any hashable key, or NULL. Keys that are not strings are compared one by
 * one, which counts steps. */
struct dict_entry *dict_find(struct template_run *r, struct dict *d, struct value key);

/* Sets or replaces an entry. The key must be hashable. */
void dict_set(struct template_run *r, struct dict *d, struct value key, struct value value);

#endif
