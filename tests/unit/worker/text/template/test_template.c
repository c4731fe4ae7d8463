#include "worker/text/template/template.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "file_text.h"
#include "testing.h"

static const struct json *read_json(struct arena *a, const char *path)
{
    struct str text = file_text(a, path);
    const struct json *ret = NULL;

    if (text.p)
        cr_assert_eq(json_parse(a, text, &ret, NULL), 0, "%s", path);
    return ret;
}

/* Removes the next line from *rest. */
static bool next_line(struct str *rest, struct str *line)
{
    if (rest->len == 0)
        return false;
    *line = str_cut(rest, '\n');
    return true;
}

static struct tm noon(void)
{
    return (struct tm){
        .tm_year = 125, .tm_mon = 6, .tm_mday = 10, .tm_hour = 12, .tm_wday = 4, .tm_yday = 190};
}

struct outcome {
    struct buf text;
    struct template_error error;
    int rc;
};

/* Renders a template that compiled; one that did not keeps the error in *ret. */
static void render_compiled(const struct template *t, struct arena *a, const struct json *context,
                            struct template_options *o, struct outcome *ret)
{
    struct tm now = noon();
    struct err e;

    if (!t)
        return;
    o->now = &now;
    o->error = &ret->error;
    ret->rc = template_render(t, a, context, o, &ret->text, &e);
}

static struct template *compile(struct str source, struct outcome *ret)
{
    struct template *t = NULL;
    struct err e;

    *ret = (struct outcome){0};
    ret->rc = template_compile(source, "test", &t, &ret->error, &e);
    return t;
}

static void render(struct str source, struct arena *a, const struct json *context,
                   struct template_options *o, struct outcome *ret)
{
    struct template *t = compile(source, ret);

    render_compiled(t, a, context, o, ret);
    template_free(t);
}

/* Checks one line of a corpus: the result is the expected text, or any error if one is expected. */
static bool line_holds(struct arena *a, const struct json *line, const struct json *dflt)
{
    const struct json *context = json_get(line, "context");
    struct template_options o = {0};
    struct outcome got;
    bool ok;

    if (!json_is(context, JSON_OBJECT))
        context = dflt;
    render(json_string(json_get(line, "template")), a, context, &o, &got);
    if (json_get(line, "error"))
        ok = got.rc != 0;
    else
        ok = got.rc == 0 && str_eq(buf_str(&got.text), json_string(json_get(line, "expected")));
    if (!ok)
        (void)fprintf(stderr, "FAIL %.*s\n  got %.*s\n",
                      (int)json_string(json_get(line, "template")).len,
                      json_string(json_get(line, "template")).p, (int)got.text.len,
                      got.text.p ? got.text.p : "");
    buf_done(&got.text);
    return ok;
}

static void run_lines(const char *cases, const char *context)
{
    struct arena files = {0};
    struct str rest = file_text(&files, cases), line;
    const struct json *dflt = read_json(&files, context);
    unsigned n = 0, bad = 0;

    if (!rest.p || !dflt) {
        arena_done(&files);
        cr_skip_test("%s is not there", cases);
    }
    while (next_line(&rest, &line)) {
        struct arena a = {0};
        const struct json *unit;

        cr_assert_eq(json_parse(&a, line, &unit, NULL), 0);
        if (!json_is_true(json_get(unit, "unstable"))) {
            bad += !line_holds(&a, unit, dflt);
            n++;
        }
        arena_done(&a);
    }
    arena_done(&files);
    cr_assert_eq(bad, 0, "%u of %u differ", bad, n);
    cr_assert_gt(n, 200);
}

TEST(template, cases_equal_jinja2)
{
    run_lines(RG_TEST_DATA "/template/cases.jsonl", RG_TEST_DATA "/template/context.json");
}

TEST(template, shared_units_equal_jinja2)
{
    run_lines(RG_SHARED "/data/corpus/jinja_units.jsonl",
              RG_SHARED "/data/corpus/jinja_units.ctx.json");
}

/* --- the corpus of real templates --- */

static void put(struct json *o, struct json key, struct json value)
{
    for (uint32_t i = 0; i < o->n; i++) {
        if (str_eq(json_text(&o->members[i].key), json_text(&key))) {
            o->members[i].value = value;
            return;
        }
    }
    o->members[o->n].key = key;
    o->members[o->n++].value = value;
}

static void put_all(struct json *o, const struct json *from)
{
    for (uint32_t i = 0; json_is(from, JSON_OBJECT) && i < from->n; i++)
        put(o, from->members[i].key, from->members[i].value);
}

/* Makes the context: special tokens, the constant values, the conversation, and the kwargs. */
static struct json corpus_context(struct arena *a, const struct json *line,
                                  const struct json *convs, const struct json *special)
{
    struct json o = {.kind = JSON_OBJECT}, none = {.kind = JSON_NULL};

    o.members = arena_alloc(a, 200 * sizeof(*o.members));
    put_all(&o, special);
    put(&o, json_make_string(STR("tools")), none);
    put(&o, json_make_string(STR("documents")), none);
    put(&o, json_make_string(STR("add_generation_prompt")), json_make_bool(false));
    put_all(&o, json_get_str(convs, json_string(json_get(line, "conv"))));
    put_all(&o, json_get(line, "kwargs"));
    return o;
}

