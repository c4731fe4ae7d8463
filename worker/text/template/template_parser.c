/* The parser of statements (template_parser.h). Expressions are in parse_expr.c. A statement's
 * function is called after its tag name and consumes everything up to its end tag; parse_body
 * collects the nodes between.
 *
 * p->loops counts the enclosing for statements, so that break and continue are refused outside.
 * p->soft means that an unknown filter or test is not a compile error: inside an `if`, jinja2
 * reports it only when it is reached. Bodies that jinja2 compiles as functions reset both. The
 * first error ends the parsing: parse_fail moves to the last token. */

#include "worker/text/template/template_parser.h"

#include <stdlib.h>

#include "worker/text/template/filter.h"

/* Limits of a chain of elif and of an expression, which later passes walk recursively. jinja2
 * itself fails at some 300 operands of one sum. */
enum { ELIF_MAX = 2000, HEIGHT_MAX = 1000 };

static struct node *parse_body(struct template_parser *p, const char *const *ends);

/* The message includes the current token, because the position alone says little. */
struct node *parse_fail(struct template_parser *p, const char *message)
{
    (void)compile_fail(p->error, p->t->line, "TemplateSyntaxError", "%s%s%.*s%s", message,
                       p->t->text.len ? ", got '" : "", (int)MIN_OF(p->t->text.len, (size_t)60),
                       p->t->text.len ? p->t->text.p : "", p->t->text.len ? "'" : "");
    p->t = p->end;
    return &p->dummy;
}

/* Makes an empty node of the current line. */
struct node *parse_node(struct template_parser *p, enum node_kind kind)
{
    struct node *n = ARENA_NEW(p->a, struct node);

    n->kind = (uint8_t)kind;
    n->line = p->t->line;
    n->flags = p->escape;
    return n;
}

void parse_raise_height(struct template_parser *p, struct node *n, const struct node *below)
{
    if (!below || n->height > below->height)
        return;
    n->height = below->height + 1;
    if (n->height > HEIGHT_MAX)
        (void)parse_fail(p, "the expression nests deeper than 1000 levels");
}

/* Moves the children into the arena and frees the vector. */
void parse_kids(struct template_parser *p, struct node *n, node_vec *kids)
{
    for (size_t i = 0; i < kids->n; i++)
        parse_raise_height(p, n, kids->at[i]);
    n->n = (uint32_t)kids->n;
    n->kids = arena_alloc(p->a, kids->n * sizeof(*n->kids));
    if (kids->n)
        memcpy(n->kids, kids->at, kids->n * sizeof(*n->kids));
    vec_done(kids);
}

bool skip_op(struct template_parser *p, int op)
{
    if (!at_op(p, op))
        return false;
    parse_next(p);
    return true;
}

bool skip_name(struct template_parser *p, const char *name)
{
    if (!at_name(p, name))
        return false;
    parse_next(p);
    return true;
}

/* Consumes the operator. Returns false, with the error set, if the token is a different one. */
bool expect_op(struct template_parser *p, int op)
{
    char text[] = "expected token ' '";

    if (skip_op(p, op))
        return true;
    text[16] = (char)op;
    (void)parse_fail(p, text);
    return false;
}

static void expect_name(struct template_parser *p, const char *name)
{
    if (!skip_name(p, name))
        (void)parse_fail(p, "unexpected token in a statement");
}

static void expect_block_end(struct template_parser *p)
{
    if (p->t->kind == T_BLOCK_END)
        parse_next(p);
    else
        (void)parse_fail(p, "expected token 'end of statement block'");
}

/* Parses the body of a block statement whose head ends here, up to one of the end tags (not
 * consumed). */
static struct node *parse_block(struct template_parser *p, const char *const *ends)
{
    struct node *body;

    (void)skip_op(p, ':');
    expect_block_end(p);
    body = parse_body(p, ends);
    return body;
}

/* Parses the body up to one end tag, which is consumed. */
static struct node *block_until(struct template_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *body = parse_block(p, ends);

    parse_next(p);
    return body;
}

