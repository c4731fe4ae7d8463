/* Attributes, items and slices of values: what `v.name`, `v[key]` and `v[a:b:c]` mean (eval.h).
 *
 * As in jinja2 the two notations try both tables, in different order. v.name tries the type's
 * attributes and methods first and a dict's keys last. v[key] tries the items first and, if the key
 * is a text, the attributes afterwards. If neither has it, the result is an undefined value that
 * remembers its name for the error. Methods that change a value and the double-underscore names are
 * undefined of the kind UNDEF_UNSAFE: the sandbox hides them. */

#include "worker/text/template/eval.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/number.h"
#include "worker/text/template/pystr.h"

/* Makes a value that is the method m bound to self. It can be passed on and called later. */
static struct value bind_method(struct template_run *r, struct value self, const struct method *m)
{
    struct callable *c = ARENA_NEW(r->a, struct callable);

    c->kind = CALL_METHOD;
    c->self = self;
    c->method = m;
    return (struct value){.t = V_CALL, .call = c};
}

/* Matches names that every Python object has. The sandbox hides them. */
static bool is_dunder(struct str name)
{
    static const char *const names[] = {
        "__class__",        "__doc__",     "__init__",      "__new__",          "__repr__",
        "__str__",          "__hash__",    "__eq__",        "__ne__",           "__lt__",
        "__le__",           "__gt__",      "__ge__",        "__dir__",          "__format__",
        "__sizeof__",       "__reduce__",  "__reduce_ex__", "__subclasshook__", "__init_subclass__",
        "__getattribute__", "__setattr__", "__delattr__"};

    return str_is_one_of(name, names, ARRAY_LEN(names));
}

/* Returns a data attribute of Python's numbers; V_MISSING for other names. A bool has those of an
 * int. */
static struct value number_attr(struct value v, struct str name)
{
    if (str_eq_c(name, "real") || (v.t != V_FLOAT && str_eq_c(name, "numerator")))
        return v.t == V_BOOL ? v_int(v.i) : v;
    if (str_eq_c(name, "imag"))
        return v.t == V_FLOAT ? v_float(0) : v_int(0);
    if (v.t != V_FLOAT && str_eq_c(name, "denominator"))
        return v_int(1);
    return v_missing();
}

/* Returns a data attribute of a macro object (name, arguments, caller ...); V_MISSING for other
 * names and for callables that are not macros. */
static struct value macro_attr(struct template_run *r, struct value v, struct str name)
{
    const struct macro_def *m = v.call->macro;
    struct list *l;

    if (v.call->kind != CALL_MACRO)
        return v_missing();
    if (str_eq_c(name, "name"))
        return v_str(m->name);
    if (str_eq_c(name, "caller"))
        return v_bool(m->caller_slot >= 0);
    if (str_eq_c(name, "catch_kwargs"))
        return v_bool(m->kwargs_slot >= 0);
    if (str_eq_c(name, "catch_varargs"))
        return v_bool(m->varargs_slot >= 0);
    if (!str_eq_c(name, "arguments"))
        return v_missing();
    l = list_new(r->a, m->n_params);
    for (uint32_t i = 0; i < m->n_params; i++)
        l->at[i] = m->params[i]->val;
    return v_tuple(l);
}

/* Returns what getattr() finds besides methods; V_MISSING if there is nothing. */
static struct value data_attr(struct template_run *r, struct value v, struct str name)
{
    struct dict_entry *e;

    switch (v.t) {
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        return number_attr(v, name);
    case V_LOOP:
        return loop_attr(r, v.loop, name);
    case V_NS:
        e = dict_find_str(r->a, v.dict, name);
        return e ? e->value : v_missing();
    case V_CALL:
        return macro_attr(r, v, name);
    case V_CYCLER:
        return str_eq_c(name, "current") && v.cycler->n ? v.cycler->items[v.cycler->pos]
                                                        : v_missing();
    case V_RANGE:
        return str_eq_c(name, "start")  ? v_int(v.range->start)
               : str_eq_c(name, "stop") ? v_int(v.range->stop)
               : str_eq_c(name, "step") ? v_int(v.range->step)
                                        : v_missing();
    case V_TUPLE:
        if (v.list->named && (str_eq_c(name, "grouper") || str_eq_c(name, "list")))
            return v.list->at[name.p[0] == 'l'];
        return v_missing();
    default:
        return v_missing();
    }
}

/* Returns getattr(v, name) under the sandbox; V_MISSING if there is no such attribute. */
static struct value get_attribute(struct template_run *r, struct value v, struct str name)
{
    struct value found = data_attr(r, v, name);
    const struct method *m;

