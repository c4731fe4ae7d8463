/* Statements (eval.h). exec runs one node. Text goes directly to r->out. The result says whether a
 * loop is being left. Macros, set and filter blocks capture output without a second buffer: they
 * remember the length of the output, the body appends to it, and exec_cut_output removes that text
 * again.
 *
 * After each write out_ok checks the output budget. */

#include "common/base/check.h"
#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/print.h"

/* Returns false, with the exception set, if the render has written too much. */
static bool out_ok(struct template_run *r)
{
    if (RG_LIKELY(r->out->len - r->out_start <= r->max_out))
        return true;
    (void)run_fail(r, "BudgetError", "the template writes more than its budget");
    return false;
}

struct value exec_cut_output(struct template_run *r, size_t from)
{
    struct value v = run_str(r, str_sub(buf_str(r->out), from, r->out->len));

    r->out->len = from;
    return v;
}

/* Runs at every entry of a scope, so once for each item of a loop. A variable comes from the
 * context (else a global), is a copy of an outer variable, or is empty. Parameters are not in the
 * list, because the call has filled them. */
void exec_enter(struct template_run *r, const struct scope *s)
{
    if (RG_UNLIKELY(s->n_loads >= 8))
        (void)run_spend(r, s->n_loads / 8); /* the next statement reports the spent budget */
    for (uint32_t i = 0; i < s->n_loads; i++) {
        const struct scope_load *l = &s->loads[i];
        struct frame *from = r->frame;
        struct value *slot = &r->frame->slots[l->slot];

        if (l->kind == LOAD_CONTEXT) {
            struct dict_entry *e = dict_find_str(r->a, r->context, l->name);

            *slot = e ? e->value : global_find(r, l->name);
        } else if (l->kind == LOAD_ALIAS) {
            for (uint32_t k = 0; k < l->up; k++)
                from = from->up;
            *slot = from->slots[l->from];
        } else {
            *slot = v_missing();
        }
    }
}

/* --- assignment --- */

/* Executes ns.name = v. Only a namespace() object accepts assignments. */
static bool assign_attribute(struct template_run *r, const struct node *target, struct value v)
{
    struct value ns = eval(r, target->a);

    if (ns.t == V_ERR)
        return false;
    if (ns.t != V_NS) {
        (void)run_fail(r, "TemplateRuntimeError",
                       "cannot assign attribute on non-namespace object");
        return false;
    }
    dict_set(r, ns.dict, target->val, v);
    return true;
}

/* Assigns target = v, with unpacking. Returns false on error. */
static bool exec_assign(struct template_run *r, const struct node *target, struct value v);

/* Executes (a, b) = v. v must have exactly as many items as there are targets. */
static bool unpack_targets(struct template_run *r, const struct node *target, struct value v)
{
    struct iter it;
    struct value item;
    int more;

    if (!iter_init(r, &it, v))
        return false;
    for (uint32_t i = 0; i < target->n; i++) {
        more = iter_next(r, &it, &item);
        if (more == 0)
            (void)run_fail(r, "ValueError", "not enough values to unpack (expected %u, got %u)",
                           target->n, i);
        if (more <= 0 || !exec_assign(r, target->kids[i], item))
            return false;
    }
    more = iter_next(r, &it, &item);
    if (more > 0)
        (void)run_fail(r, "ValueError", "too many values to unpack (expected %u)", target->n);
    return more == 0;
}

static bool exec_assign(struct template_run *r, const struct node *target, struct value v)
{
    struct frame *f = r->frame;

    if (target->kind == N_NSREF)
        return assign_attribute(r, target, v);
    if (target->kind == N_TUPLE)
        return unpack_targets(r, target, v);
    for (uint32_t i = 0; i < target->up; i++)
        f = f->up;
    f->slots[target->slot] = v;
    return true;
}

/* --- printing --- */

/* Prints {{ a + b + c }}: writes the texts one by one, without joining them first. */
static bool print_sum(struct template_run *r, const struct node *n)
{
    size_t from = r->out->len;
    struct value sum = v_missing(), v;

    for (uint32_t i = 0; i < n->n; i++) {
        v = eval(r, n->kids[i]);
        if (v.t == V_STR && !(v.flags & VF_MARKUP) && sum.t == V_MISSING) {
            buf_add(r->out, v.s, v.n);
            continue;
        }
        if (sum.t == V_MISSING && i > 0)
            sum = exec_cut_output(r, from);
        if (v.t == V_ERR || sum.t == V_ERR)
            return false;
        sum = sum.t == V_MISSING ? v : operator_binary(r, '+', sum, v);
        if (sum.t == V_ERR)
            return false;
    }
    return (sum.t == V_MISSING || print_str(r, r->out, sum)) && out_ok(r);
}

