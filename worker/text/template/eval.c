/* Expressions (eval.h). eval_node is the one entry. It counts a step and a level of depth, and
 * calls the function for the node's kind. Every function returns V_ERR at once if an operand
 * failed; the exception is already in r->error.
 *
 * Three short ways keep templates fast, all prepared by annotate.c: names and constants without a
 * call (the inline eval), chains of look-ups that return a pointer to the value (eval_ref), and
 * conditions that never become a bool value (eval_cond). They behave exactly as the long ways do.
 * EVAL_APART keeps the rarer kinds out of line, so the frames of the frequent, recursive ones stay
 * small. */

#include "worker/text/template/eval.h"

#include "common/base/check.h"
#include "worker/text/template/compare.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/number.h"
#include "worker/text/template/print.h"

/* Returns the variable's value, which is in its slot, `up` frames outwards. A slot that was never
 * filled is undefined. */
static struct value eval_name(struct template_run *r, const struct node *n)
{
    struct frame *f = r->frame;
    struct value v;

    for (uint32_t i = 0; i < n->up; i++)
        f = f->up;
    v = f->slots[n->slot];
    return v.t == V_MISSING ? v_undef(UNDEF_NAME, v_bytes(n->val)) : v;
}

/* Evaluates the elements of [a, b, ...] or (a, b, ...) in order. */
static EVAL_APART struct value eval_list(struct template_run *r, const struct node *n)
{
    struct list *l;

    if (!run_spend(r, n->n / 8))
        return v_err();
    l = list_new(r->a, n->n);
    for (uint32_t i = 0; i < n->n; i++) {
        l->at[i] = eval(r, n->kids[i]);
        if (l->at[i].t == V_ERR)
            return v_err();
    }
    return n->kind == N_LIST ? v_list(l) : v_tuple(l);
}

/* Evaluates {k: v, ...}. kids are key, value, key, value ... Keys must be hashable; a later equal
 * key wins. */
static EVAL_APART struct value eval_dict(struct template_run *r, const struct node *n)
{
    struct dict *d = dict_new(r->a, n->n / 2);

    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        struct value k = eval(r, n->kids[i]);
        struct value v = k.t == V_ERR ? k : eval(r, n->kids[i + 1]);

        if (v.t == V_ERR || !value_hashable(r, k) || !run_spend(r, 1))
            return v_err();
        dict_set(r, d, k, v);
    }
    return v_dict(d);
}

/* Joins the printed forms of the operands of ~ (a ~ b ~ c) within autoescape. If one of them is
 * HTML, the others are escaped and the result is HTML. */
static EVAL_APART struct value concat_html(struct template_run *r, const struct node *n)
{
    struct value *at = arena_alloc(r->a, n->n * sizeof(*at)), v;
    struct buf out = {0};
    uint8_t html = 0;

    for (uint32_t i = 0; i < n->n; i++) {
        at[i] = eval(r, n->kids[i]);
        if (at[i].t != V_ERR)
            at[i] = filter_text(r, at[i]);
        if (at[i].t == V_ERR)
            return at[i];
        html |= at[i].flags & VF_MARKUP;
    }
    for (uint32_t i = 0; i < n->n; i++) {
        v = html ? text_to_html(r, at[i]) : at[i];
        if (v.t == V_ERR || !run_spend_text(r, v.n, out.len + v.n)) {
            buf_done(&out);
            return v_err();
        }
        buf_add_str(&out, v_bytes(v));
    }
    v = run_take_text(r, &out);
    if (v.t == V_STR)
        v.flags |= html;
    return v;
}

static EVAL_APART struct value eval_concat(struct template_run *r, const struct node *n)
{
    struct buf out = {0};

    if ((n->flags & (NF_ESCAPE | NF_ESCAPE_LATE)) == NF_ESCAPE)
        return concat_html(r, n);
    for (uint32_t i = 0; i < n->n; i++) {
        struct value v = eval(r, n->kids[i]);

        if (v.t == V_ERR || !print_str(r, &out, v) || !run_spend_text(r, v.n, out.len)) {
            buf_done(&out);
            return v_err();
        }
    }
    return run_take_text(r, &out);
}

/* Evaluates a < b < c. Each link compares its left operand with its right one. The first false one
 * ends the chain, and operands after it are not evaluated. */
static EVAL_APART struct value eval_compare(struct template_run *r, const struct node *n)
{
    struct value x = eval(r, n->a);
    int c = 1;

    if (x.t == V_ERR)
        return x;
    for (uint32_t i = 0; i < n->n && c == 1; i++) {
        struct value y = eval(r, n->kids[i]->b);

        if (y.t == V_ERR)
            return y;
        c = operator_compare(r, n->kids[i]->op, x, y);
        x = y;
    }
    return c < 0 ? v_err() : v_bool(c);
}

