/* The parser of expressions (template_parser.h), by recursive descent; each level of precedence is
 * one function that calls the next tighter one:
 *
 *   parse_expression   a if b else c
 *     parse_or           or
 *       parse_and          and
 *         parse_not          not
 *           parse_compare      == != < <= > >= in, not in      (one chain: a < b < c)
 *             parse_sum          + -
 *               parse_concat       ~
 *                 parse_product      * / // %
 *                   parse_pow          **
 *                     parse_unary        - +
 *                       parse_primary      names, literals, ( ) [ ] { }
 *                       parse_postfix      .name [key] (arguments)
 *                       parse_filter_expr  |filter, is test
 *
 * The last three are in parse_primary.c. The order is jinja2's own, where ~ binds tighter than +
 * and ** is left-associative. After an error parse_fail has moved to the end of the tokens and
 * returns a dummy node, so no caller must check for NULL. Depth is limited by PARSE_DEPTH_MAX, the
 * height of the tree that loops build (a + b + c ...) by parse_raise_height. */

#include "worker/text/template/filter.h"
#include "worker/text/template/template_parser.h"

#include <stdlib.h>

enum { PARSE_DEPTH_MAX = 150 };

/* A sign binds looser than .name and (arguments) but tighter than a filter: -x|abs is (-x)|abs. */
static struct node *parse_unary(struct template_parser *p, bool with_filter)
{
    struct node *n;

    if (p->depth >= PARSE_DEPTH_MAX)
        return parse_fail(p, "the expression nests too deep");
    p->depth++;
    if (skip_op(p, '-'))
        n = parse_node2(p, N_NEG, parse_unary(p, false), NULL);
    else if (skip_op(p, '+'))
        n = parse_node2(p, N_POS, parse_unary(p, false), NULL);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filter_expr(p, n);
    p->depth--;
    return n;
}

static struct node *make_binary(struct template_parser *p, struct node *a, uint8_t op,
                                struct node *b)
{
    struct node *n = parse_node2(p, N_BINARY, a, b);

    n->op = op;
    return n;
}

/* a ** b ** c is (a ** b) ** c, as in jinja2 and unlike Python. */
static struct node *parse_pow(struct template_parser *p)
{
    struct node *n = parse_unary(p, true);

    while (skip_op(p, TOP_POW))
        n = make_binary(p, n, 'p', parse_unary(p, true));
    return n;
}

/* Parses * / // %, from the left. */
static struct node *parse_product(struct template_parser *p)
{
    struct node *n = parse_pow(p);

    for (;;) {
        if (skip_op(p, '*'))
            n = make_binary(p, n, '*', parse_pow(p));
        else if (skip_op(p, '/'))
            n = make_binary(p, n, '/', parse_pow(p));
        else if (skip_op(p, TOP_FLOORDIV))
            n = make_binary(p, n, 'f', parse_pow(p));
        else if (skip_op(p, '%'))
            n = make_binary(p, n, '%', parse_pow(p));
        else
            return n;
    }
}

static bool fixed_args(const struct call_args *args, bool filters)
{
    bool fixed = !args->star && !args->star2;

    for (uint32_t i = 0; fixed && i < args->n_pos; i++)
        fixed = parse_fixed(args->pos[i], filters);
    for (uint32_t i = 0; fixed && i < args->n_named; i++)
        fixed = parse_fixed(args->named[i], filters);
    return fixed;
}

static bool has_fixed_operands(const struct node *n, bool filters)
{
    bool fixed = (!n->a || parse_fixed(n->a, filters)) && (!n->b || parse_fixed(n->b, filters)) &&
                 (!n->c || parse_fixed(n->c, filters));

    for (uint32_t i = 0; fixed && i < n->n; i++)
        fixed = parse_fixed(n->kids[i], filters);
    return fixed;
}

bool parse_fixed(const struct node *n, bool filters)
{
    switch (n->kind) {
    case N_CONST:
        return true;
    case N_COND:
        return n->c && has_fixed_operands(n, filters);
    case N_LIST:
    case N_TUPLE:
    case N_DICT:
    case N_AND:
    case N_OR:
    case N_NOT:
    case N_NEG:
    case N_POS:
    case N_BINARY:
    case N_CONCAT:
    case N_COMPARE:
    case N_OPERAND:
        return has_fixed_operands(n, filters);
    case N_FILTER:
    case N_TEST:
        return filters && n->a && parse_fixed(n->a, filters) && fixed_args(n->args, filters);
    default:
        return false;
    }
}