/* Prints {{ a ~ b }}: writes each operand by itself. An error removes all of it again. */
static EVAL_APART bool print_concat(struct template_run *r, const struct node *n)
{
    size_t from = r->out->len;

    for (uint32_t i = 0; i < n->n; i++) {
        /* A macro among the operands writes after the text so far and removes its own text again.
         */
        struct value v = eval(r, n->kids[i]);

        if (v.t == V_ERR || !print_str(r, r->out, v) || !out_ok(r) || !run_spend(r, 1)) {
            r->out->len = from;
            return false;
        }
    }
    return true;
}

/* Prints {{ expression }} within autoescape: everything except HTML is escaped. */
static EVAL_APART bool print_escaped(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->a);

    if (v.t != V_ERR)
        v = text_to_html(r, filter_text(r, v));
    return v.t != V_ERR && print_str(r, r->out, v) && out_ok(r);
}

/* Prints {{ expression }}. */
static bool print_node(struct template_run *r, const struct node *n)
{
    struct value v;

    if (RG_UNLIKELY(eval_escapes(r, n)))
        return print_escaped(r, n);
    if (n->n > 0)
        return print_sum(r, n);
    if (n->a->kind == N_CONCAT)
        return print_concat(r, n->a);
    v = eval(r, n->a);
    return v.t != V_ERR && print_str(r, r->out, v) && out_ok(r);
}

/* --- statements --- */

/* Runs the statements of a body until one does not end normally. */
static enum exec_result exec_body(struct template_run *r, const struct node *n)
{
    enum exec_result result = EXEC_DONE;

    if (n->kind != N_BODY)
        return exec(r, n);
    for (uint32_t i = 0; i < n->n && result == EXEC_DONE; i++)
        result = exec(r, n->kids[i]);
    return result;
}

/* Runs if, elif, else: a chain of N_IF along c, perhaps with a plain body at its end. */
static enum exec_result exec_if(struct template_run *r, const struct node *n)
{
    for (; n && n->kind == N_IF; n = n->c) {
        int c = eval_cond(r, n->a);

        if (c != 0)
            return c < 0 ? EXEC_ERROR : exec_body(r, n->b);
        if (!run_spend(r, 1))
            return EXEC_ERROR;
    }
    return n ? exec_body(r, n) : EXEC_DONE;
}

int eval_loop_test(struct template_run *r, const struct node *n, struct value item)
{
    exec_enter(r, n->test_scope);
    return exec_assign(r, n->kids[2], item) ? eval_cond(r, n->c) : -1;
}

/* Runs the body for each item with a new set of loop variables (exec_enter), the `loop` object if
 * the body mentions it, and the target. */
enum exec_result exec_loop(struct template_run *r, const struct node *n, struct value v,
                           uint32_t depth)
{
    struct for_loop *l = ARENA_NEW(r->a, struct for_loop);
    struct value item;
    enum exec_result result;
    bool completed = false;
    int more;

    l->node = n->c ? n : NULL;
    l->body = n;
    l->source = v;
    l->length = -1;
    l->depth = depth;
    l->frame = r->frame;
    if (!iter_init(r, &l->it, v))
        return EXEC_ERROR;
    while ((more = loop_step(r, l, &item)) > 0) {
        exec_enter(r, n->scope);
        if (n->scope->loop_slot >= 0)
            r->frame->slots[n->scope->loop_slot] = (struct value){.t = V_LOOP, .loop = l};
        if (!exec_assign(r, n->a, item))
            return EXEC_ERROR;
        result = exec_body(r, n->kids[0]);
        if (result == EXEC_ERROR)
            return result;
        if (result == EXEC_BREAK)
            break;
        /* As in jinja2, `else` runs unless at least one item went through the body to its end. */
        completed = completed || result == EXEC_DONE;
    }
    if (more < 0)
        return EXEC_ERROR;
    if (!completed && n->kids[1]) {
        exec_enter(r, n->else_scope);
        return exec(r, n->kids[1]);
    }
    return EXEC_DONE;
}

static EVAL_APART enum exec_result exec_for(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->b);

    return v.t == V_ERR ? EXEC_ERROR : exec_loop(r, n, v, 0);
}

static EVAL_APART enum exec_result exec_set(struct template_run *r, const struct node *n)
{
    struct value v = eval(r, n->b);

    return v.t != V_ERR && exec_assign(r, n->a, v) ? EXEC_DONE : EXEC_ERROR;
}

/* Writes the result of a filter or call block, which jinja2 does not turn into text: it must be one
 * already. */
static enum exec_result print_block(struct template_run *r, struct value v)
{
    if (v.t == V_ERR)
        return EXEC_ERROR;
    if (v.t != V_STR) {
        (void)run_fail(r, "TypeError", "the result of this block is not text but %s",
                       v_type_name(v));
        return EXEC_ERROR;
    }
    return print_str(r, r->out, v) && out_ok(r) ? EXEC_DONE : EXEC_ERROR;
}