/* Evaluates +a and -a, for numbers only. +True is the int 1. */
static EVAL_APART struct value eval_unary(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);

    if (v.t == V_ERR)
        return v;
    if (v.t == V_UNDEF)
        return run_undefined(r, v);
    if (!v_is_number(v))
        return run_fail(r, "TypeError", "bad operand type for unary %s: '%s'",
                        n->kind == N_NEG ? "-" : "+", v_type_name(v));
    if (n->kind == N_NEG)
        return number_negate(r, v);
    return v.t == V_BOOL ? v_int(v.i) : v;
}

/* Follows the chain from its variable inwards. Counts a step for each look-up as eval_node would.
 * Without steps left it returns NULL, and eval_node reports the spent budget. */
const struct value *eval_ref(struct template_run *r, const struct node *n)
{
    const struct node *of = n->a;
    const struct frame *f = r->frame;
    const struct value *v;
    struct dict_entry *e;

    if (of->kind == N_NAME) {
        for (uint32_t i = 0; i < of->up; i++)
            f = f->up;
        v = &f->slots[of->slot];
    } else {
        v = eval_ref(r, of);
    }
    if (!v || v->t != V_DICT || r->budget.fuel == 0)
        return NULL;
    r->budget.fuel--;
    e = dict_find_str(r->a, v->dict, v_bytes(n->val));
    if (e)
        return &e->value;
    r->undef = v_undef_attr(V_DICT, v_bytes(n->val));
    return &r->undef;
}

/* Evaluates a.name. A dict's key is looked up directly, unless a type has a method of that name. */
static EVAL_APART struct value eval_getattr(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);
    struct dict_entry *e;

    if (v.t == V_ERR)
        return v;
    if (v.t == V_DICT && !(n->flags & NF_TYPE_ATTR)) {
        e = dict_find_str(r->a, v.dict, v_bytes(n->val));
        return e ? e->value : v_undef_attr(V_DICT, v_bytes(n->val));
    }
    return attr_get(r, v, v_bytes(n->val));
}

/* Evaluates a[b] and a[x:y:z]. */
static EVAL_APART struct value eval_getitem(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);
    struct value part[3] = {v_missing(), v_missing(), v_missing()};
    const struct node *kid[3];

    if (v.t == V_ERR)
        return v;
    if (v.t == V_DICT && n->b->kind == N_CONST && n->b->val.t == V_STR &&
        !(n->flags & NF_TYPE_ATTR)) {
        struct dict_entry *e = dict_find_str(r->a, v.dict, v_bytes(n->b->val));

        return e ? e->value : v_undef_attr(V_DICT, v_bytes(n->b->val));
    }
    if (n->b->kind != N_SLICE) {
        part[0] = eval(r, n->b);
        return part[0].t == V_ERR ? part[0] : attr_item(r, v, part[0]);
    }
    kid[0] = n->b->a;
    kid[1] = n->b->b;
    kid[2] = n->b->c;
    for (int i = 0; i < 3; i++) {
        if (kid[i])
            part[i] = eval(r, kid[i]);
        if (part[i].t == V_ERR)
            return v_err();
    }
    return attr_slice(r, v, part);
}

/* --- calls --- */

/* Appends the items of `*list` to the positional arguments. */
static bool add_star(struct template_run *r, const struct node *n, struct argv *ret)
{
    struct value v = eval(r, n);
    struct value list = v.t == V_ERR ? v : iter_collect(r, v);
    struct value *at;

    if (list.t == V_ERR || !run_spend(r, (ret->n_pos + list.list->n) / 8))
        return false;
    at = arena_alloc(r->a, (ret->n_pos + list.list->n) * sizeof(*at));
    value_copy(at, ret->pos, ret->n_pos);
    value_copy(at + ret->n_pos, list.list->at, list.list->n);
    ret->pos = at;
    ret->n_pos += list.list->n;
    return true;
}

