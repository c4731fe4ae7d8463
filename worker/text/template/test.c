/* The tests that may follow `is`. select and its family also use them by name. */
#include "worker/text/template/compare.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/filter.h"
#include "worker/text/template/iter.h"
#include "worker/text/template/pystr.h"

#define SIMPLE_TEST(name, expr)                                              \
    static int name(struct template_run *r, struct value v, struct value *a) \
    {                                                                        \
        (void)r;                                                             \
        (void)a;                                                             \
        return (expr);                                                       \
    }

SIMPLE_TEST(t_defined, v.t != V_UNDEF)
SIMPLE_TEST(t_undefined, v.t == V_UNDEF)
SIMPLE_TEST(t_none, v.t == V_NONE)
SIMPLE_TEST(t_boolean, v.t == V_BOOL)
SIMPLE_TEST(t_true, v.t == V_BOOL && v.i)
SIMPLE_TEST(t_false, v.t == V_BOOL && !v.i)
SIMPLE_TEST(t_integer, v.t == V_INT || v.t == V_BIG)
SIMPLE_TEST(t_float, v.t == V_FLOAT)
SIMPLE_TEST(t_number, v_is_number(v))
SIMPLE_TEST(t_string, v.t == V_STR)
SIMPLE_TEST(t_mapping, v.t == V_DICT)
SIMPLE_TEST(t_sequence,
            v.t == V_STR || v_is_seq(v) || v.t == V_DICT || v.t == V_UNDEF || v.t == V_RANGE)
SIMPLE_TEST(t_iterable, v.t == V_STR || v_is_seq(v) || v.t == V_DICT || v.t == V_UNDEF ||
                            v.t == V_RANGE || v.t == V_GEN || v.t == V_VIEW || v.t == V_LOOP)
SIMPLE_TEST(t_callable, v.t == V_CALL || v.t == V_LOOP || v.t == V_JOINER || v.t == V_UNDEF)
SIMPLE_TEST(t_escaped, v.t == V_STR && (v.flags & VF_MARKUP))

/* Reports whether the value is a name in the table. A value that cannot be a key is an error, as in
 * Python. */
static int t_filter(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    if (!value_hashable(r, v))
        return -1;
    return v.t == V_STR && filter_find(v_bytes(v)) != NULL;
}

static int t_test(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    if (!value_hashable(r, v))
        return -1;
    return v.t == V_STR && test_find(v_bytes(v)) != NULL;
}

static int test_case(struct template_run *r, struct value v, const char *what)
{
    v = filter_text(r, v);
    return v.t == V_ERR || !run_spend_chars(r, v_bytes(v)) ? -1 : pystr_is(v_bytes(v), what);
}

static int t_lower(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return test_case(r, v, "lower");
}

static int t_upper(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return test_case(r, v, "upper");
}

/* Reports whether v % n == want. */
static int test_modulo(struct template_run *r, struct value v, struct value n, int64_t want)
{
    struct value m = operator_binary(r, '%', v, n);

    if (m.t == V_ERR)
        return -1;
    return operator_compare(r, OP_EQ, m, v_int(want));
}

static int t_odd(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return test_modulo(r, v, v_int(2), 1);
}

static int t_even(struct template_run *r, struct value v, struct value *a)
{
    (void)a;
    return test_modulo(r, v, v_int(2), 0);
}

static int t_divisibleby(struct template_run *r, struct value v, struct value *a)
{
    return test_modulo(r, v, a[0], 0);
}

#define COMPARE_TEST(name, op)                                               \
    static int name(struct template_run *r, struct value v, struct value *a) \
    {                                                                        \
        return operator_compare(r, op, v, a[0]);                             \
    }

COMPARE_TEST(t_eq, OP_EQ)
COMPARE_TEST(t_ne, OP_NE)
COMPARE_TEST(t_lt, OP_LT)
COMPARE_TEST(t_le, OP_LE)
COMPARE_TEST(t_gt, OP_GT)
COMPARE_TEST(t_ge, OP_GE)
COMPARE_TEST(t_in, OP_IN)

/* Compares identities as far as values have one: containers by address, other values by type and
 * value. */
static int t_sameas(struct template_run *r, struct value v, struct value *a)
{
    if (v.t != a[0].t)
        return 0;
    if (v.t == V_NONE || v.t == V_STR || v_is_number(v))
        return operator_compare(r, OP_EQ, v, a[0]);
    return v.t == V_UNDEF ? v.s == a[0].s : v.list == a[0].list;
}

static const struct test tests[] = {
    {"defined", "", t_defined},     {"string", "", t_string},
    {"none", "", t_none},           {"mapping", "", t_mapping},
    {"iterable", "", t_iterable},   {"undefined", "", t_undefined},
    {"false", "", t_false},         {"true", "", t_true},
    {"sequence", "", t_sequence},   {"boolean", "", t_boolean},
    {"integer", "", t_integer},     {"float", "", t_float},
    {"number", "", t_number},       {"callable", "", t_callable},
    {"escaped", "", t_escaped},     {"filter", "", t_filter},
    {"test", "", t_test},           {"lower", "", t_lower},
    {"upper", "", t_upper},         {"odd", "", t_odd},
    {"even", "", t_even},           {"divisibleby", "num!", t_divisibleby},
    {"sameas", "other!", t_sameas}, {"in", "seq!", t_in},
    {"==", "other!", t_eq},         {"eq", "other!", t_eq},
    {"equalto", "other!", t_eq},    {"!=", "other!", t_ne},
    {"ne", "other!", t_ne},         {">", "other!", t_gt},
    {"gt", "other!", t_gt},         {"greaterthan", "other!", t_gt},
    {">=", "other!", t_ge},         {"ge", "other!", t_ge},
    {"<", "other!", t_lt},          {"lt", "other!", t_lt},
    {"lessthan", "other!", t_lt},   {"<=", "other!", t_le},
    {"le", "other!", t_le},
};

/* Operators have names too ("==", "gt"), for select("gt", 3). */
const struct test *test_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
        if (str_eq_c(name, tests[i].name))
            return &tests[i];
    }
    return NULL;
}