    if (found.t != V_MISSING)
        return found;
    m = method_find(v, name);
    if (m)
        return bind_method(r, v, m);
    if (method_forbidden(v, name) || is_dunder(name))
        return v_undef(UNDEF_UNSAFE, name);
    return v_missing();
}

struct value attr_get(struct template_run *r, struct value v, struct str name)
{
    struct value found;
    struct dict_entry *e;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    found = get_attribute(r, v, name);
    if (found.t != V_MISSING)
        return found;
    e = v.t == V_DICT ? dict_find_str(r->a, v.dict, name) : NULL;
    return e ? e->value : v_undef_attr(v.t, name);
}

/* --- items --- */

/* Converts a Python index into n items. Returns false if it is out of range. */
static bool index_of(struct value key, uint32_t n, uint32_t *ret)
{
    int64_t i = key.i;

    if (!v_is_int(key))
        return false;
    if (i < 0)
        i += n;
    *ret = (uint32_t)i;
    return i >= 0 && i < n;
}

/* Returns the character at index `key`, counted in code points; V_MISSING if there is none. A
 * negative index needs the length, which costs one more pass. */
static struct value str_item(struct template_run *r, struct value v, struct value key)
{
    struct str s = v_bytes(v);
    size_t from;
    uint32_t i;

    if (!v_is_int(key))
        return v_missing();
    if (!run_spend(r, (key.i < 0 ? s.len : MIN_OF(s.len, (size_t)key.i)) / 8))
        return v_err();
    if (key.i >= 0) {
        from = pystr_offset(s, 0, (size_t)key.i);
    } else {
        if (!index_of(key, (uint32_t)pystr_len(s), &i))
            return v_missing();
        from = pystr_offset(s, 0, i);
    }
    if (from >= s.len)
        return v_missing();
    return v_like(v_str(str_sub(s, from, pystr_width((unsigned char)s.p[from]))), v);
}

/* Returns v[key] by the items alone: a dict's entry or a sequence's element; V_MISSING if there is
 * none. A list is never a key (it is not hashable), so it is not looked for. */
static struct value raw_item(struct template_run *r, struct value v, struct value key)
{
    struct dict_entry *e;
    uint32_t i;

    switch (v.t) {
    case V_DICT:
        e = v_is_seq(key) && key.t == V_LIST ? NULL : dict_find(r, v.dict, key);
        return e ? e->value : v_missing();
    case V_LIST:
    case V_TUPLE:
        return index_of(key, list_need(r->a, v.list)->n, &i) ? v.list->at[i] : v_missing();
    case V_STR:
        return str_item(r, v, key);
    case V_RANGE:
        return v.range->n <= UINT32_MAX && index_of(key, (uint32_t)v.range->n, &i)
                   ? v_int(v.range->start + i * v.range->step)
                   : v_missing();
    default:
        return v_missing();
    }
}

struct value attr_item(struct template_run *r, struct value v, struct value key)
{
    struct value found;
    struct buf text = {0};
    struct str name;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    found = raw_item(r, v, key);
    if (found.t != V_MISSING)
        return found;
    if (key.t == V_STR) {
        found = get_attribute(r, v, v_bytes(key));
        return found.t != V_MISSING ? found : v_undef_attr(v.t, v_bytes(key));
    }
    if (v_is_number(key))
        number_print(&text, key);
    name = arena_str(r->a, buf_str(&text));
    buf_done(&text);
    return v_undef_attr(v.t, name);
}

/* --- slices --- */

struct slice_bounds {
    int64_t start, stop, step;
    uint64_t n; /* number of items */
};

static int64_t clamp_index(int64_t v, int64_t low, int64_t high)
{
    if (v < low)
        return low;
    return v > high ? high : v;
}

static bool not_given(struct value v)
{
    return v.t == V_MISSING || v.t == V_NONE;
}

/* Limits one number of a slice to a size that no sequence reaches. Returns false with a
 * TypeError. */
static bool slice_bound(struct template_run *r, struct value v, int64_t *ret)
{
    if (not_given(v))
        return true;
    if (v.t == V_BIG) {
        *ret = v.big->negative ? INT32_MIN : INT32_MAX;
        return true;
    }
    if (!v_is_int(v))
        return run_fail(r, "TypeError", "slice indices must be integers or None").t != V_ERR;
    *ret = clamp_index(v.i, -(INT64_C(1) << 40), INT64_C(1) << 40);
    return true;
}

