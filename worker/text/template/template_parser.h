/*
 * Tokens to tree. parser_run parses a whole template. The expression half (parse_expr.c) and the
 * statement half (template_parser.c) share struct template_parser. Errors are sticky: after the
 * first one every function returns quickly with a dummy node and the position at the end.
 */
#ifndef RG_TEMPLATE_TEMPLATE_PARSER_H
#define RG_TEMPLATE_TEMPLATE_PARSER_H

#include "common/base/budget.h"
#include "common/base/vec.h"
#include "worker/text/template/lexer.h"
#include "worker/text/template/node.h"

typedef VEC(struct node *) node_vec; /* nodes that become the kids of a node */

struct template_parser {
    struct arena *a;
    const struct token *t;   /* the current token */
    const struct token *end; /* the T_EOF token */
    struct template_error *error;
    struct budget *budget; /* steps of the compilation */
    unsigned depth;
    unsigned loops;  /* number of enclosing for statements in the same function */
    uint16_t escape; /* NF_ESCAPE, NF_ESCAPE_LATE: flags for every new node */
    bool soft;       /* inside if and inline if: an unknown filter fails only when it is reached */
    const struct node *unknown; /* the first unknown filter or test outside of those */
    struct node dummy;
};

/* Parses the body of a template. Returns NULL on error. */
struct node *parser_run(struct template_parser *p);

/* --- shared --- */
struct node *parse_fail(struct template_parser *p, const char *message);
struct node *parse_node(struct template_parser *p, enum node_kind kind);

/* Records that `below` (may be NULL) is an operand of the expression n. All later passes and the
 * evaluator recurse along operands, so an expression that becomes too high is an error. */
void parse_raise_height(struct template_parser *p, struct node *n, const struct node *below);
/* copies the vector and frees it */
void parse_kids(struct template_parser *p, struct node *n, node_vec *kids);

static inline bool at_op(const struct template_parser *p, int op)
{
    return p->t->kind == T_OP && p->t->op == op;
}

static inline bool at_name(const struct template_parser *p, const char *name)
{
    return p->t->kind == T_NAME && str_eq_c(p->t->text, name);
}

bool skip_op(struct template_parser *p, int op);
bool skip_name(struct template_parser *p, const char *name);
bool expect_op(struct template_parser *p, int op);

static inline void parse_next(struct template_parser *p)
{
    if (p->t != p->end)
        p->t++;
}

/* --- expressions --- */

/* Makes a node of the current line with two children. */
struct node *parse_node2(struct template_parser *p, enum node_kind kind, struct node *a,
                         struct node *b);

/* parse_primary parses a name, a literal, or something in brackets. The other functions parse the
 * suffixes of an operand, and its filters and tests. */
struct node *parse_primary(struct template_parser *p);
struct node *parse_postfix(struct template_parser *p, struct node *n);
struct node *parse_filter_expr(struct template_parser *p, struct node *n);

struct node *parse_expression(struct template_parser *p, bool with_cond);

/* Reports whether jinja2 computes the node at compile time. Filters are computed only if it is
 * known whether they escape. */
bool parse_fixed(const struct node *n, bool filters);

/* Parses an expression, or several with commas as a tuple. Stops before the name `stop` (may be
 * NULL). */
struct node *parse_tuple(struct template_parser *p, bool with_cond, const char *stop);

/* Parses "|name(args)..." applied to n; with `inline_start` the first name has no "|". */
struct node *parse_filters(struct template_parser *p, struct node *n, bool inline_start);

#endif