/* Runs bodies whose output is captured: set blocks and filter blocks. */
static EVAL_APART enum exec_result exec_captured(struct template_run *r, const struct node *n)
{
    size_t from = r->out->len;
    enum exec_result result;
    struct value v;

    exec_enter(r, n->scope);
    result = exec(r, n->b);
    if (result != EXEC_DONE) {
        r->out->len = from;
        return result;
    }
    v = exec_cut_output(r, from);
    if (v.t != V_ERR && n->c)
        v = eval_filter_chain(r, n->c, eval_escapes(r, n) ? v_markup(v) : v);
    if (v.t != V_ERR && n->kind == N_SETBLOCK && r->autoescape)
        v = v_markup(filter_text(r, v));
    if (v.t == V_ERR || n->kind != N_SETBLOCK)
        return print_block(r, v);
    return exec_assign(r, n->a, v) ? EXEC_DONE : EXEC_ERROR;
}

/* Makes a macro as a value: its definition and the frame in which it was defined, where its free
 * names are looked up. */
static struct value make_macro(struct template_run *r, const struct node *n)
{
    struct callable *c = ARENA_NEW(r->a, struct callable);

    c->kind = CALL_MACRO;
    c->macro = n->macro;
    c->node = n;
    c->frame = r->frame;
    return (struct value){.t = V_CALL, .call = c};
}

/* Runs {% call f(args) %}body{% endcall %}: calls f with the body as one more named argument,
 * `caller`. */
static EVAL_APART enum exec_result exec_call_block(struct template_run *r, const struct node *n)
{
    struct value caller = make_macro(r, n);
    struct value callee = eval(r, n->a->a);
    struct argv argv;
    struct str *names;
    struct value *named;

    if (callee.t == V_ERR || !eval_args(r, n->a->args, &argv))
        return EXEC_ERROR;
    names = arena_alloc(r->a, (argv.n_named + 1) * sizeof(*names));
    named = arena_alloc(r->a, (argv.n_named + 1) * sizeof(*named));
    for (uint32_t i = 0; i < argv.n_named; i++) {
        names[i] = argv.names[i];
        named[i] = argv.named[i];
    }
    names[argv.n_named] = STR("caller");
    named[argv.n_named++] = caller;
    argv.names = names;
    argv.named = named;
    return print_block(r, call_value(r, callee, &argv));
}

/* Runs {% with a = x, b = y %}: all values are evaluated in the outer scope before the first is
 * assigned. */
static EVAL_APART enum exec_result exec_with(struct template_run *r, const struct node *n)
{
    struct value *v = arena_alloc(r->a, n->n * sizeof(*v));

    for (uint32_t i = 1; i < n->n; i += 2) {
        v[i] = eval(r, n->kids[i]);
        if (v[i].t == V_ERR)
            return EXEC_ERROR;
    }
    exec_enter(r, n->scope);
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        if (!exec_assign(r, n->kids[i], v[i + 1]))
            return EXEC_ERROR;
    }
    return exec(r, n->b);
}

/* If a loop is left from inside the block, the setting stays changed, as in jinja2. */
static EVAL_APART enum exec_result exec_autoescape(struct template_run *r, const struct node *n)
{
    bool before = r->autoescape;
    struct value v = eval(r, n->a);
    enum exec_result result;

    if (v.t == V_ERR)
        return EXEC_ERROR;
    r->autoescape = value_truth(r, v);
    result = exec(r, n->b);
    if (result == EXEC_DONE)
        r->autoescape = before;
    return result;
}

/* Runs the statements that need a level of depth. Text and prints are handled in exec itself. */
static enum exec_result exec_inner(struct template_run *r, const struct node *n)
{
    switch (n->kind) {
    case N_BODY:
        return exec_body(r, n);
    case N_IF:
        return exec_if(r, n);
    case N_FOR:
        return exec_for(r, n);
    case N_SET:
        return exec_set(r, n);
    case N_SETBLOCK:
    case N_FILTERBLOCK:
        return exec_captured(r, n);
    case N_MACRO:
        return exec_assign(r, n->a, make_macro(r, n)) ? EXEC_DONE : EXEC_ERROR;
    case N_CALLBLOCK:
        return exec_call_block(r, n);
    case N_WITH:
        return exec_with(r, n);
    case N_SCOPE:
        exec_enter(r, n->scope);
        return exec(r, n->b);
    case N_AUTOESCAPE:
        return exec_autoescape(r, n);
    case N_BREAK:
        return EXEC_BREAK;
    case N_CONTINUE:
        return EXEC_CONTINUE;
    case N_RAISE:
        (void)run_fail(r, "TypeError", "%.*s", (int)n->val.n, n->val.s);
        return EXEC_ERROR;
    default:
        UNREACHABLE();
    }
}

enum exec_result exec(struct template_run *r, const struct node *n)
{
    enum exec_result result;

    r->line = n->line;
    if (!run_spend(r, 1))
        return EXEC_ERROR;
    if (n->kind == N_DATA) {
        buf_add(r->out, n->val.s, n->val.n);
        return out_ok(r) ? EXEC_DONE : EXEC_ERROR;
    }
    if (n->kind == N_PRINT)
        return print_node(r, n) ? EXEC_DONE : EXEC_ERROR;
    if (!run_enter(r))
        return EXEC_ERROR;
    result = exec_inner(r, n);
    run_leave(r);
    return result;
}
