/* Logprobs with fewer entries than tokens, and those computed from logits. */
#include <math.h>

#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "testing.h"
#include "worker/engine/wire/entries.h"
#include "worker/engine/wire/processed.h"
#include "worker/engine/wire/scoring.h"

/* Finds the positions of entries with these ids (a text of letters) among the tokens; "-": none. */
static int places(const char *tokens, const char *ids, char *ret)
{
    struct entries e = {0};
    int32_t all[32];
    size_t n = strlen(tokens), m = strlen(ids);
    int rc;

    for (size_t i = 0; i < n; i++)
        all[i] = (unsigned char)tokens[i];
    for (size_t i = 0; i < m; i++)
        *vec_push(&e) = (struct logprob_item){.id = (unsigned char)ids[i]};
    rc = entries_align(&e, all, n);
    for (size_t i = 0; i < m; i++)
        ret[i] = e.at[i].at == ENTRY_NOWHERE ? '-' : (char)('0' + e.at[i].at);
    ret[m] = '\0';
    vec_done(&e);
    return rc;
}

TEST(entries, find_their_tokens)
{
    static const struct {
        const char *tokens, *ids, *want;
    } cases[] = {
        {"abc", "abc", "012"},   {"aXbYc", "abc", "024"},   {"aaa", "aa", "--"},
        {"abcbd", "abc", "012"}, {"abcxb", "abcb", "0124"}, {"", "", ""},
        {"abc", "", ""},         {"exyy", "y", "-"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char got[33];

        cr_assert_eq(places(cases[i].tokens, cases[i].ids, got), 0);
        cr_assert_str_eq(got, cases[i].want, "%s in %s: %s", cases[i].ids, cases[i].tokens, got);
    }
}

TEST(entries, that_do_not_fit)
{
    char got[33];

    cr_assert_lt(places("abc", "abd", got), 0);
    cr_assert_lt(places("abc", "ba", got), 0);
    cr_assert_lt(places("ab", "abc", got), 0);
    cr_assert_lt(places("", "a", got), 0);
}

TEST(entries, computed_or_not)
{
    cr_assert(entry_computed(&(struct logprob_item){.listed = true, .n_top = 1}),
              "certain is 0 as well");
    cr_assert_not(
        entry_computed(&(struct logprob_item){.listed = true, .valued = true, .logprob = -1}));
    cr_assert(entry_computed(&(struct logprob_item){.valued = true, .logprob = -1}));
    cr_assert_not(entry_computed(&(struct logprob_item){.valued = true}));
}

/* Probabilities 1/2, 1/4, 1/8, 1/16, 1/16. */
static int processed(struct sampling s, size_t told, uint32_t vocab, size_t which, double *ret)
{
    static const double p[] = {0.5, 0.25, 0.125, 0.0625, 0.0625};
    struct processed x = {.sampling = &s, .vocab_size = vocab, .own = (float)log(p[which])};
    float v = 0;
    int rc;

    for (size_t i = 0; i < told; i++)
        *vec_push(&x.logprobs) = (float)log(p[i]);
    rc = processed_logprob(&x, &v);
    vec_done(&x.logprobs);
    *ret = exp((double)v);
    return rc;
}

static void is(struct sampling s, size_t which, double want)
{
    double got;

    cr_assert_eq(processed(s, 5, 5, which, &got), SCORE_FOUND);
    cr_assert_float_eq(got, want, 1e-6, "%.9g, not %.9g", got, want);
}

TEST(processed, samplers_in_their_order)
{
    is((struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1}, 1, 0.25);
    is((struct sampling){.temperature = 0.5, .top_p = 1, .repetition_penalty = 1}, 1,
       0.0625 / (0.25 + 0.0625 + 0.015625 + 2 * 0.00390625));
    is((struct sampling){.temperature = 1, .top_p = 1, .top_k = 2, .repetition_penalty = 1}, 1,
       1.0 / 3);
    is((struct sampling){.temperature = 1, .top_p = 0.7, .repetition_penalty = 1}, 0, 2.0 / 3);
    is((struct sampling){.temperature = 1, .top_p = 1, .min_p = 0.2, .repetition_penalty = 1}, 2,
       1.0 / 7);
    is((struct sampling){.temperature = 0, .top_p = 1, .repetition_penalty = 1}, 0, 1);
}

TEST(processed, what_cannot_be_said)
{
    struct sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    struct sampling cut = {.temperature = 1, .top_p = 0.5, .repetition_penalty = 1};
    struct sampling bent = {.temperature = 1, .top_p = 1, .repetition_penalty = 1.1};
    struct sampling first = {.temperature = 1, .top_p = 1, .top_k = 2, .repetition_penalty = 1};
    double got;

    cr_assert_eq(processed(plain, 2, 5, 1, &got), SCORE_WIDER, "a quarter is not told");
    cr_assert_eq(processed(first, 2, 5, 1, &got), SCORE_FOUND, "and cannot be sampled");
    cr_assert_eq(processed(cut, 5, 5, 4, &got), SCORE_NONE, "cut off by top-p");
    cr_assert_eq(processed(bent, 5, 5, 0, &got), SCORE_NONE);
    cr_assert_eq(processed(plain, 0, 5, 0, &got), SCORE_NONE);
}