/* All operands of a ~ b ~ c are children of one node, so that they are joined once. */
static struct node *parse_concat(struct template_parser *p)
{
    struct node *n = parse_product(p);
    struct node *concat;
    node_vec kids = {0};

    if (!at_op(p, '~'))
        return n;
    concat = parse_node(p, N_CONCAT);
    *vec_push(&kids) = n;
    while (skip_op(p, '~'))
        *vec_push(&kids) = parse_product(p);
    parse_kids(p, concat, &kids);
    if (!(p->escape & NF_ESCAPE_LATE) && parse_fixed(concat, true))
        /* constants are joined at compile time, as plain text */
        concat->flags &= (uint16_t)~NF_ESCAPE;
    return concat;
}

/* Parses + and -, from the left. */
static struct node *parse_sum(struct template_parser *p)
{
    struct node *n = parse_concat(p);

    for (;;) {
        if (skip_op(p, '+'))
            n = make_binary(p, n, '+', parse_concat(p));
        else if (skip_op(p, '-'))
            n = make_binary(p, n, '-', parse_concat(p));
        else
            return n;
    }
}

/* Consumes a comparison operator and returns it; 0 if there is none here. */
static uint8_t parse_comparison(struct template_parser *p)
{
    static const struct {
        int token;
        uint8_t op;
    } ops[] = {{TOP_EQ, OP_EQ}, {TOP_NE, OP_NE}, {'<', OP_LT},
               {TOP_LE, OP_LE}, {'>', OP_GT},    {TOP_GE, OP_GE}};

    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        if (skip_op(p, ops[i].token))
            return ops[i].op;
    }
    if (skip_name(p, "in"))
        return OP_IN;
    if (at_name(p, "not") && p->t[1].kind == T_NAME && str_eq_c(p->t[1].text, "in")) {
        parse_next(p);
        parse_next(p);
        return OP_NOT_IN;
    }
    return 0;
}

/* A chain a < b < c keeps each operator with its right operand (N_OPERAND). */
static struct node *parse_compare(struct template_parser *p)
{
    struct node *n = parse_sum(p);
    struct node *chain = NULL;
    node_vec kids = {0};
    uint8_t op;

    while ((op = parse_comparison(p)) != 0) {
        struct node *link = parse_node(p, N_OPERAND);

        if (!chain)
            chain = parse_node2(p, N_COMPARE, n, NULL);
        link->op = op;
        link->b = parse_sum(p);
        parse_raise_height(p, link, link->b);
        *vec_push(&kids) = link;
    }
    if (!chain)
        return n;
    parse_kids(p, chain, &kids);
    return chain;
}

/* Counts depth itself, because `not not not ...` recurses here. */
static struct node *parse_not(struct template_parser *p)
{
    struct node *n;

    if (!at_name(p, "not"))
        return parse_compare(p);
    if (p->depth >= PARSE_DEPTH_MAX)
        return parse_fail(p, "the expression nests too deep");
    p->depth++;
    n = parse_node(p, N_NOT);
    parse_next(p);
    n->a = parse_not(p);
    parse_raise_height(p, n, n->a);
    p->depth--;
    return n;
}

/* Parses a and b and c, from the left. */
static struct node *parse_and(struct template_parser *p)
{
    struct node *n = parse_not(p);

    while (skip_name(p, "and"))
        n = parse_node2(p, N_AND, n, parse_not(p));
    return n;
}

/* Parses a or b or c, from the left. */
static struct node *parse_or(struct template_parser *p)
{
    struct node *n = parse_and(p);

    while (skip_name(p, "or"))
        n = parse_node2(p, N_OR, n, parse_and(p));
    return n;
}

/* with_cond false: does not parse `a if b else c`, as in `for x in y if z`, whose `if` is the
 * loop's. */
struct node *parse_expression(struct template_parser *p, bool with_cond)
{
    const struct node *unknown_before = p->unknown;
    bool soft = p->soft;
    struct node *n;

    if (p->depth >= PARSE_DEPTH_MAX)
        return parse_fail(p, "the expression nests too deep");
    p->depth++;
    n = parse_or(p);
    while (with_cond && at_name(p, "if") && !p->error->kind) {
        struct node *cond = parse_node(p, N_COND);

        p->unknown = unknown_before;
        p->soft = true;
        parse_next(p);
        cond->b = n;
        cond->a = parse_or(p);
        cond->c = skip_name(p, "else") ? parse_expression(p, true) : NULL;
        parse_raise_height(p, cond, cond->a);
        parse_raise_height(p, cond, cond->b);
        parse_raise_height(p, cond, cond->c);
        n = cond;
    }
    p->soft = soft;
    p->depth--;
    return n;
}
