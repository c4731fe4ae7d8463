/* The operands of an expression: names, literals, lists, tuples and objects in their brackets; the
 * suffixes of an operand (.name [key] (arguments)); filters and tests. */
#include <stdlib.h>

#include "worker/text/template/filter.h"
#include "worker/text/template/number.h"
#include "worker/text/template/template_parser.h"

struct node *parse_node2(struct template_parser *p, enum node_kind kind, struct node *a,
                         struct node *b)
{
    struct node *n = parse_node(p, kind);

    n->a = a;
    n->b = b;
    parse_raise_height(p, n, a);
    parse_raise_height(p, n, b);
    return n;
}

/* Makes a constant node. Consumes its token. */
static struct node *parse_constant(struct template_parser *p, struct value v)
{
    struct node *n = parse_node(p, N_CONST);

    n->val = v;
    parse_next(p);
    return n;
}

/* Parses neighbouring literals as one text, as in Python. */
static struct node *parse_string(struct template_parser *p)
{
    struct buf text = {0};
    struct node *n = parse_node(p, N_CONST);

    while (p->t->kind == T_STRING) {
        buf_add_str(&text, p->t->text);
        parse_next(p);
    }
    n->val = v_str(arena_str(p->a, buf_str(&text)));
    buf_done(&text);
    return n;
}

/* Parses decimal integers of any length, hexadecimal, octal and binary ones up to 60 bits, and
 * floats. */
static struct node *parse_number(struct template_parser *p)
{
    struct str text = p->t->text;

    if (p->t->kind == T_FLOAT)
        return parse_constant(p, v_float(strtod(arena_cstr(p->a, text), NULL)));
    if (text.len > 2 && text.p[0] == '0' && (text.p[1] | 32) >= 'a') {
        int base = (text.p[1] | 32) == 'x' ? 16 : (text.p[1] | 32) == 'o' ? 8 : 2;
        char *digits = arena_cstr(p->a, str_sub(text, 2, text.len));

        if (text.len > 17)
            return parse_fail(p, "the number is too large");
        return parse_constant(p, v_int((int64_t)strtoull(digits, NULL, base)));
    }
    return parse_constant(p, number_from_json(p->a, text));
}

/* Parses true, false, none in both spellings, else a variable. */
static struct node *parse_name(struct template_parser *p)
{
    static const struct {
        const char *name;
        uint8_t type;
        bool value;
    } words[] = {{"true", V_BOOL, true},   {"True", V_BOOL, true},  {"false", V_BOOL, false},
                 {"False", V_BOOL, false}, {"none", V_NONE, false}, {"None", V_NONE, false}};
    struct node *n;

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (at_name(p, words[i].name))
            return parse_constant(p, (struct value){.t = words[i].type, .i = words[i].value});
    }
    n = parse_node(p, N_NAME);
    n->val = v_str(arena_str(p->a, p->t->text));
    parse_next(p);
    return n;
}

/* Parses [a, b, ...], perhaps with a comma at the end. */
static struct node *parse_list(struct template_parser *p)
{
    struct node *n = parse_node(p, N_LIST);
    node_vec kids = {0};

    parse_next(p);
    while (!at_op(p, ']') && !p->error->kind) {
        if (kids.n && !expect_op(p, ','))
            break;
        if (at_op(p, ']'))
            break;
        *vec_push(&kids) = parse_expression(p, true);
    }
    (void)expect_op(p, ']');
    parse_kids(p, n, &kids);
    return n;
}

/* Parses {k: v, ...}, perhaps with a comma at the end. */
static struct node *parse_dict(struct template_parser *p)
{
    struct node *n = parse_node(p, N_DICT);
    node_vec kids = {0};

    parse_next(p);
    while (!at_op(p, '}') && !p->error->kind) {
        if (kids.n && !expect_op(p, ','))
            break;
        if (at_op(p, '}'))
            break;
        *vec_push(&kids) = parse_expression(p, true);
        (void)expect_op(p, ':');
        *vec_push(&kids) = parse_expression(p, true);
    }
    (void)expect_op(p, '}');
    parse_kids(p, n, &kids);
    return n;
}