/* Appends the entries of `**dict` to the named arguments; the keys must be strings. */
static bool add_star2(struct template_run *r, const struct node *n, struct argv *ret)
{
    struct value v = eval(r, n);
    uint32_t total;
    struct value *named;
    struct str *names;

    if (v.t == V_ERR)
        return false;
    if (v.t != V_DICT)
        return run_fail(r, "TypeError", "argument after ** must be a mapping").t != V_ERR;
    total = ret->n_named + dict_need(r->a, v.dict)->n;
    if (!run_spend(r, total))
        return false;
    named = arena_alloc(r->a, total * sizeof(*named));
    names = arena_alloc(r->a, total * sizeof(*names));
    value_copy(named, ret->named, ret->n_named);
    if (ret->n_named > 0)
        memcpy(names, ret->names, ret->n_named * sizeof(*names));
    for (uint32_t i = 0; i < v.dict->n; i++) {
        if (v.dict->at[i].key.t != V_STR)
            return run_fail(r, "TypeError", "keywords must be strings").t != V_ERR;
        names[ret->n_named] = v_bytes(v.dict->at[i].key);
        named[ret->n_named++] = v.dict->at[i].value;
    }
    ret->names = names;
    ret->named = named;
    return true;
}

static bool no_args(const struct call_args *args)
{
    return args->n_pos == 0 && args->n_named == 0 && !args->star && !args->star2;
}

/* The order of evaluation is: positional arguments, named ones, then * and **. A template can
 * observe it. */
bool eval_args(struct template_run *r, const struct call_args *args, struct argv *ret)
{
    *ret = (struct argv){.n_pos = args->n_pos, .n_named = args->n_named};
    if (no_args(args))
        return true;
    if (!run_spend(r, (args->n_pos + args->n_named) / 8))
        return false;
    ret->pos = arena_alloc(r->a, (args->n_pos + args->n_named) * sizeof(struct value));
    ret->named = ret->pos + args->n_pos;
    ret->names = args->names;
    for (uint32_t i = 0; i < args->n_pos; i++) {
        ret->pos[i] = eval(r, args->pos[i]);
        if (ret->pos[i].t == V_ERR)
            return false;
    }
    for (uint32_t i = 0; i < args->n_named; i++) {
        ret->named[i] = eval(r, args->named[i]);
        if (ret->named[i].t == V_ERR)
            return false;
    }
    return (!args->star || add_star(r, args->star, ret)) &&
           (!args->star2 || add_star2(r, args->star2, ret));
}

/* Evaluates callee(args). A method of a value is called directly, without making a bound method. */
static EVAL_APART struct value eval_call(struct template_run *r, const struct node *n)
{
    const struct node *f = n->a;
    struct value callee;
    struct argv argv;

    if (f->kind == N_GETATTR) {
        struct value self = eval(r, f->a);
        const struct method *m;

        if (self.t == V_ERR)
            return self;
        m = self.t == V_NS || !(f->flags & NF_TYPE_ATTR) ? NULL
                                                         : method_find(self, v_bytes(f->val));
        if (m)
            return eval_args(r, n->args, &argv) ? method_call(r, m, self, &argv) : v_err();
        callee = attr_get(r, self, v_bytes(f->val));
    } else {
        callee = eval(r, f);
    }
    if (callee.t == V_ERR || !eval_args(r, n->args, &argv))
        return v_err();
    r->line = n->line;
    return call_value(r, callee, &argv);
}

/* Evaluates v | filter(args). An unknown name fails only when it is reached, as in jinja2. */
static EVAL_APART struct value apply_filter(struct template_run *r, const struct node *n,
                                            struct value v)
{
    struct argv argv;

    if (!n->fn)
        return run_fail(r, "TemplateRuntimeError", "No filter named '%.*s' found.", (int)n->val.n,
                        n->val.s);
    if (n->flags & NF_SIMPLE)
        return ((const struct filter *)n->fn)->fn(r, v, NULL);
    if (!eval_args(r, n->args, &argv))
        return v_err();
    r->line = n->line;
    return filter_call(r, n->fn, v, &argv);
}

struct value eval_filter_chain(struct template_run *r, const struct node *n, struct value v)
{
    if (n->a)
        v = eval_filter_chain(r, n->a, v);
    return v.t == V_ERR ? v : apply_filter(r, n, v);
}

static struct value eval_filter(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);

    return v.t == V_ERR ? v : apply_filter(r, n, v);
}

/* Evaluates `a is test(args)` to a bool. */
static EVAL_APART struct value eval_test(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);
    struct argv argv;
    int c;

    if (v.t == V_ERR)
        return v;
    if (!n->fn)
        return run_fail(r, "TemplateRuntimeError", "No test named '%.*s' found.", (int)n->val.n,
                        n->val.s);
    if (!eval_args(r, n->args, &argv))
        return v_err();
    c = test_call(r, n->fn, v, &argv);
    return c < 0 ? v_err() : v_bool(c);
}

/* Evaluates arithmetic, the left operand first. */
static struct value eval_binary(struct template_run *r, const struct node *n)
{
    struct value x = eval(r, n->a);
    struct value y;

