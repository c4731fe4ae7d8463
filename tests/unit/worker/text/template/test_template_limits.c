/* A chat template is untrusted. For any template, compiling and rendering end soon, within the
 * memory budget, with an error that names the line, and can be cancelled. */
#include "worker/text/template/template.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "common/base/cancel.h"
#include "testing.h"

/* Limits the process's memory, so that uncounted memory ends the process. */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit r = {(rlim_t)3 << 30, (rlim_t)3 << 30};

    cr_assert_eq(setrlimit(RLIMIT_AS, &r), 0);
#endif
}

/* If true, another thread cancels the work after compiling. */
static bool cancels;
static atomic_bool cancelled;

static void *cancel(void *arg)
{
    (void)arg;
    atomic_store(&cancelled, true);
    return NULL;
}

static int render(struct str source, struct template_options o, struct template_error *error)
{
    struct template *t = NULL;
    struct arena a = {0};
    struct buf out = {0};
    struct tm now = {.tm_year = 125, .tm_mday = 1};
    struct err e;
    int rc = template_compile(source, "test", &t, error, &e);

    o.error = error;
    o.now = &now;
    pthread_t other;

    cancel_flag = &cancelled;
    if (cancels)
        cr_assert_eq(pthread_create(&other, NULL, cancel, NULL), 0);
    if (rc == 0)
        rc = template_render(t, &a, NULL, &o, &out, &e);
    if (cancels)
        cr_assert_eq(pthread_join(other, NULL), 0);
    atomic_store(&cancelled, false);
    cancel_flag = NULL;
    cr_expect(rc == 0 || out.len == 0);
    template_free(t);
    buf_done(&out);
    arena_done(&a);
    return rc;
}

/* Checks that the template ends with one of `kinds`, separated by blanks. The error is in its
 * second line. */
static void expect_end(const char *text, struct template_options o, const char *kinds)
{
    struct template_error error = {0};
    struct buf source = {0};
    int rc;

    buf_printf(&source, "{%% set x = 1 %%}\n%s", text);
    rc = render(buf_str(&source), o, &error);
    cr_expect_eq(rc, -1, "%s", text);
    cr_expect(error.kind && strstr(kinds, error.kind), "%s: %s", text,
              error.kind ? error.kind : "no error");
    cr_expect_eq(error.line, 2, "%s: line %u", text, error.line);
    buf_done(&source);
}

/* {{ "" OPERAND OPERAND ... }} */
static struct str chain(struct buf *b, const char *operand, unsigned n)
{
    buf_clear(b);
    buf_puts(b, "\n{{ a");
    for (unsigned i = 0; i < n; i++)
        buf_puts(b, operand);
    buf_puts(b, " }}");
    return buf_str(b);
}

TEST(template_limits, high_expressions_are_refused_when_they_are_compiled)
{
    static const char *const operands[] = {
        "+a",          ".b",    "[0]",   "|list",    "()",   " and a", " or a",        "*a", "**a",
        " is defined", "|d(1)", " if a", "~(a+a)+a", "[a:]", ".b()",   " if a else a", "/1", "%1"};
    struct template_options o = {0};
    struct buf b = {0};

    for (size_t i = 0; i < ARRAY_LEN(operands); i++) {
        struct template_error error = {0};

        cr_expect_eq(render(chain(&b, operands[i], 17000), o, &error), -1, "%s", operands[i]);
        cr_expect_str_eq(error.kind ? error.kind : "", "TemplateSyntaxError", "%s", operands[i]);
        cr_expect_eq(error.line, 2, "%s: line %u", operands[i], error.line);
    }
    buf_done(&b);
}

TEST(template_limits, sums_of_many_operands_still_work)
{
    struct template_error error = {0};
    struct buf b = {0};

    struct buf whole = {0};

    buf_puts(&whole, "{% set a = 'x' %}");
    buf_add_str(&whole, chain(&b, "+a", 900));
    cr_expect_eq(render(buf_str(&whole), (struct template_options){0}, &error), 0, "%s",
                 error.text);
    buf_done(&whole);
    buf_done(&b);
}

