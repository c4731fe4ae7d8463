/* The state of one rendering and the functions that all of it uses (run.h): the first exception,
 * the budgets, new strings and lists.
 *
 * run_concat makes building a text piece by piece linear. It leaves free memory after the string
 * that it made last (the tip), and writes the next piece there if x ends exactly at the tip.
 *
 *   x.s                     tip           tip_end
 *   |                       |             |
 *   | bytes of x ...........| free memory |
 *
 * Older values that share the prefix are not changed, because only bytes after their end are
 * written. */

#include "worker/text/template/run.h"

#include <stdio.h>

#include "worker/text/template/escape.h"
#include "worker/text/template/pystr.h"

/* Keeps the first exception: later ones are consequences of it. */
struct value run_raise(struct template_run *r, const char *kind, struct str message)
{
    if (!r->error.kind) {
        r->error.kind = kind;
        r->error.message = arena_str(r->a, message);
        r->error.line = r->line;
    }
    return v_err();
}

struct value run_fail(struct template_run *r, const char *kind, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return run_raise(r, kind, str_cstr(text));
}

/* The text depends on where the undefined value came from: a name, an attribute, a parameter, or
 * something that the sandbox hides. */
struct value run_undefined(struct template_run *r, struct value undef)
{
    int n = (int)MIN_OF(undef.n, 200U);

    switch (undef.sub & 0xff) {
    case UNDEF_ATTR:
        return run_fail(r, "UndefinedError", "'%s object' has no attribute '%.*s'",
                        v_type_name((struct value){.t = (uint8_t)(undef.sub >> 8)}), n, undef.s);
    case UNDEF_UNSAFE:
        return run_fail(r, "SecurityError", "access to attribute '%.*s' is unsafe.", n, undef.s);
    case UNDEF_PARAM:
        return run_fail(r, "UndefinedError", "parameter '%.*s' was not provided", n, undef.s);
    default:
        return run_fail(r, "UndefinedError", "'%.*s' is undefined", n, undef.s);
    }
}

bool run_over(struct template_run *r)
{
    switch (r->budget.over) {
    case BUDGET_BYTES:
        (void)run_fail(r, "MemoryError", "the template needs more memory than its budget");
        break;
    case BUDGET_DEPTH:
        (void)run_fail(r, "RecursionError", "maximum recursion depth exceeded");
        break;
    case BUDGET_CANCELLED:
        (void)run_fail(r, "Cancelled", "the work was given up");
        break;
    default:
        (void)run_fail(r, "BudgetError", "the template takes more steps than its budget");
        break;
    }
    return false;
}

bool run_spend_chars(struct template_run *r, struct str s)
{
    return run_spend(r, s.len / 2 + 1) && run_spend(r, 8 * (uint64_t)(s.len - pystr_len(s)));
}

bool run_spend_escapes(struct template_run *r, struct str s)
{
    return run_spend(r, s.len / 64 + 1) && run_room(r, escape_html_size(s)) &&
           run_spend(r, escape_html_size(s) / 4);
}

struct value run_str(struct template_run *r, struct str s)
{
    if (!run_spend_text(r, s.len, s.len))
        return v_err();
    return v_str(arena_str(r->a, s));
}

struct value run_take_text(struct template_run *r, struct buf *b)
{
    struct value v = run_str(r, buf_str(b));

    buf_done(b);
    return v;
}

/* Copies x only if it cannot be extended in place. A copy has half as much free memory after it. */
struct value run_concat(struct template_run *r, struct value x, struct value y)
{
    uint64_t n = (uint64_t)x.n + y.n;
    char *p;

    if (y.n == 0)
        return v_str(v_bytes(x));
    if (x.n && x.s + x.n == r->tip && (size_t)(r->tip_end - r->tip) >= y.n) {
        memcpy(r->tip, y.s, y.n);
        r->tip += y.n;
        return v_str(str_of(x.s, n));
    }
    if (n > UINT32_MAX / 4 || !run_spend_text(r, n, n + n / 2 + 32)) {
        return run_fail(r, "MemoryError", "a string is too long");
    }
    p = arena_alloc(r->a, n + n / 2 + 32);
    if (x.n)
        memcpy(p, x.s, x.n);
    memcpy(p + x.n, y.s, y.n);
    r->tip = p + n;
    r->tip_end = p + n + n / 2 + 32;
    return v_str(str_of(p, n));
}

struct value run_list(struct template_run *r, const struct value *at, uint32_t n)
{
    struct list *l;

    if (!run_spend(r, n / 8) || !run_room(r, (uint64_t)n * sizeof(*at)))
        return v_err();
    l = list_new(r->a, n);
    value_copy(l->at, at, n);
    return v_list(l);
}

struct value run_pair(struct template_run *r, struct value a, struct value b)
{
    struct list *l = list_new(r->a, 2);

    l->at[0] = a;
    l->at[1] = b;
    return v_tuple(l);
}

/* Doubles the array in the arena when it is full. Returns false if the memory budget is spent. */
bool builder_add(struct template_run *r, struct list_builder *b, struct value v)
{
    if (b->n == b->cap) {
        uint32_t cap = b->cap ? b->cap * 2 : 8;
        struct value *at;

        if (!run_room(r, (uint64_t)cap * sizeof(*at)))
            return false;
        at = arena_alloc(r->a, cap * sizeof(*at));
        if (b->n)
            memcpy(at, b->at, b->n * sizeof(*at));
        b->at = at;
        b->cap = cap;
    }
    b->at[b->n++] = v;
    return true;
}

/* Makes a list value, which takes ownership of the builder's array. */
struct value builder_list(struct template_run *r, struct list_builder *b)
{
    struct list *l = ARENA_NEW(r->a, struct list);

    l->at = b->at;
    l->n = b->n;
    return v_list(l);
}
