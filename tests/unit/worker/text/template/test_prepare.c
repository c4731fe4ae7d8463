/*
 * The annotations of the last pass (annotate.h) have no visible effect. Every rendering here has
 * the same result without them, for look-ups, methods of the same name, missing keys and sums of
 * many parts.
 */
#include <stdio.h>

#include "testing.h"
#include "worker/text/template/node.h"
#include "worker/text/template/template.h"

static struct template *compiled(const char *source)
{
    struct template *t = NULL;
    struct err e = {0};

    cr_assert_eq(template_compile(str_cstr(source), "t", &t, NULL, &e), 0, "%s: %s", source,
                 e.text);
    return t;
}

/* Returns the first statement of a template. */
static struct node *first(const struct template *t)
{
    cr_assert_eq(t->root->kind, N_BODY);
    cr_assert_gt(t->root->n, 0u);
    return t->root->kids[0];
}

static void expect_flags(const char *expression, unsigned want, unsigned op)
{
    char source[256];
    struct template *t;
    const struct node *n;

    snprintf(source, sizeof(source), "{{ %s }}", expression);
    t = compiled(source);
    n = first(t)->a;
    cr_assert_eq(n->flags & (NF_TYPE_ATTR | NF_REF | NF_SIMPLE), want, "%s: flags %x", expression,
                 n->flags);
    if (want & NF_REF)
        cr_assert_eq(n->op, op, "%s: %u in a row", expression, n->op);
    template_free(t);
}

TEST(prepare, fixed_names_of_a_variable_are_plain_look_ups)
{
    expect_flags("x.a", NF_REF, 1);
    expect_flags("x['a']", NF_REF, 1);
    expect_flags("x.a['b'].c", NF_REF, 3);
    expect_flags("x[0]", 0, 0);
    expect_flags("x[y]", 0, 0);
    expect_flags("f().a", 0, 0);
    expect_flags("x[0].a", 0, 0);
}

TEST(prepare, names_that_some_type_has_as_a_method_ask_the_type)
{
    expect_flags("x.items", NF_TYPE_ATTR, 0);
    expect_flags("x['keys']", NF_TYPE_ATTR, 0);
    expect_flags("x.items.a", 0, 0);
    expect_flags("x.strip", NF_TYPE_ATTR, 0);
    expect_flags("x.item", NF_REF, 1);
}

TEST(prepare, rows_of_look_ups_are_bounded)
{
    expect_flags("x.a.b.c.d.e.f.g.h", NF_REF, 8);
    expect_flags("x.a.b.c.d.e.f.g.h.i", 0, 0);
}

TEST(prepare, the_loop_is_no_variable)
{
    struct template *t = compiled("{% for i in l %}{{ loop.first }}{{ i.first_name }}{% endfor %}");
    const struct node *body = first(t)->kids[0];

    cr_assert_eq(body->kids[0]->a->flags & NF_REF, 0);
    cr_assert_neq(body->kids[1]->a->flags & NF_REF, 0);
    template_free(t);
}

TEST(prepare, simple_conditions)
{
    expect_flags("x == 'a'", NF_SIMPLE, 0);
    expect_flags("x.a != 'b'", NF_SIMPLE, 0);
    expect_flags("x == 1", 0, 0);
    expect_flags("x < 'a'", 0, 0);
    expect_flags("x == 'a' == 'b'", 0, 0);
    expect_flags("x is defined", NF_SIMPLE, 0);
    expect_flags("x is divisibleby(2)", 0, 0);
    expect_flags("x | length", NF_SIMPLE, 0);
    expect_flags("x | trim('a')", 0, 0);
}

TEST(prepare, printed_sums_become_their_operands)
{
    struct template *t = compiled("{{ 'a' + 'b' + x + 'c' + 'd' + y }}");
    const struct node *n = first(t);

    cr_assert_eq(n->kind, N_PRINT);
    cr_assert_eq(n->n, 4u);
    cr_assert(str_eq_c(v_bytes(n->kids[0]->val), "ab"));
    cr_assert(str_eq_c(v_bytes(n->kids[2]->val), "cd"));
    template_free(t);
    t = compiled("{{ 'text' }}");
    cr_assert_eq(first(t)->kind, N_DATA);
    template_free(t);
    t = compiled("{{ x - y }}");
    cr_assert_eq(first(t)->n, 0u, "only sums");
    template_free(t);
}