/* A list of lists that contains one list 10^12 times; twice, so that they differ. */
#define SHARED                                                                                \
    "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}" \
    "{% set n.b = [n.b, n.b] %}{% endfor %}"
#define SHARED_TUPLES                                                                           \
    "{% set n = namespace(a=(1,), b=(1,)) %}{% for i in range(40) %}{% set n.a = (n.a, n.a) %}" \
    "{% set n.b = (n.b, n.b) %}{% endfor %}"
#define SHARED_DICTS                                                                              \
    "{% set n = namespace(a={}, b={}) %}{% for i in range(40) %}{% set n.a = {1: n.a, 2: n.a} %}" \
    "{% set n.b = {1: n.b, 2: n.b} %}{% endfor %}"

TEST(template_limits, shared_values_end_at_the_budget)
{
    static const char *const ends[] = {
        SHARED "{{ n.a == n.b }}",
        SHARED "{{ n.a != n.b }}",
        SHARED "{{ n.a < n.b }}",
        SHARED "{{ n.a in [n.b] }}",
        SHARED "{{ [n.a].index(n.b) }}",
        SHARED "{{ [n.a].count(n.b) }}",
        SHARED "{{ n.a is eq(n.b) }}",
        SHARED "{{ [n.a, n.b]|sort }}",
        SHARED "{{ [n.a, n.b]|min }}",
        SHARED "{{ [n.a, n.b]|groupby('0')|list }}",
        SHARED "{{ n.a }}",
        SHARED "{{ n.a|string|length }}",
        SHARED "{{ n.a|tojson }}",
        SHARED "{{ n.a|tojson(indent=2) }}",
        SHARED "{{ n.a|pprint }}",
        SHARED "{{ n }}",
        SHARED "{{ n.a ~ '' }}",
        SHARED "{{ '%s' % (n.a,) }}",
        SHARED "{{ '{}'.format(n.a) }}",
        SHARED "{{ [n.a]|join }}",
        SHARED "{{ n.a|urlencode }}",
        SHARED "{{ {'k': n.a}|xmlattr }}",
        SHARED "{% for i in [1, 2] %}{{ loop.changed(n.a if i == 1 else n.b) }}{% endfor %}",
        SHARED_TUPLES "{{ {n.a: 1}[n.b] }}",
        SHARED_TUPLES "{{ {n.a: 1}.get(n.b) }}",
        SHARED_TUPLES "{{ {n.a: 1} == {n.b: 1} }}",
        SHARED_TUPLES "{{ [n.a, n.b]|unique|list }}",
        SHARED_DICTS "{{ n.a == n.b }}",
        SHARED_DICTS "{{ n.a }}",
        SHARED_DICTS "{{ n.a|tojson(sort_keys=true) }}",
        SHARED_DICTS "{{ n.a|pprint }}",
    };
    struct template_options o = {.max_steps = 500000, .max_memory_bytes = 64 << 20};

    limit_memory();
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        expect_end(ends[i], o, "BudgetError MemoryError");
}