static bool corpus_line_holds(struct arena *a, const struct template *t, struct outcome got,
                              const struct json *line, const struct json *context)
{
    const struct json *go_on = json_get(json_get(line, "kwargs"), "continue_final_message");
    struct template_options o = {.continue_final_message =
                                     json_is_true(go_on) || json_is(go_on, JSON_STRING),
                                 .continue_field = json_string(go_on)};
    struct str error = json_string(json_get(line, "error"));
    bool ok;

    render_compiled(t, a, context, &o, &got);
    if (!error.p)
        ok = got.rc == 0 && str_eq(buf_str(&got.text), json_string(json_get(line, "expected")));
    else
        ok = got.rc != 0 && (!str_eq_c(error, "TemplateError") ||
                             str_eq(got.error.message, json_string(json_get(line, "message"))));
    buf_done(&got.text);
    return ok;
}

static unsigned run_corpus(const char *name, const struct json *convs, const struct json *specials,
                           unsigned *n)
{
    struct arena files = {0};
    char path[512];
    struct str rest, line;
    struct outcome compiled;
    struct template *t;
    unsigned bad = 0;

    (void)snprintf(path, sizeof(path), "%s/data/templates/%s.jinja", RG_SHARED, name);
    t = compile(file_text(&files, path), &compiled);
    (void)snprintf(path, sizeof(path), "%s/data/corpus/render/%s.jsonl", RG_SHARED, name);
    rest = file_text(&files, path);
    while (next_line(&rest, &line)) {
        struct arena a = {0};
        const struct json *c;
        struct json context;

        cr_assert_eq(json_parse(&a, line, &c, NULL), 0);
        context = corpus_context(&a, c, convs, json_get(specials, name));
        bad += !corpus_line_holds(&a, t, compiled, c, &context);
        ++*n;
        arena_done(&a);
    }
    template_free(t);
    arena_done(&files);
    cr_expect_eq(bad, 0, "%s: %u differ", name, bad);
    return bad;
}

TEST(template, real_templates_equal_jinja2)
{
    struct dirent **list = NULL;
    struct arena a = {0};
    const struct json *convs = read_json(&a, RG_SHARED "/data/corpus/render.convs.json");
    const struct json *special = read_json(&a, RG_SHARED "/data/corpus/render.special_tokens.json");
    int files = scandir(RG_SHARED "/data/templates", &list, NULL, alphasort);
    unsigned n = 0, bad = 0;

    if (files <= 0 || !convs || !special) {
        arena_done(&a);
        cr_skip_test("../shared/data is not there");
    }
    for (int i = 0; i < files; i++) {
        char *dot = strstr(list[i]->d_name, ".jinja");

        if (dot) {
            *dot = 0;
            bad += run_corpus(list[i]->d_name, convs, special, &n);
        }
        free(list[i]);
    }
    free(list);
    arena_done(&a);
    cr_assert_eq(bad, 0);
    cr_assert_gt(n, 10000, "only %u renders", n);
}

/* --- budgets and errors --- */

static void expect_error(const char *source, struct template_options o, const char *kind,
                         uint32_t line)
{
    struct arena a = {0};
    struct outcome got;

    render(str_cstr(source), &a, NULL, &o, &got);
    cr_expect_eq(got.rc, -1, "%s", source);
    cr_expect_str_eq(got.error.kind ? got.error.kind : "", kind, "%s", source);
    cr_expect_eq(got.error.line, line, "%s: line %u", source, got.error.line);
    cr_expect_eq(got.text.len, 0);
    buf_done(&got.text);
    arena_done(&a);
}

TEST(template, budgets_end_what_does_not_end)
{
    struct template_options small = {
        .max_steps = 5000, .max_output_bytes = 1000, .max_memory_bytes = 1 << 20, .max_depth = 100};

    expect_error("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
                 small, "BudgetError", 1);
    expect_error("{% for a in range(1000) %}0123456789{% endfor %}", small, "BudgetError", 1);
    expect_error("\n{{ 'x' * 100000000 }}", small, "MemoryError", 2);
    expect_error("{% macro f() %}\n{{ f() }}{% endmacro %}{{ f() }}", small, "RecursionError", 2);
    expect_error("{{ range(100001) }}", small, "OverflowError", 1);
}

TEST(template, errors_name_kind_and_line)
{
    struct template_options o = {0};

    expect_error("\n\n{{ a.b }}", o, "UndefinedError", 3);
    expect_error("{{ raise_exception('no') }}", o, "TemplateError", 1);
    expect_error("a\n{% if %}", o, "TemplateSyntaxError", 2);
    expect_error("{{ 1 + 'a' }}", o, "TypeError", 1);
    expect_error("{{ [].append(1) }}", o, "SecurityError", 1);
    expect_error("{{ 1 | nosuch }}", o, "TemplateAssertionError", 1);
    expect_error("{{ 1 // 0 }}", o, "ZeroDivisionError", 1);
}

TEST(template, mentions_whole_words)
{
    struct template *t;

    cr_assert_eq(template_compile(STR("{% if enable_thinking %}x{% endif %}"), "t", &t, NULL, NULL),
                 0);
    cr_assert(template_mentions(t, "enable_thinking"));
    cr_assert_not(template_mentions(t, "thinking"));
    template_free(t);
}
