/* Answers of engines to a query for one token's logprob, in pieces of any size. */
#include <string.h>

#include "testing.h"
#include "worker/engine/wire/score_answer.h"
#include "worker/engine/wire/scoring.h"

static const struct field table[] = {
    FIELD("tokens[]", FIELD_SCALAR, SCORE_FIELD_TOKEN),
    FIELD("e[]", FIELD_MARK, SCORE_FIELD_ENTRY),
    FIELD("e[].id", FIELD_SCALAR, SCORE_FIELD_ID),
    FIELD("e[].logprob", FIELD_SCALAR, SCORE_FIELD_LOGPROB),
    FIELD("e[].top[]", FIELD_MARK, SCORE_FIELD_TOP),
    FIELD("e[].top[].id", FIELD_SCALAR, SCORE_FIELD_TOP_ID),
    FIELD("e[].top[].logprob", FIELD_SCALAR, SCORE_FIELD_TOP_LOGPROB),
};

struct score_case {
    const char *text;
    int rc;
    float logprob;
    size_t tops;
};

/* The query is for the logprob of 7, with 9 forced. */
static const struct score_case score_cases[] = {
    {"{\"tokens\":[9],\"e\":[{\"id\":9,\"top\":[{\"id\":5,\"logprob\":-0.5},{\"logprob\":-1.5,"
     "\"x\":[{\"id\":8}],\"id\":7}],\"logprob\":-3}]} \n",
     SCORE_FOUND, -1.5F, 2},
    {"{\"tokens\":[9],\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[{\"id\":7,\"logprob\":-1}]}]}",
     SCORE_FOUND, -3, 1},
    {"{\"tokens\":[9],\"e\":[{\"id\":9,\"top\":[null,5,{\"id\":7},{\"id\":7,\"logprob\":-2}]}]}",
     SCORE_FOUND, -2, 4},
    {"{\"tokens\":[9],\"e\":[{\"id\":9,\"top\":[{\"id\":7,\"logprob\":-2}]},{\"id\":7,\"logprob\":"
     "-1,\"top\":[{\"id\":7,\"logprob\":-1}]}]}",
     SCORE_FOUND, -2, 1},
    {"{\"tokens\":[9],\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[]}]}", SCORE_WIDER, 0, 0},
    {"{\"tokens\":[9],\"e\":[{\"id\":9,\"top\":[{\"id\":8,\"logprob\":-2}]}]}", SCORE_WIDER, 0, 1},
    {"{\"tokens\":[9],\"e\":[{\"id\":9,\"top\":[{\"id\":7,\"logprob\":null}]}]}", SCORE_WIDER, 0,
     1},
    {"{\"tokens\":[9]}", SCORE_WIDER, 0, 0},
    {"{\"tokens\":[8],\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[{\"id\":7}]}]}", SCORE_NONE, 0, 1},
    {"{\"tokens\":[9,9],\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[{\"id\":7}]}]}", SCORE_NONE, 0, 1},
    {"{\"tokens\":9,\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[{\"id\":7}]}]}", SCORE_NONE, 0, 1},
    {"{\"tokens\":[9],\"e\":[{\"id\":7,\"logprob\":-3e38,\"top\":[{\"id\":7}]}]}", SCORE_NONE, 0,
     1},
    {"{\"tokens\":[9],\"e\":[{\"id\":7,\"logprob\":1e39,\"top\":[{\"id\":7}]}]}", SCORE_NONE, 0, 1},
    {"{\"tokens\":[9],\"e\":[{\"id\":7,\"logprob\":-3,\"top\":[{\"id\":7}]}", SCORE_NONE, 0, 0},
};

TEST(score_answer, is_the_same_in_pieces_of_any_size)
{
    struct score_answer a = {0};
    struct score_ask ask = {.id = 7, .force = 9, .n_probs = 4};
    struct err e;

    for (size_t i = 0; i < sizeof(score_cases) / sizeof(*score_cases); i++) {
        const struct score_case *c = &score_cases[i];

        for (size_t step = 1; step <= strlen(c->text); step += step == 1 ? 1 : 13) {
            float told = 0;
            struct str text = str_cstr(c->text);

            score_answer_begin(&a, &ask, table, sizeof(table) / sizeof(*table));
            for (size_t at = 0; at < text.len; at += step)
                cr_assert_eq(score_answer_feed(&a, str_sub(text, at, step), &e), 0, "%s", c->text);
            cr_expect_eq(score_answer_own(&a, &told), c->rc, "%s", c->text);
            if (c->rc == SCORE_FOUND)
                cr_expect_eq(told, c->logprob, "%s: %g", c->text, (double)told);
            cr_expect_eq(a.tops.n, c->tops, "%s: %zu", c->text, a.tops.n);
        }
    }
    score_answer_done(&a);
}

TEST(score_answer, is_no_more_than_such_an_answer_can_be)
{
    struct score_answer a = {0};
    struct score_ask ask = {.id = 7, .force = 9, .n_probs = 4};
    struct str pad = STR("                                                                ");
    struct err e = {0};
    size_t fed = 0;

    score_answer_begin(&a, &ask, table, sizeof(table) / sizeof(*table));
    while (score_answer_feed(&a, pad, &e) == 0)
        fed += pad.len;
    cr_assert(fed >= 1 << 20 && fed < 2 << 20, "%zu", fed);
    cr_assert(strstr(e.text, "more than") != NULL, "%s", e.text);
    score_answer_begin(&a, &ask, table, sizeof(table) / sizeof(*table));
    cr_assert_eq(score_answer_feed(&a, STR("{\"e\":[{\"top\":["), &e), 0);
    for (size_t i = 0; i < 5000; i++)
        cr_assert_eq(score_answer_feed(&a, i ? STR(",{}") : STR("{}"), &e), 0);
    cr_assert_lt(a.tops.n, 1100, "what nobody asked for is not kept");
    cr_assert_eq(score_answer_feed(&a, STR("]}]}x"), &e), -1);
    score_answer_begin(&a, &ask, table, sizeof(table) / sizeof(*table));
    cr_assert_eq(score_answer_feed(&a, STR("{}"), &e), 0);
    cr_assert_eq(score_answer_feed(&a, STR("x"), &e), -1, "bytes behind it");
    score_answer_done(&a);
}