/* Returns the number of items in the bounds; 0 if the step leads away from `stop`. */
static uint64_t slice_count(const struct slice_bounds *b)
{
    if (b->step > 0)
        return b->stop > b->start ? (uint64_t)((b->stop - b->start - 1) / b->step + 1) : 0;
    return b->start > b->stop ? (uint64_t)((b->start - b->stop - 1) / -b->step + 1) : 0;
}

/* Computes Python's slice.indices(). Returns false with a TypeError or ValueError. */
static bool slice_bounds(struct template_run *r, const struct value part[3], int64_t len,
                         struct slice_bounds *b)
{
    int64_t v[3] = {0, 0, 1};

    for (int i = 0; i < 3; i++) {
        if (!slice_bound(r, part[i], &v[i]))
            return false;
    }
    b->step = v[2];
    if (b->step == 0)
        return run_fail(r, "ValueError", "slice step cannot be zero").t != V_ERR;
    for (int i = 0; i < 2; i++) {
        int64_t low = b->step < 0 ? -1 : 0, high = b->step < 0 ? len - 1 : len;

        if (not_given(part[i]))
            v[i] = (i == 0) == (b->step < 0) ? high : low;
        else
            v[i] = clamp_index(v[i] < 0 ? v[i] + len : v[i], low, high);
    }
    b->start = v[0];
    b->stop = v[1];
    b->n = slice_count(b);
    return true;
}

/* Slices a string by code points. Step 1 is one piece of the text. Other steps first record where
 * each code point begins, which counts in the memory and step budgets. */
static struct value slice_str(struct template_run *r, struct value v, const struct slice_bounds *b)
{
    struct str s = v_bytes(v);
    struct buf out = {0};
    size_t len = pystr_len(s), from, to;
    size_t *offset;

    if (!run_spend(r, len == s.len ? s.len / 64 : s.len / 8))
        return v_err();
    if (b->step == 1) {
        from = len == s.len ? (size_t)b->start : pystr_offset(s, 0, (size_t)b->start);
        to = len == s.len ? from + b->n : pystr_offset(s, from, b->n);
        return v_like(v_str(str_sub(s, from, to - from)), v);
    }
    if (!run_room(r, (len + 1) * sizeof(size_t)) || !run_spend(r, len * 2))
        return v_err();
    offset = arena_alloc(r->a, (len + 1) * sizeof(size_t));
    for (size_t i = 0, at = 0; i < len; i++) {
        offset[i] = at;
        at = pystr_offset(s, at, 1);
    }
    for (uint64_t i = 0; i < b->n; i++) {
        size_t at = offset[b->start + (int64_t)i * b->step];

        buf_add_str(&out, str_sub(s, at, pystr_width((unsigned char)s.p[at])));
    }
    return v_like(run_take_text(r, &out), v);
}

/* Slices a list or tuple into a new one of the same type. */
static struct value slice_list(struct template_run *r, struct value v, const struct slice_bounds *b)
{
    struct list *l;

    if (!run_spend(r, b->n / 8) || !run_room(r, b->n * sizeof(struct value)))
        return v_err();
    l = list_new(r->a, (uint32_t)b->n);
    for (uint64_t i = 0; i < b->n; i++)
        l->at[i] = v.list->at[b->start + (int64_t)i * b->step];
    return v.t == V_LIST ? v_list(l) : v_tuple(l);
}

/* Slices a value. A range becomes a new range (no list is made), strings and sequences are copied.
 * Other types cannot be sliced (TypeError). */
struct value attr_slice(struct template_run *r, struct value v, const struct value part[3])
{
    struct slice_bounds b = {0};
    struct py_range *g;

    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (v.t == V_STR) {
        if (!slice_bounds(r, part, (int64_t)pystr_len(v_bytes(v)), &b))
            return v_err();
        return slice_str(r, v, &b);
    }
    if (v_is_seq(v)) {
        if (!slice_bounds(r, part, list_need(r->a, v.list)->n, &b))
            return v_err();
        return slice_list(r, v, &b);
    }
    if (v.t != V_RANGE)
        return run_fail(r, "TypeError", "'%s' object cannot be sliced", v_type_name(v));
    if (!slice_bounds(r, part, v.range->n, &b))
        return v_err();
    g = ARENA_NEW(r->a, struct py_range);
    *g = (struct py_range){v.range->start + b.start * v.range->step,
                           v.range->start + b.stop * v.range->step, v.range->step * b.step,
                           (int64_t)b.n};
    return (struct value){.t = V_RANGE, .range = g};
}