    if (x.t == V_ERR)
        return x;
    y = eval(r, n->b);
    return y.t == V_ERR ? y : operator_binary(r, (char)n->op, x, y);
}

/* Evaluates a if test else b. Without else the result is undefined, not an error. */
static EVAL_APART struct value eval_if(struct template_run *r, const struct node *n)
{
    int c = eval_cond(r, n->a);

    if (c < 0)
        return v_err();
    if (c)
        return eval(r, n->b);
    return n->c ? eval(r, n->c) : v_undef(UNDEF_NAME, STR("the inline if-expression without else"));
}

/* Evaluates `and` and `or`, which return one of their operands, not a bool. If the first operand
 * decides, the second is not evaluated. */
static EVAL_APART struct value eval_logic(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);

    if (v.t == V_ERR)
        return v;
    return value_truth(r, v) == (n->kind == N_OR) ? v : eval(r, n->b);
}

/* Evaluates and, or, not to their truth only: 1, 0 or -1. */
static int cond_logic(struct template_run *r, const struct node *n)
{
    int c;

    if (!run_enter(r))
        return -1;
    c = eval_cond(r, n->a);
    if (c >= 0 && n->kind == N_NOT)
        c = !c;
    else if (c == (n->kind == N_AND))
        c = eval_cond(r, n->b);
    run_leave(r);
    return c;
}

/* Evaluates x == "text" and x != "text" to their truth. */
static int cond_compare(struct template_run *r, const struct node *n)
{
    const struct node *to = n->kids[0];
    struct value x = eval(r, n->a);

    if (x.t == V_STR)
        return (x.n == to->b->val.n && bytes_same(x.s, to->b->val.s, x.n)) == (to->op == OP_EQ);
    return x.t == V_ERR ? -1 : operator_compare(r, to->op, x, to->b->val);
}

static int cond_test(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);

    return v.t == V_ERR ? -1 : ((const struct test *)n->fn)->fn(r, v, NULL);
}

/* Uses the short ways for and, or, not and for simple comparisons, tests and filters. Otherwise
 * evaluates the node and takes the truth of the result. */
int eval_cond(struct template_run *r, const struct node *n)
{
    struct value v;

    if (n->kind == N_AND || n->kind == N_OR || n->kind == N_NOT || (n->flags & NF_SIMPLE)) {
        r->line = n->line;
        if (!run_spend(r, 1))
            return -1;
        if (n->kind == N_COMPARE)
            return cond_compare(r, n);
        if (n->kind == N_TEST)
            return cond_test(r, n);
        if (n->kind != N_FILTER)
            return cond_logic(r, n);
    }
    v = eval(r, n);
    if (v.t == V_BOOL)
        return v.i != 0;
    return v.t == V_ERR ? -1 : value_truth(r, v);
}

static struct value eval_truth(struct template_run *r, const struct node *n)
{
    int c = eval_cond(r, n);

    return c < 0 ? v_err() : v_bool(c);
}

/* Calls the function for the node's kind, one level deeper. */
static struct value eval_inner(struct template_run *r, const struct node *n)
{
    switch (n->kind) {
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, n);
    case N_DICT:
        return eval_dict(r, n);
    case N_COND:
        return eval_if(r, n);
    case N_AND:
    case N_OR:
        return eval_logic(r, n);
    case N_NOT:
        return eval_truth(r, n);
    case N_NEG:
    case N_POS:
        return eval_unary(r, n);
    case N_BINARY:
        return eval_binary(r, n);
    case N_CONCAT:
        return eval_concat(r, n);
    case N_COMPARE:
        return n->flags & NF_SIMPLE ? eval_truth(r, n) : eval_compare(r, n);
    case N_GETATTR:
        return eval_getattr(r, n);
    case N_GETITEM:
        return eval_getitem(r, n);
    case N_CALL:
        return eval_call(r, n);
    case N_FILTER:
        return eval_filter(r, n);
    case N_TEST:
        return n->flags & NF_SIMPLE ? eval_truth(r, n) : eval_test(r, n);
    case N_SLICE:
        return run_fail(r, "TypeError", "a slice stands among other subscripts");
    default:
        UNREACHABLE();
    }
}

struct value eval_node(struct template_run *r, const struct node *n)
{
    struct value v;

    if (n->kind == N_NAME)
        return eval_name(r, n);
    r->line = n->line;
    if (!run_spend(r, 1) || !run_enter(r))
        return v_err();
    v = eval_inner(r, n);
    run_leave(r);
    return v;
}
