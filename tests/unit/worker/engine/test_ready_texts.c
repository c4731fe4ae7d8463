#include "worker/engine/pool/ready_texts.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "testing.h"

static const struct json *parsed(struct arena *a, struct str text)
{
    const struct json *v;

    cr_assert_eq(json_parse(a, text, &v, NULL), 0);
    return v;
}

/* Makes an object with n members "0": 0.5, "1": 0.5, ... */
static const struct json *bias_of(struct arena *a, unsigned n)
{
    struct buf text = {0};
    const struct json *v;

    for (unsigned i = 0; i < n; i++)
        buf_printf(&text, "%s\"%u\":0.5", i ? "," : "{", i);
    buf_puts(&text, "}");
    v = parsed(a, arena_str(a, buf_str(&text)));
    buf_done(&text);
    return v;
}

TEST(ready_texts, what_is_short_is_left_alone)
{
    struct arena a = {0};
    struct ready_texts r = {0};
    const struct sampling s = {.logit_bias = bias_of(&a, 10),
                               .stop = parsed(&a, STR("[\"a\"]")),
                               .grammar = parsed(&a, STR("{\"type\":\"regex\",\"regex\":\"a*\"}"))};

    ready_texts_make(&r, &a, &s, (struct token_span){0});
    cr_expect_eq(r.n, 0);
    cr_expect_eq(ready_texts_of(&r, s.stop), NULL);
    cr_expect_eq(ready_texts_of(NULL, s.stop), NULL);
    cr_expect_eq(ready_texts_of(&r, NULL), NULL);
    arena_done(&a);
}

TEST(ready_texts, a_bias_has_the_banned_ids_once)
{
    static const int32_t ids[] = {3, 70000};
    struct arena a = {0};
    struct ready_texts r = {0};
    const struct sampling s = {.logit_bias = bias_of(&a, 2000)};
    const struct json *got;

    ready_texts_make(&r, &a, &s, (struct token_span){ids, 2});
    cr_assert_neq(ready_texts_of(&r, s.logit_bias), NULL);
    got = parsed(&a, ready_texts_of(&r, s.logit_bias)->text);
    cr_expect_eq(got->n, 2001);
    cr_expect(str_eq_c(json_text(json_get(got, "2")), "0.5"));
    cr_expect(str_eq_c(json_text(json_get(got, "3")), "-100"));
    cr_expect(str_eq_c(json_text(json_get(got, "70000")), "-100"));
    arena_done(&a);
}

TEST(ready_texts, a_schema_is_there_as_a_value_and_as_a_string)
{
    struct arena a = {0};
    struct ready_texts r = {0};
    struct buf text = {0};
    struct sampling s = {0};
    const struct json *schema, *string;
    const struct ready_text *got;

    buf_puts(&text, "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"enum\":[\"\\\"\"");
    for (unsigned i = 0; i < 2000; i++)
        buf_printf(&text, ",\"v%u\"", i);
    buf_puts(&text, "]}}}");
    s.grammar = parsed(&a, arena_str(&a, buf_str(&text)));
    buf_done(&text);
    schema = sampling_schema(&s);
    ready_texts_make(&r, &a, &s, (struct token_span){0});
    got = ready_texts_of(&r, schema);
    cr_assert_neq(got, NULL);
    cr_expect(json_equal(parsed(&a, got->text), schema));
    string = parsed(&a, got->quoted);
    cr_expect(json_equal(parsed(&a, json_string(string)), schema));
    arena_done(&a);
}

TEST(ready_texts, a_grammar_is_a_string)
{
    static char of[10000];
    struct arena a = {0};
    struct ready_texts r = {0};
    struct json_member members[] = {
        {json_make_string(STR("type")), json_make_string(STR("ebnf"))},
        {json_make_string(STR("ebnf")), json_make_string(str_of(of, sizeof(of)))},
        {json_make_string(STR("behind_thought")), json_make_string(STR("short"))}};
    struct json grammar = {.kind = JSON_OBJECT, .n = 3, .members = members};
    const struct sampling s = {.grammar = &grammar};
    const struct ready_text *got;

    memset(of, '"', sizeof(of));
    ready_texts_make(&r, &a, &s, (struct token_span){0});
    cr_expect_eq(r.n, 1);
    got = ready_texts_of(&r, of);
    cr_assert_neq(got, NULL);
    cr_expect(str_eq(json_string(parsed(&a, got->text)), str_of(of, sizeof(of))));
    arena_done(&a);
}