/* Parses a body that is compiled to a function of its own: it has no enclosing loop to break. */
static struct node *function_until(struct template_parser *p, const char *end)
{
    unsigned loops = p->loops;
    bool soft = p->soft;
    struct node *body;

    p->loops = 0;
    p->soft = false;
    body = block_until(p, end);
    p->loops = loops;
    p->soft = soft;
    return body;
}

/* Parses a body with its own variables in the same function. */
static struct node *scope_until(struct template_parser *p, const char *end)
{
    bool soft = p->soft;
    struct node *body;

    p->soft = false;
    body = block_until(p, end);
    p->soft = soft;
    return body;
}

/* --- targets --- */

/* Parses a name that is assigned to. Constants are refused. */
static struct node *parse_name_target(struct template_parser *p)
{
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    struct node *n = parse_node(p, N_NAME);

    if (p->t->kind != T_NAME)
        return parse_fail(p, "expected a name");
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++) {
        if (at_name(p, reserved[i]))
            return parse_fail(p, "can't assign to a constant");
    }
    n->val = v_str(arena_str(p->a, p->t->text));
    n->flags = NF_STORE;
    parse_next(p);
    return n;
}

static struct node *parse_single_target(struct template_parser *p);

/* Parses a, b, ... up to `close` or `stop`. One target without a comma is not a list, except in
 * [a]. */
static struct node *parse_target_list(struct template_parser *p, const char *stop, int close)
{
    struct node *n = parse_node(p, N_TUPLE);
    node_vec kids = {0};
    bool comma = false;

    while (!p->error->kind) {
        if (kids.n) {
            if (!skip_op(p, ','))
                break;
            comma = true;
        }
        if (at_op(p, close) || at_op(p, '=') || p->t->kind == T_BLOCK_END ||
            (stop && at_name(p, stop)))
            break;
        *vec_push(&kids) = parse_single_target(p);
    }
    if (!comma && kids.n == 1 && close != ']') {
        n = kids.at[0];
        vec_done(&kids);
        return n;
    }
    if (!kids.n && !close)
        (void)parse_fail(p, "expected a name");
    parse_kids(p, n, &kids);
    return n;
}

/* Parses a name, or a nested list of targets in ( ) or [ ]. */
static struct node *parse_single_target(struct template_parser *p)
{
    int close = at_op(p, '(') ? ')' : at_op(p, '[') ? ']' : 0;
    struct node *n;

    if (!close)
        return parse_name_target(p);
    if (p->depth > 50)
        return parse_fail(p, "the target nests too deep");
    p->depth++;
    parse_next(p);
    n = parse_target_list(p, NULL, close);
    (void)expect_op(p, close);
    p->depth--;
    return n;
}

/* with_namespace also accepts ns.name (set statements only). */
static struct node *parse_target(struct template_parser *p, bool with_namespace, const char *stop)
{
    struct node *n;

    if (with_namespace && p->t->kind == T_NAME && p->t[1].kind == T_OP && p->t[1].op == '.') {
        n = parse_node(p, N_NSREF);
        n->a = parse_node(p, N_NAME);
        n->a->val = v_str(arena_str(p->a, p->t->text));
        parse_next(p);
        parse_next(p);
        if (p->t->kind != T_NAME)
            return parse_fail(p, "expected a name");
        n->val = v_str(arena_str(p->a, p->t->text));
        parse_next(p);
        return n;
    }
    return parse_target_list(p, stop, 0);
}

/* --- statements --- */

/* The branches of elif are a chain through c. */
static struct node *parse_if(struct template_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    bool soft = p->soft;
    struct node *n = parse_node(p, N_IF);
    struct node *last = n;
    unsigned elifs = 0;

    p->soft = true;
    n->a = parse_tuple(p, false, NULL);
    n->b = parse_block(p, ends);
    while (skip_name(p, "elif")) {
        last = last->c = parse_node(p, N_IF);
        last->flags = NF_ELIF;
        if (++elifs > ELIF_MAX)
            return parse_fail(p, "too many elif");
        last->a = parse_tuple(p, false, NULL);
        last->b = parse_block(p, ends);
    }
    if (skip_name(p, "else"))
        last->c = block_until(p, "endif");
    else
        parse_next(p);
    p->soft = soft;
    return n;
}