/* Small templates with large results. */
static const char *const long_results[] = {
    "{% set s = 'x' * 1000000 %}{{ '{0}' * 100000 }}{{ ('{0}' * 100000).format(s) }}",
    "{% set s = 'x' * 1000000 %}{{ ('%(a)s' * 100000) % {'a': s} }}",
    "{% set s = 'x' * 1000000 %}{{ [s] * 100000 }}",
    "{% set s = 'x' * 1000000 %}{{ ([s] * 100000)|join }}",
    "{% set s = 'x' * 1000000 %}{{ (['']  * 100000)|join(s) }}",
    "{% set s = 'x' * 1000000 %}{{ s.join([''] * 100000) }}",
    "{% set s = 'x' * 1000000 %}{{ ([s] * 100000)|tojson }}",
    "{% set s = ' ' * 1000000 %}{{ ([1] * 100000)|tojson(indent=s) }}",
    "{% set s = 'x' * 1000000 %}{{ ([s] * 100000)|sort }}",
    "{% set s = 'X' * 1000000 %}{{ ([s] * 100000)|map('lower')|list }}",
    "{% set s = 'X' * 1000000 %}{{ ([s] * 100000)|unique|list }}",
    "{% set s = 'X' * 1000000 %}{{ ([s] * 100000)|min }}",
    "{% set s = 'X' * 1000000 %}{{ ([s] * 100000)|groupby('0')|list }}",
    "{% set s = 'x' * 1000000 %}{{ ([('a', s)] * 100000)|urlencode }}",
    "{% set s = '&' * 100000000 %}{{ s|e }}",
    "{% set s = '\\0' * 100000000 %}{{ s|pprint }}",
    "{% set s = '\\0' * 100000000 %}{{ s|tojson }}",
    "{% set s = '\\0' * 100000000 %}{{ [s] }}",
    "{{ 'x'.center(4611686018427387904) }}",
    "{{ 'x'.ljust(9223372036854775807) }}",
    "{{ '1'.zfill(4611686018427387904, ) }}",
    "{{ ('\\t' * 1000000).expandtabs(10000) }}",
    "{{ ('a' * 1000000).replace('', 'x' * 1000000) }}",
    "{{ range(2)|slice(1000000000)|list }}",
    "{{ [1]|batch(1000000000, 0)|list }}",
    "{% for i in [1]|slice(1000000000) %}{% endfor %}",
    "{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor "
    "%}",
    "{% set n = namespace(s=[1]) %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor "
    "%}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% set t = s ~ i %}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s.find('y') }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s.rfind('y') }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s|length }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s[999999] }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ 'y' in s }}{% endfor %}",
    "{% set s = ' ' * 1000000 %}{% for i in range(100000) %}{{ s.strip() == '' }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s.isalpha() }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s|wordcount }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{{ s.count('x') }}{% endfor %}",
    "{% set s = 'x' * 1000000 %}{% set t = 'x' * 999999 ~ 'x' %}"
    "{% for i in range(100000) %}{{ s == t }}{% endfor %}",
    "{% set s = range(100000)|list %}{% set t = range(100000)|list %}"
    "{% for i in s %}{{ s == t }}{% endfor %}",
    "{% set d = dict(range(100000)|batch(2)) %}{{ d }}",
    "{{ 7 ** 20000 % 3 }}",
    "{% set n = namespace(x=10 ** 8000) %}{% for i in range(100000) %}{% set y = n.x // 7 %}"
    "{% endfor %}",
    "{% for i in range(100000) %}{{ '%.1000000d' % 7 }}{% endfor %}",
    "{% for i in range(100000) %}{{ '%1000000d' % 7 }}{% endfor %}",
    "{{ strftime_now('%A' * 1000000) }}",
    "{{ ('ab' * 1000000).strip('bc' * 500000 ~ 'a') }}",
};

TEST(template_limits, long_results_end_at_the_budget)
{
    struct template_options o = {.max_steps = 1000000, .max_memory_bytes = 64 << 20};

    limit_memory();
    for (size_t i = 0; i < ARRAY_LEN(long_results); i++)
        expect_end(long_results[i], o,
                   "BudgetError MemoryError OverflowError ValueError TypeError");
}

TEST(template_limits, deep_values_and_generators_end_at_the_budget)
{
    static const char *const ends[] = {
        "{% set n = namespace(a=(1,)) %}{% for i in range(100000) %}{% set n.a = (n.a,) %}"
        "{% endfor %}{{ {n.a: 1} }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% endfor %}{{ n.a }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% endfor %}{{ n.a|tojson }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% endfor %}{{ n.a|pprint }}",
        "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% set n.b = [n.b] %}{% endfor %}{{ n.a == n.b }}",
        "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(100000) %}{% set n.a = [n.a] %}"
        "{% set n.b = [n.b] %}{% endfor %}{{ n.a < n.b }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}"
        "{% set n.a = n.a|map('string') %}{% endfor %}{{ n.a|list }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}"
        "{% set n.a = n.a|select %}{% endfor %}{{ n.a|first }}",
        "{% set n = namespace(a=[1]) %}{% for i in range(100000) %}"
        "{% set n.a = n.a|unique %}{% endfor %}{% for x in n.a %}{% endfor %}",
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
        "{% set n = namespace() %}{% set n.n = [n] %}{{ n.n }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro f() %}{{ caller() }}{% call f() %}{% endcall %}{% endmacro %}"
        "{% call f() %}{% endcall %}",
    };
    struct template_options o = {0};

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        expect_end(ends[i], o, "RecursionError");
}