/* --- nothing of it shows --- */

static void expect_render(const char *source, const char *context, const char *want)
{
    struct template *t = compiled(source);
    struct arena a = {0};
    const struct json *c = NULL;
    struct buf out = {0};
    struct err e = {0};
    int rc;

    cr_assert_eq(json_parse(&a, str_cstr(context), &c, &e), 0, "%s", e.text);
    rc = template_render(t, &a, c, NULL, &out, &e);
    if (want) {
        cr_assert_eq(rc, 0, "%s: %s", source, e.text);
        cr_assert(str_eq_c(buf_str(&out), want), "%s: %.*s", source, (int)out.len, out.p);
    } else {
        cr_assert_eq(rc, -1, "%s", source);
    }
    buf_done(&out);
    arena_done(&a);
    template_free(t);
}

TEST(prepare, look_ups_behave_as_ever)
{
    expect_render("{{ x.a.b }}", "{\"x\":{\"a\":{\"b\":5}}}", "5");
    expect_render("{{ x.a.nope }}|{{ x.nope is defined }}", "{\"x\":{\"a\":{}}}", "|False");
    expect_render("{{ x.nope.b }}", "{\"x\":{}}", NULL);
    expect_render("{{ x.nope.b }}", "{}", NULL);
    expect_render("{{ x.a }}", "{\"x\":[1]}", "");
    expect_render("{{ x.a }}", "{\"x\":\"text\"}", "");
    expect_render("{{ x['items'] }}|{{ x.items() | list }}", "{\"x\":{\"items\":1}}",
                  "1|[('items', 1)]");
    expect_render(
        "{{ x.a.b.c.d.e.f.g.h.i }}",
        "{\"x\":{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{\"f\":{\"g\":{\"h\":{\"i\":7}}}}}}}}}}", "7");
    expect_render("{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}", "{}", "2");
    expect_render("{% for loop_ in [{'first': 3}] %}{{ loop_.first }}{{ loop.first }}{% endfor %}",
                  "{}", "3True");
}

TEST(prepare, sums_behave_as_ever)
{
    expect_render("{{ 'a' + x + 'b' + 'c' }}", "{\"x\":\"-\"}", "a-bc");
    expect_render("{{ 1 + 2 + x }}", "{\"x\":4}", "7");
    expect_render("{{ x + [2] }}", "{\"x\":[1]}", "[1, 2]");
    expect_render("{{ 'a' + x }}", "{\"x\":1}", NULL);
    expect_render("{{ x + 'a' + 'b' }}", "{\"x\":1}", NULL);
    expect_render("{{ 'a' + ('b' + x) }}", "{\"x\":\"c\"}", "abc");
    expect_render("{{ 'a'+'b'+'c'+'d'+'e'+'f'+'g'+'h'+'i'+'j'+'k'+'l'+'m'+'n'+'o'+'p'+'q'+x }}",
                  "{\"x\":\"r\"}", "abcdefghijklmnopqr");
    expect_render("{{ 'a' + nope }}", "{}", NULL);
}

TEST(prepare, conditions_behave_as_ever)
{
    expect_render("{{ x == 'a' }}{{ y == 'a' }}{{ nope == 'a' }}{{ nope != 'a' }}",
                  "{\"x\":\"a\",\"y\":1}", "TrueFalseFalseTrue");
    expect_render("{% if x.a == 'b' and x.l | length %}y{% endif %}",
                  "{\"x\":{\"a\":\"b\",\"l\":[0]}}", "y");
    expect_render("{{ x.a.b is defined }}", "{\"x\":{\"a\":{}}}", "False");
    expect_render("{{ x | length }}", "{\"x\":5}", NULL);
}