/* Parses {% for target in iterable [if test] [recursive] %} ... [{% else %} ...] {% endfor %} */
static struct node *parse_for(struct template_parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct node *n = parse_node(p, N_FOR);
    bool soft = p->soft;

    n->a = parse_target(p, false, "in");
    expect_name(p, "in");
    n->b = parse_tuple(p, false, "recursive");
    p->soft = false;
    if (skip_name(p, "if"))
        n->c = parse_expression(p, true);
    if (skip_name(p, "recursive"))
        n->flags |= NF_RECURSIVE;
    n->n = 3;
    n->kids = arena_calloc(p->a, 3, sizeof(*n->kids));
    p->loops++;
    n->kids[0] = parse_block(p, ends);
    p->loops--;
    if (skip_name(p, "else"))
        n->kids[1] = block_until(p, "endfor");
    else
        parse_next(p);
    p->soft = soft;
    return n;
}

/* Parses {% set a = value %}, or the block form, in which the body's output is the value. */
static struct node *parse_set(struct template_parser *p)
{
    struct node *n = parse_node(p, N_SET);

    n->a = parse_target(p, true, NULL);
    if (skip_op(p, '=')) {
        n->b = parse_tuple(p, true, NULL);
        return n;
    }
    n->kind = N_SETBLOCK;
    n->c = at_op(p, '|') ? parse_filters(p, NULL, false) : NULL;
    n->b = scope_until(p, "endset");
    return n;
}

/* Parses "a" or "b=1". After a default, all further parameters must have one. */
static void parse_param(struct template_parser *p, node_vec *params, node_vec *defaults)
{
    struct node *name = parse_name_target(p), *deflt = NULL;

    name->flags = NF_PARAM;
    *vec_push(params) = name;
    if (skip_op(p, '='))
        deflt = parse_expression(p, true);
    else if (defaults->n > 0 && vec_last(defaults))
        (void)parse_fail(p, "non-default argument follows default argument");
    *vec_push(defaults) = deflt;
}

/* Parses "(a, b=1)" into m. The defaults are aligned with the parameters. */
static void parse_signature(struct template_parser *p, struct macro_def *m)
{
    node_vec params = {0}, defaults = {0};

    (void)expect_op(p, '(');
    while (!at_op(p, ')') && !p->error->kind) {
        if (params.n && !expect_op(p, ','))
            break;
        parse_param(p, &params, &defaults);
    }
    (void)expect_op(p, ')');
    m->n_params = (uint32_t)params.n;
    m->params = arena_alloc(p->a, params.n * sizeof(*m->params));
    m->defaults = arena_alloc(p->a, params.n * sizeof(*m->defaults));
    for (uint32_t i = 0; i < m->n_params; i++) {
        m->params[i] = params.at[i];
        m->defaults[i] = defaults.at[i];
    }
    vec_done(&params);
    vec_done(&defaults);
}

/* Parses {% macro name(parameters) %} ... {% endmacro %}, which assigns the macro to its name. */
static struct node *parse_macro(struct template_parser *p)
{
    struct node *n = parse_node(p, N_MACRO);

    n->a = parse_name_target(p);
    n->macro = ARENA_NEW(p->a, struct macro_def);
    n->macro->name = v_bytes(n->a->val);
    parse_signature(p, n->macro);
    n->b = function_until(p, "endmacro");
    return n;
}

/* Parses {% call(parameters) f(arguments) %} ... {% endcall %}: the body is a macro named
 * `caller`. */
static struct node *parse_call_block(struct template_parser *p)
{
    struct node *n = parse_node(p, N_CALLBLOCK);

    n->macro = ARENA_NEW(p->a, struct macro_def);
    n->macro->name = STR("caller");
    if (at_op(p, '('))
        parse_signature(p, n->macro);
    n->a = parse_expression(p, true);
    if (!p->error->kind && n->a->kind != N_CALL)
        return parse_fail(p, "expected call");
    n->b = function_until(p, "endcall");
    return n;
}