/* Parses the items of a tuple until something ends it. One item without a comma is not a tuple. */
static struct node *tuple_of(struct template_parser *p, bool with_cond, const char *stop,
                             bool parens)
{
    struct node *n = parse_node(p, N_TUPLE);
    node_vec kids = {0};
    bool is_tuple = false;

    for (;;) {
        if (kids.n && !skip_op(p, ','))
            break;
        is_tuple = kids.n > 0;
        if (p->t->kind == T_VAR_END || p->t->kind == T_BLOCK_END || at_op(p, ')') ||
            (stop && at_name(p, stop)))
            break;
        *vec_push(&kids) = parse_expression(p, with_cond);
        if (p->error->kind)
            break;
        if (!at_op(p, ','))
            break;
    }
    if (!is_tuple && kids.n == 1) {
        n = kids.at[0];
        vec_done(&kids);
        return n;
    }
    if (!kids.n && !parens)
        (void)parse_fail(p, "Expected an expression");
    parse_kids(p, n, &kids);
    return n;
}

struct node *parse_tuple(struct template_parser *p, bool with_cond, const char *stop)
{
    return tuple_of(p, with_cond, stop, false);
}

/* Parses a literal, a name, or something in brackets. */
struct node *parse_primary(struct template_parser *p)
{
    struct node *n;

    switch (p->t->kind) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_string(p);
    case T_INT:
    case T_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (at_op(p, '(')) {
        parse_next(p);
        n = tuple_of(p, true, NULL, true);
        (void)expect_op(p, ')');
        return n;
    }
    if (at_op(p, '['))
        return parse_list(p);
    if (at_op(p, '{'))
        return parse_dict(p);
    return parse_fail(p, "unexpected token in an expression");
}

/* --- calls, attributes, items --- */

struct arg_vecs {
    node_vec pos, named;
    VEC(struct str) names;
    struct node *star, *star2;
};

/* Fails if an argument follows one that it must not follow. */
static void check_order(struct template_parser *p, bool fits)
{
    if (!fits)
        (void)parse_fail(p, "invalid syntax for function call expression");
}

/* Reports whether a name and "=" follow. */
static bool at_named_arg(const struct template_parser *p)
{
    return p->t->kind == T_NAME && p->t < p->end && p->t[1].kind == T_OP && p->t[1].op == '=';
}

/* Parses one argument. Positional ones come first, then named ones, *list and **dict at the end. */
static void parse_arg(struct template_parser *p, struct arg_vecs *v)
{
    if (skip_op(p, '*')) {
        check_order(p, !v->star && !v->star2);
        v->star = parse_expression(p, true);
    } else if (skip_op(p, TOP_POW)) {
        check_order(p, !v->star2);
        v->star2 = parse_expression(p, true);
    } else if (at_named_arg(p)) {
        check_order(p, !v->star2);
        *vec_push(&v->names) = arena_str(p->a, p->t->text);
        parse_next(p);
        parse_next(p);
        *vec_push(&v->named) = parse_expression(p, true);
    } else {
        check_order(p, !v->star && !v->star2 && !v->named.n);
        *vec_push(&v->pos) = parse_expression(p, true);
    }
}

/* Refuses what Python's compiler would refuse, then freezes the arguments. */
static struct call_args *freeze_args(struct template_parser *p, struct arg_vecs *v)
{
    struct call_args *args = ARENA_NEW(p->a, struct call_args);

    for (size_t i = 0; i < v->names.n && budget_spend(p->budget, i / 8); i++) {
        for (size_t k = 0; k < i; k++) {
            if (str_eq(v->names.at[i], v->names.at[k]))
                (void)parse_fail(p, "keyword argument repeated");
        }
    }
    args->n_pos = (uint32_t)v->pos.n;
    args->n_named = (uint32_t)v->named.n;
    args->pos = arena_alloc(p->a, v->pos.n * sizeof(*args->pos));
    args->named = arena_alloc(p->a, v->named.n * sizeof(*args->named));
    args->names = arena_alloc(p->a, v->names.n * sizeof(*args->names));
    if (v->pos.n)
        memcpy(args->pos, v->pos.at, v->pos.n * sizeof(*args->pos));
    if (v->named.n) {
        memcpy(args->named, v->named.at, v->named.n * sizeof(*args->named));
        memcpy(args->names, v->names.at, v->names.n * sizeof(*args->names));
    }
    args->star = v->star;
    args->star2 = v->star2;
    vec_done(&v->pos);
    vec_done(&v->named);
    vec_done(&v->names);
    return args;
}

