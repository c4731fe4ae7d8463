/* The last pass over a compiled template (annotate.h): one walk, children before their parent,
 * because a node's notes depend on those of its children.
 *
 * Notes on a node:
 *   N_GETATTR, N_GETITEM   val: the fixed name; NF_TYPE_ATTR: some type has a method of that name,
 *                          so the type is asked first; NF_REF: a plain look-up in the dict of a
 *                          variable, op = number of look-ups in a row (a.b.c: 2)
 *   N_PRINT                kids: the operands of a sum; a print of a fixed text becomes N_DATA
 *   others                 NF_SIMPLE: no arguments to evaluate, so eval.c takes the short way */

#include "worker/text/template/annotate.h"

#include "worker/text/template/callable.h"
#include "worker/text/template/filter.h"

enum { REF_DEPTH_MAX = 8, SUM_PARTS_MAX = 16 };

static void annotate_node(struct arena *a, struct node *n);

/* Annotates the arguments of one call, filter or test; absent ones are NULL. */
static void prepare_args(struct arena *a, const struct call_args *args)
{
    for (uint32_t i = 0; i < args->n_pos; i++)
        annotate_node(a, args->pos[i]);
    for (uint32_t i = 0; i < args->n_named; i++)
        annotate_node(a, args->named[i]);
    annotate_node(a, args->star);
    annotate_node(a, args->star2);
}

static bool is_text(const struct node *n)
{
    return n->kind == N_CONST && n->val.t == V_STR;
}

/* Annotates attributes and items with a fixed name. If some type has a method of that name, the
 * type is asked before the keys of a dict (NF_TYPE_ATTR). Otherwise it is a look-up in a variable's
 * dict (NF_REF, op counts the look-ups in a row). */
static void prepare_attribute(struct node *n)
{
    const struct node *of = n->a;

    if (n->kind == N_GETITEM) {
        if (!is_text(n->b))
            return;
        n->val = n->b->val;
    }
    if (method_any(v_bytes(n->val))) {
        n->flags |= NF_TYPE_ATTR;
        return;
    }
    n->op = of->kind == N_NAME ? 1 : of->op + 1;
    if (of->kind == N_NAME ? !str_eq_c(v_bytes(of->val), "loop")
                           : (of->flags & NF_REF) && n->op <= REF_DEPTH_MAX)
        n->flags |= NF_REF;
}

static bool no_args(const struct call_args *args)
{
    return args->n_pos == 0 && args->n_named == 0 && !args->star && !args->star2;
}

/* Matches comparisons of anything with a fixed text, and tests and filters without parameters. */
static bool is_simple(const struct node *n)
{
    switch (n->kind) {
    case N_COMPARE:
        return n->n == 1 && (n->kids[0]->op == OP_EQ || n->kids[0]->op == OP_NE) &&
               is_text(n->kids[0]->b);
    case N_FILTER:
        return n->fn && !*((const struct filter *)n->fn)->params && no_args(n->args);
    case N_TEST:
        return n->fn && !*((const struct test *)n->fn)->params && no_args(n->args);
    default:
        return false;
    }
}

/* Returns the number of operands of a left-nested sum: ((a + b) + c) has 3; anything else has 1. */
static uint32_t count_operands(const struct node *n)
{
    uint32_t k = 1;

    for (; n->kind == N_BINARY && n->op == '+'; n = n->a)
        k++;
    return k;
}

/* Makes a text node that has x and then y. The strings are copied into the arena. */
static struct node *join_nodes(struct arena *a, const struct node *x, const struct node *y)
{
    struct node *n = ARENA_NEW(a, struct node);
    char *p = arena_alloc(a, (size_t)x->val.n + y->val.n);

    memcpy(p, x->val.s, x->val.n);
    memcpy(p + x->val.n, y->val.s, y->val.n);
    *n = *x;
    n->val = v_str(str_of(p, (size_t)x->val.n + y->val.n));
    return n;
}

/* Annotates {{ a + b + c }}: kids are the operands, left to right, neighbouring texts joined. */
static void prepare_print(struct arena *a, struct node *n)
{
    struct node *parts[SUM_PARTS_MAX], *at = n->a;
    uint32_t k = count_operands(at);

    if (n->flags & (NF_ESCAPE | NF_ESCAPE_LATE))
        return;
    if (is_text(at))
        *n = (struct node){.kind = N_DATA, .line = n->line, .val = at->val};
    if (k == 1 || k > SUM_PARTS_MAX)
        return;
    for (uint32_t i = k; i-- > 1; at = at->a)
        parts[i] = at->b;
    parts[0] = at;
    n->kids = arena_alloc(a, k * sizeof(struct node *));
    for (uint32_t i = 0; i < k; i++) {
        struct node **last = n->n ? &n->kids[n->n - 1] : NULL;

        if (last && is_text(*last) && is_text(parts[i]))
            *last = join_nodes(a, *last, parts[i]);
        else
            n->kids[n->n++] = parts[i];
    }
}

/* Annotates n and all below it. n may be NULL (an absent child). */
static void annotate_node(struct arena *a, struct node *n)
{
    if (!n)
        return;
    annotate_node(a, n->a);
    annotate_node(a, n->b);
    annotate_node(a, n->c);
    for (uint32_t i = 0; i < n->n; i++)
        annotate_node(a, n->kids[i]);
    if (n->kind == N_CALL || n->kind == N_FILTER || n->kind == N_TEST)
        prepare_args(a, n->args);
    for (uint32_t i = 0; (n->kind == N_MACRO || n->kind == N_CALLBLOCK) && i < n->macro->n_params;
         i++)
        annotate_node(a, n->macro->defaults[i]);
    if (n->kind == N_GETATTR || n->kind == N_GETITEM)
        prepare_attribute(n);
    else if (n->kind == N_PRINT)
        prepare_print(a, n);
    else if (is_simple(n))
        n->flags |= NF_SIMPLE;
}

void prepare_run(struct arena *a, struct node *root)
{
    annotate_node(a, root);
}