/* Parses {% filter name(arguments) %} ... {% endfilter %}. */
static struct node *parse_filter_block(struct template_parser *p)
{
    struct node *n = parse_node(p, N_FILTERBLOCK);

    n->c = parse_filters(p, NULL, true);
    n->b = scope_until(p, "endfilter");
    return n;
}

/* Parses {% with a = x, b = y %} ... {% endwith %}. */
static struct node *parse_with(struct template_parser *p)
{
    struct node *n = parse_node(p, N_WITH);
    node_vec kids = {0};

    while (p->t->kind != T_BLOCK_END && !p->error->kind) {
        if (kids.n && !expect_op(p, ','))
            break;
        *vec_push(&kids) = parse_target(p, false, NULL);
        (void)expect_op(p, '=');
        *vec_push(&kids) = parse_expression(p, true);
    }
    parse_kids(p, n, &kids);
    n->b = scope_until(p, "endwith");
    return n;
}

/* Parses a block. Without inheritance it is only a scope with its own body. */
static struct node *parse_named_block(struct template_parser *p)
{
    struct node *n = parse_node(p, N_SCOPE);
    struct str name = p->t->text;
    uint16_t escape = p->escape;

    if (p->t->kind != T_NAME)
        return parse_fail(p, "expected a name");
    parse_next(p);
    (void)skip_name(p, "scoped");
    (void)skip_name(p, "required");
    p->escape = 0; /* jinja2 compiles blocks after everything else */
    n->b = function_until(p, "endblock");
    p->escape = escape;
    if (p->t->kind == T_NAME && str_eq(p->t->text, name))
        parse_next(p);
    return n;
}

/* Returns the marks of the nodes below an autoescape, among those that `outer` marks. */
static uint16_t escape_marks(const struct node *whether, uint16_t outer)
{
    struct value v = whether->val;
    bool no = v.t == V_NONE || (v.t == V_STR && v.n == 0) || (v_is_int(v) && v.i == 0);

    if (whether->kind != N_CONST)
        return outer | NF_ESCAPE_LATE;
    return (outer & NF_ESCAPE_LATE) | (no ? 0 : NF_ESCAPE);
}

/* Parses {% autoescape whether %} ... {% endautoescape %}, which is a scope. For prints the setting
 * is decided by their position in the source. Filters, macros and set blocks use the setting at run
 * time. */
static struct node *parse_autoescape(struct template_parser *p)
{
    struct node *scope = parse_node(p, N_SCOPE), *n = parse_node(p, N_AUTOESCAPE);
    uint16_t escape = p->escape;

    scope->b = n;
    n->a = parse_expression(p, true);
    p->escape = escape_marks(n->a, escape);
    n->b = scope_until(p, "endautoescape");
    p->escape = escape;
    return scope;
}

/* Parses include, import, from, extends, which fail because transformers gives the environment no
 * loader. */
static struct node *parse_loader(struct template_parser *p)
{
    struct node *n = parse_node(p, N_RAISE);

    n->val = v_text("no loader for this environment specified");
    while (p->t->kind != T_BLOCK_END && p->t->kind != T_EOF)
        parse_next(p);
    return n;
}

static struct node *parse_generation(struct template_parser *p)
{
    struct node *n = parse_node(p, N_SCOPE);

    n->b = function_until(p, "endgeneration");
    return n;
}

/* Computes the print of a constant at compile time, without regard to the setting at run time. */
static void fold_print(struct node *n)
{
    if ((n->flags & NF_ESCAPE_LATE) && parse_fixed(n->a, false))
        n->flags &= (uint16_t)~NF_ESCAPE_LATE;
}

/* Parses {% print a, b %}. */
static struct node *parse_print(struct template_parser *p)
{
    struct node *n = parse_node(p, N_BODY);
    node_vec kids = {0};