/* Parses the arguments, from "(" to ")". */
static struct call_args *parse_call_args(struct template_parser *p)
{
    struct arg_vecs v = {0};
    bool comma = false;

    parse_next(p);
    while (!at_op(p, ')') && !p->error->kind) {
        if (comma && !expect_op(p, ','))
            break;
        if (comma && at_op(p, ')'))
            break;
        parse_arg(p, &v);
        comma = true;
    }
    (void)expect_op(p, ')');
    return freeze_args(p, &v);
}

/* Stores the arguments of a call, filter or test in its node. */
static void set_args(struct template_parser *p, struct node *n, struct call_args *args)
{
    n->args = args;
    for (uint32_t i = 0; i < args->n_pos; i++)
        parse_raise_height(p, n, args->pos[i]);
    for (uint32_t i = 0; i < args->n_named; i++)
        parse_raise_height(p, n, args->named[i]);
    parse_raise_height(p, n, args->star);
    parse_raise_height(p, n, args->star2);
}

static struct node *parse_call(struct template_parser *p, struct node *callee)
{
    struct node *n = parse_node2(p, N_CALL, callee, NULL);

    set_args(p, n, parse_call_args(p));
    return n;
}

/* Parses the text between [ and ]: an expression or a slice. */
static struct node *parse_subscribed(struct template_parser *p)
{
    struct node *n;
    struct node *part[3] = {0};

    if (!at_op(p, ':')) {
        part[0] = parse_expression(p, true);
        if (!at_op(p, ':'))
            return part[0];
    }
    n = parse_node(p, N_SLICE);
    for (int i = 1; i < 3 && skip_op(p, ':'); i++) {
        if (!at_op(p, ':') && !at_op(p, ']') && !at_op(p, ','))
            part[i] = parse_expression(p, true);
    }
    n->a = part[0];
    n->b = part[1];
    n->c = part[2];
    for (int i = 0; i < 3; i++)
        parse_raise_height(p, n, part[i]);
    return n;
}

/* Parses .name, or .0, which is the item at that index. */
static struct node *parse_attribute(struct template_parser *p, struct node *of)
{
    struct node *n;

    parse_next(p);
    if (p->t->kind == T_INT) {
        n = parse_node2(p, N_GETITEM, of, NULL);
        n->b = parse_number(p);
        return n;
    }
    if (p->t->kind != T_NAME)
        return parse_fail(p, "expected name or number");
    n = parse_node2(p, N_GETATTR, of, NULL);
    n->val = v_str(arena_str(p->a, p->t->text));
    parse_next(p);
    return n;
}

/* Parses [key] or [from:to:step]. Several subscripts with commas are one tuple. */
static struct node *parse_item(struct template_parser *p, struct node *of)
{
    struct node *n = parse_node2(p, N_GETITEM, of, NULL);
    node_vec kids = {0};

    parse_next(p);
    while (!at_op(p, ']') && !p->error->kind) {
        if (kids.n && !expect_op(p, ','))
            break;
        *vec_push(&kids) = parse_subscribed(p);
    }
    (void)expect_op(p, ']');
    if (kids.n == 1) {
        n->b = kids.at[0];
        parse_raise_height(p, n, n->b);
        vec_done(&kids);
        return n;
    }
    if (!kids.n)
        (void)parse_fail(p, "Expected a subscript");
    n->b = parse_node(p, N_TUPLE);
    parse_kids(p, n->b, &kids);
    parse_raise_height(p, n, n->b);
    return n;
}