/* Work on megabytes, which would take minutes if it could not be cancelled. */
TEST(template_limits, work_on_long_texts_stops_when_it_is_cancelled)
{
    static const char *const slow[] = {
        "{% for i in range(100000) %}{{ s.find('y') }}{% endfor %}",
        "{% for i in range(100000) %}{{ s|wordwrap(1) }}{% endfor %}",
        "{% for i in range(100000) %}{{ ('<' ~ s)|striptags }}{% endfor %}",
        "{% for i in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for k in range(100000) %}{% if s == 'a' %}{% endif %}"
        "{% endfor %}{% endfor %}",
    };
    struct template_options o = {.max_steps = UINT64_MAX / 2};

    cancels = true;
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
        struct template_error error = {0};
        struct buf source = {0};

        buf_printf(&source, "{%% set s = 'x' * 4000000 %%}%s", slow[i]);
        cr_expect_eq(render(buf_str(&source), o, &error), -1, "%s", slow[i]);
        cr_expect_str_eq(error.kind ? error.kind : "", "Cancelled", "%s", slow[i]);
        buf_done(&source);
    }
    cancels = false;
}

/* Loops that search the rest of the text in every round would take hours at this size. ASan finds
 * other faults. */
#ifdef __SANITIZE_ADDRESS__
#define MILLION "100000"
#else
#define MILLION "1000000"
#endif

TEST(template_limits, hostile_texts_are_read_once)
{
    static const char *const sources[] = {
        "{{ ('xx' * " MILLION ")|wordwrap(1)|length }}",
        "{{ ('x ' * " MILLION ")|wordwrap(1)|length }}",
        "{{ ('<<' * " MILLION ")|striptags|length }}",
        "{{ ('<!--' * " MILLION ")|striptags|length }}",
        "{{ ('ab' * " MILLION ").rfind('b' * 1000) }}",
        "{{ ('%." MILLION "d' % 7)|length }}",
        "{{ ('a' * " MILLION ").rsplit('a')|length }}",
    };

    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct template_error error = {0};

        cr_expect_eq(render(str_cstr(sources[i]), (struct template_options){0}, &error), 0,
                     "%s: %s", sources[i], error.kind ? error.kind : "");
    }
}

TEST(template_limits, large_sources_are_refused_or_compiled)
{
    struct template_error error = {0};
    struct buf b = {0};

    limit_memory();
    for (size_t i = 0; i < (1 << 20) + 1; i++)
        buf_add_c(&b, 'x');
    cr_expect_eq(render(buf_str(&b), (struct template_options){0}, &error), -1);
    cr_expect(error.kind && strstr(error.text, "1 MiB"), "%s", error.text);

    buf_clear(&b);
    for (unsigned i = 0; b.len < 1000000; i++)
        buf_printf(&b, "{%% if a%u %%}{%% set b%u = 1 %%}{%% endif %%}\n", i, i);
    error = (struct template_error){0};
    cr_expect_eq(render(buf_str(&b), (struct template_options){0}, &error), -1);
    cr_expect_str_eq(error.kind ? error.kind : "", "BudgetError");
    cr_expect_gt(error.line, 1);

    buf_clear(&b);
    buf_puts(&b, "{{ a|");
    while (b.len < 1000000)
        buf_puts(&b, "a.");
    buf_puts(&b, "a }}");
    error = (struct template_error){0};
    cr_expect_eq(render(buf_str(&b), (struct template_options){0}, &error), -1);
    cr_expect_str_eq(error.kind ? error.kind : "", "TemplateSyntaxError");

    buf_clear(&b);
    buf_puts(&b, "{{ f(");
    for (unsigned i = 0; b.len < 1000000; i++)
        buf_printf(&b, "k%u=1,", i);
    buf_puts(&b, ") }}");
    error = (struct template_error){0};
    cr_expect_eq(render(buf_str(&b), (struct template_options){0}, &error), -1);
    buf_done(&b);
}