    while (p->t->kind != T_BLOCK_END && !p->error->kind) {
        struct node *print;

        if (kids.n && !expect_op(p, ','))
            break;
        print = parse_node(p, N_PRINT);
        print->a = parse_expression(p, true);
        fold_print(print);
        *vec_push(&kids) = print;
    }
    parse_kids(p, n, &kids);
    return n;
}

static struct node *parse_jump(struct template_parser *p, enum node_kind kind)
{
    if (!p->loops)
        return parse_fail(p, "break or continue outside of a loop");
    return parse_node(p, kind);
}

/* Parses the statement after "{%". The table has the function for each tag. */
static struct node *parse_statement(struct template_parser *p)
{
    static const struct {
        const char *tag;
        struct node *(*parse)(struct template_parser *p);
    } statements[] = {{"if", parse_if},
                      {"for", parse_for},
                      {"set", parse_set},
                      {"macro", parse_macro},
                      {"call", parse_call_block},
                      {"filter", parse_filter_block},
                      {"with", parse_with},
                      {"block", parse_named_block},
                      {"autoescape", parse_autoescape},
                      {"include", parse_loader},
                      {"import", parse_loader},
                      {"from", parse_loader},
                      {"extends", parse_loader},
                      {"generation", parse_generation},
                      {"print", parse_print}};

    if (p->t->kind != T_NAME)
        return parse_fail(p, "tag name expected");
    if (p->depth >= 400)
        return parse_fail(p, "statements nest too deep");
    if (skip_name(p, "break"))
        return parse_jump(p, N_BREAK);
    if (skip_name(p, "continue"))
        return parse_jump(p, N_CONTINUE);
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        if (skip_name(p, statements[i].tag)) {
            struct node *n;

            p->depth++;
            n = statements[i].parse(p);
            p->depth--;
            return n;
        }
    }
    return parse_fail(p, "Encountered unknown tag");
}

/* Reports whether the current tag ends the body that is being parsed. */
static bool at_end_tag(const struct template_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++) {
        if (at_name(p, *ends))
            return true;
    }
    return false;
}

/* Parses {{ expression }}. Several with commas are a tuple. */
static struct node *parse_output(struct template_parser *p)
{
    struct node *n;

    parse_next(p);
    n = parse_node(p, N_PRINT);
    n->a = parse_tuple(p, true, NULL);
    fold_print(n);
    if (p->t->kind != T_VAR_END)
        return parse_fail(p, "expected token 'end of print statement'");
    parse_next(p);
    return n;
}

static struct node *parse_data(struct template_parser *p)
{
    struct node *data = parse_node(p, N_DATA);

    data->val = v_str(p->t->text);
    parse_next(p);
    return data;
}

/* Parses the statement after "{%" up to "%}". Returns NULL at an end tag. */
static struct node *parse_tag(struct template_parser *p, const char *const *ends)
{
    struct node *n;

    parse_next(p);
    if (at_end_tag(p, ends))
        return NULL;
    n = parse_statement(p);
    if (!p->error->kind)
        expect_block_end(p);
    return n;
}

/* Parses statements and text up to an end tag (its name is then the current token), or to the
 * end. */
static struct node *parse_body(struct template_parser *p, const char *const *ends)
{
    struct node *body = parse_node(p, N_BODY);
    node_vec kids = {0};

    while (p->t->kind != T_EOF) {
        struct node *n = p->t->kind == T_DATA        ? parse_data(p)
                         : p->t->kind == T_VAR_BEGIN ? parse_output(p)
                                                     : parse_tag(p, ends);

        if (!n)
            break;
        *vec_push(&kids) = n;
    }
    if (ends && p->t->kind == T_EOF)
        (void)parse_fail(p, "Unexpected end of template");
    parse_kids(p, body, &kids);
    return body;
}

struct node *parser_run(struct template_parser *p)
{
    struct node *body = parse_body(p, NULL);
    const struct node *n = p->unknown;

    if (n && !p->error->kind)
        (void)compile_fail(p->error, n->line, "TemplateAssertionError", "No %s named '%.*s'.",
                           n->kind == N_FILTER ? "filter" : "test", (int)n->val.n, n->val.s);
    return p->error->kind ? NULL : body;
}