/* Parses any number of .name, [key] and (arguments) after n. */
struct node *parse_postfix(struct template_parser *p, struct node *n)
{
    while (!p->error->kind) {
        if (at_op(p, '.'))
            n = parse_attribute(p, n);
        else if (at_op(p, '['))
            n = parse_item(p, n);
        else if (at_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* --- filters and tests --- */

enum { DOTTED_MAX = 256 }; /* longest name of a filter or test, in bytes */

/* Parses name.name.name. */
static struct str parse_dotted(struct template_parser *p)
{
    struct str name = p->t->text;

    if (p->t->kind != T_NAME) {
        (void)parse_fail(p, "expected a name");
        return STR("");
    }
    parse_next(p);
    while (at_op(p, '.') && p->t[1].kind == T_NAME) {
        parse_next(p);
        if (name.len + p->t->text.len > DOTTED_MAX) {
            (void)parse_fail(p, "the name is too long");
            break;
        }
        name = arena_printf(p->a, "%.*s.%.*s", (int)name.len, name.p, (int)p->t->text.len,
                            p->t->text.p);
        parse_next(p);
    }
    return arena_str(p->a, name);
}

/* Adds an error of the whole template, which is reported after all errors of the parser. A later
 * `if` may still show that the code may never be reached. */
static void add_unknown_name(struct template_parser *p, const struct node *n)
{
    if (!p->soft && !p->unknown)
        p->unknown = n;
}

/* Parses one |name(arguments). The filter is looked up now. An unknown one is an error of the
 * template. If the code may never be reached (p->soft), it fails only at rendering. */
static struct node *parse_filter(struct template_parser *p, struct node *of)
{
    struct node *n = parse_node2(p, N_FILTER, of, NULL);
    struct str name = parse_dotted(p);

    n->val = v_str(name);
    n->fn = filter_find(name);
    if (!n->fn)
        add_unknown_name(p, n);
    set_args(p, n, at_op(p, '(') ? parse_call_args(p) : ARENA_NEW(p->a, struct call_args));
    return n;
}

/* Parses a chain of filters. inline_start: the first one has no bar before it (filter blocks). */
struct node *parse_filters(struct template_parser *p, struct node *n, bool inline_start)
{
    while ((at_op(p, '|') || inline_start) && !p->error->kind) {
        if (!inline_start)
            parse_next(p);
        n = parse_filter(p, n);
        inline_start = false;
    }
    return n;
}

/* Reports whether a test's argument without parentheses may begin here. */
static bool at_bare_argument(const struct template_parser *p)
{
    if (p->t->kind == T_NAME)
        return !at_name(p, "else") && !at_name(p, "or") && !at_name(p, "and");
    return p->t->kind == T_STRING || p->t->kind == T_INT || p->t->kind == T_FLOAT ||
           at_op(p, '[') || at_op(p, '{');
}

/* Parses `is [not] name`, with arguments in parentheses or a single one without. */
static struct node *parse_test(struct template_parser *p, struct node *of)
{
    struct node *n = parse_node2(p, N_TEST, of, NULL);
    bool negated;

    parse_next(p);
    negated = skip_name(p, "not");
    n->val = v_str(parse_dotted(p));
    n->fn = test_find(v_bytes(n->val));
    if (!n->fn)
        add_unknown_name(p, n);
    if (at_op(p, '(')) {
        set_args(p, n, parse_call_args(p));
    } else {
        n->args = ARENA_NEW(p->a, struct call_args);
        if (at_bare_argument(p)) {
            if (at_name(p, "is"))
                return parse_fail(p, "You cannot chain multiple tests with is");
            n->args->pos = arena_alloc(p->a, sizeof(struct node *));
            n->args->pos[0] = parse_postfix(p, parse_primary(p));
            n->args->n_pos = 1;
            parse_raise_height(p, n, n->args->pos[0]);
        }
    }
    return negated ? parse_node2(p, N_NOT, n, NULL) : n;
}

/* Parses the suffixes of an operand: filters, tests, calls of their results. */
struct node *parse_filter_expr(struct template_parser *p, struct node *n)
{
    while (!p->error->kind) {
        if (at_op(p, '|'))
            n = parse_filters(p, n, false);
        else if (at_name(p, "is"))
            n = parse_test(p, n);
        else if (at_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}
