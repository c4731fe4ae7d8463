/* The operators between values (eval.h). Numbers use number.c. Text and sequences are joined and
 * repeated here. % formats text. Comparisons use compare.c. An undefined operand is an error,
 * except in comparisons for equality and as an argument of %. */

#include "worker/text/template/compare.h"
#include "worker/text/template/escape.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/number.h"
#include "worker/text/template/text_format.h"

struct value text_to_html(struct template_run *r, struct value v)
{
    struct buf out = {0};

    if (v.t == V_ERR || (v.flags & VF_MARKUP))
        return v;
    if (!run_spend_escapes(r, v_bytes(v)))
        return v_err();
    escape_html(&out, v_bytes(v));
    v = run_take_text(r, &out);
    if (v.t == V_STR)
        v.flags |= VF_MARKUP;
    return v;
}

/* Joins two texts. If one is Markup, the other is escaped and the sum is Markup. */
static struct value add_texts(struct template_run *r, struct value x, struct value y)
{
    bool markup = (x.flags | y.flags) & VF_MARKUP;
    struct value v;

    if (markup) {
        x = text_to_html(r, x);
        y = text_to_html(r, y);
        if (x.t == V_ERR || y.t == V_ERR)
            return v_err();
    }
    v = run_concat(r, x, y);
    if (markup && v.t == V_STR)
        v.flags |= VF_MARKUP;
    return v;
}

/* Makes a sequence with the items of both. Its type is that of the operands. */
static struct value add_lists(struct template_run *r, struct value x, struct value y)
{
    struct list *lx = list_need(r->a, x.list), *ly = list_need(r->a, y.list), *sum;

    if (!run_spend(r, ((uint64_t)lx->n + ly->n) / 8) ||
        !run_room(r, ((uint64_t)lx->n + ly->n) * sizeof(struct value)))
        return v_err();
    sum = list_new(r->a, lx->n + ly->n);
    value_copy(sum->at, lx->at, lx->n);
    value_copy(sum->at + lx->n, ly->at, ly->n);
    return x.t == V_LIST ? v_list(sum) : v_tuple(sum);
}

/* Repeats a text. The size is checked before anything is allocated. */
static struct value repeat_text(struct template_run *r, struct value v, uint64_t times)
{
    uint64_t n = v.n * times;
    char *p;

    if (n > UINT32_MAX || !run_spend_text(r, n, n))
        return run_fail(r, "MemoryError", "a string is too long");
    p = arena_alloc(r->a, n + 1);
    if (n > 0)
        memcpy(p, v.s, v.n);
    for (uint64_t done = v.n; n > 0 && done < n; done = MIN_OF(done * 2, n))
        memcpy(p + done, p, MIN_OF(done, n - done));
    return v_like(v_str(str_of(p, n)), v);
}

/* Repeats a list or tuple. */
static struct value repeat_list(struct template_run *r, struct value v, uint64_t times)
{
    struct list *from = list_need(r->a, v.list), *l;

    if (from->n * times > UINT32_MAX || !run_spend(r, from->n * times / 8) ||
        !run_room(r, from->n * times * sizeof(struct value)))
        return run_fail(r, "MemoryError", "a list is too long");
    l = list_new(r->a, (uint32_t)(from->n * times));
    for (uint64_t i = 0; i < times && from->n; i++)
        value_copy(l->at + i * from->n, from->at, from->n);
    return v.t == V_LIST ? v_list(l) : v_tuple(l);
}

/* Computes text * n and n * text. A count below 1 gives an empty result. */
static struct value repeat_value(struct template_run *r, struct value v, struct value times)
{
    uint64_t n;

    if (times.t == V_BIG || times.i > INT32_MAX)
        return run_fail(r, "OverflowError", "the repetition is too long");
    n = times.i > 0 ? (uint64_t)times.i : 0;
    if ((v.t == V_STR ? v.n : v.list->n) == 0)
        n = 0;
    return v.t == V_STR ? repeat_text(r, v, n) : repeat_list(r, v, n);
}

/* Fails with the TypeError for operands that do not fit together, in Python's words. */
static struct value fail_operands(struct template_run *r, char op, struct value x, struct value y)
{
    char text[3] = {op, 0, 0};

    if (op == 'f' || op == 'p') {
        text[0] = op == 'f' ? '/' : '*';
        text[1] = text[0];
    }
    if (op == '+' && x.t == V_STR)
        return run_fail(r, "TypeError", "can only concatenate str (not \"%s\") to str",
                        v_type_name(y));
    return run_fail(r, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", text,
                    v_type_name(x), v_type_name(y));
}

/* op is a character of number_binary: + - * / % f (//) p (**). */
struct value operator_binary(struct template_run *r, char op, struct value x, struct value y)
{
    if (x.t == V_UNDEF || (y.t == V_UNDEF && !(op == '%' && x.t == V_STR)))
        return run_undefined(r, x.t == V_UNDEF ? x : y);
    if (v_is_number(x) && v_is_number(y))
        return number_binary(r, op, x, y);
    if (op == '+' && x.t == V_STR && y.t == V_STR)
        return add_texts(r, x, y);
    if (op == '+' && x.t == y.t && v_is_seq(x))
        return add_lists(r, x, y);
    if (op == '%' && x.t == V_STR)
        return format_percent(r, x, y);
    if (op == '*' && (x.t == V_STR || v_is_seq(x)) && (v_is_int(y) || y.t == V_BIG))
        return repeat_value(r, x, y);
    if (op == '*' && (y.t == V_STR || v_is_seq(y)) && (v_is_int(x) || x.t == V_BIG))
        return repeat_value(r, y, x);
    return fail_operands(r, op, x, y);
}

/* Computes <, <=, > and >= of numbers; all are false if one is NaN. */
static int compare_numbers(struct template_run *r, int op, struct value x, struct value y)
{
    int c = number_cmp(r->a, x, y);

    if (c == 2)
        return 0;
    switch (op) {
    case OP_LT:
        return c < 0;
    case OP_LE:
        return c <= 0;
    case OP_GT:
        return c > 0;
    default:
        return c >= 0;
    }
}

/* x > y is y < x, and x >= y is not x < y, so value_less is the only order. */
int operator_compare(struct template_run *r, int op, struct value x, struct value y)
{
    int c;

    switch (op) {
    case OP_EQ:
    case OP_NE:
        c = value_eq(r, x, y) == (op == OP_EQ);
        return r->budget.over ? -1 : c;
    case OP_IN:
        return value_contains(r, y, x);
    case OP_NOT_IN:
        c = value_contains(r, y, x);
        return c < 0 ? c : !c;
    default:
        break;
    }
    if (v_is_number(x) && v_is_number(y))
        return compare_numbers(r, op, x, y);
    c = op == OP_LT || op == OP_GE ? value_less(r, x, y) : value_less(r, y, x);
    if (c < 0)
        return c;
    return op == OP_LT || op == OP_GT ? c : !c;
}
