/*
 * The evaluator: expressions to values (eval.c), attributes and items (attr.c), operators
 * (operator.c), statements to output (exec.c).
 */
#ifndef RG_TEMPLATE_EVAL_H
#define RG_TEMPLATE_EVAL_H

#include "worker/text/template/callable.h"
#include "worker/text/template/node.h"
#include "worker/text/template/run.h"

struct value eval_node(struct template_run *r, const struct node *n);

/* Returns a pointer to the value of an NF_REF node, valid until anything else is evaluated. NULL:
 * it is not a plain look-up here, so call eval_node, which also makes the error. */
const struct value *eval_ref(struct template_run *r, const struct node *n);

/* Returns the truth of an expression: 1, 0, or -1 on error. */
int eval_cond(struct template_run *r, const struct node *n);

/* Returns the value of an expression. Constants and set variables need no call. */
static inline struct value eval(struct template_run *r, const struct node *n)
{
    if (n->kind == N_CONST)
        return n->val;
    if (n->flags & NF_REF) {
        const struct value *v = eval_ref(r, n);

        return v ? *v : eval_node(r, n);
    }
    if (n->kind == N_NAME && n->up == 0 && r->frame->slots[n->slot].t != V_MISSING)
        return r->frame->slots[n->slot];
    return eval_node(r, n);
}

/* Keeps a function with a large stack frame from being inlined into the frequent ones. */
#define EVAL_APART __attribute__((noinline))

/* Evaluates call arguments into the arena. Returns false on error. */
bool eval_args(struct template_run *r, const struct call_args *args, struct argv *ret);

/* Applies a chain of filters whose innermost operand is `v` (filter and set blocks). */
struct value eval_filter_chain(struct template_run *r, const struct node *n, struct value v);

/* Evaluates the test of a for statement for one item: 1, 0, or -1 on error. */
int eval_loop_test(struct template_run *r, const struct node *n, struct value item);

enum exec_result { EXEC_ERROR = -1, EXEC_DONE, EXEC_BREAK, EXEC_CONTINUE };
enum exec_result exec(struct template_run *r, const struct node *n);

/* Gives a scope's variables their first values. */
void exec_enter(struct template_run *r, const struct scope *s);

/* Runs a for statement's body for each item of v. Also used by loop(...) of recursive loops. */
enum exec_result exec_loop(struct template_run *r, const struct node *n, struct value v,
                           uint32_t depth);

/* Removes the output after `from` and returns it as a string. */
struct value exec_cut_output(struct template_run *r, size_t from);

/* --- attributes and items --- */
struct value attr_get(struct template_run *r, struct value v, struct str name);
struct value attr_item(struct template_run *r, struct value v, struct value key);
struct value attr_slice(struct template_run *r, struct value v, const struct value part[3]);

/* --- operators --- */
struct value operator_binary(struct template_run *r, char op, struct value x, struct value y);
/* 1, 0, or -1 on error */
int operator_compare(struct template_run *r, int op, struct value x, struct value y);

/* Reports whether the node writes HTML, so that plain text in it is escaped. */
static inline bool eval_escapes(const struct template_run *r, const struct node *n)
{
    return n->flags & NF_ESCAPE_LATE ? r->autoescape : n->flags & NF_ESCAPE;
}

/* Returns text as HTML: escaped unless it is HTML already. v is a V_STR or V_ERR. */
struct value text_to_html(struct template_run *r, struct value v);

#endif
