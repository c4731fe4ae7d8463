#include <math.h>

#include "testing.h"
#include "worker/engine/wire/prompt_scores.h"

static const int32_t IDS[] = {5, 6, 7};
static const char SGLANG[] =
    "{\"text\":\"\",\"output_ids\":[],\"meta_info\":{\"prompt_tokens\":3,\"input_token_logprobs\":"
    "[[null,5,null],[-0.5,6,null],[-2,7,null]],\"input_top_logprobs\":"
    "[null,[[-3,1,null],[-0.5,6,null]],[[-0.25,9,null]]]}}";
static const char VLLM[] =
    "{\"prompt_logprobs\":[null,{\"6\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"}\"},"
    "\"1\":{\"logprob\":-3,\"rank\":2}},{\"7\":{\"logprob\":-2,\"rank\":40},"
    "\"9\":{\"logprob\":-0.25,\"rank\":1}}]}";

static int take(struct prompt_scores *p, const char *text, size_t piece, struct err *e)
{
    struct str all = str_cstr(text);

    for (size_t at = 0; at < all.len; at += piece)
        if (prompt_scores_feed(p, str_sub(all, at, piece), e))
            return -1;
    return prompt_scores_end(p, e);
}

/* Checks the result for all ways to cut the bytes. */
static void expect(enum scorer_kind kind, const char *text, const int32_t *tops)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct prompt_scores p;
        struct err e = {0};

        prompt_scores_init(&p, kind, (struct token_span){IDS, 3}, 2);
        cr_assert_eq(take(&p, text, piece, &e), 0, "%s", e.text);
        cr_assert(p.logprobs.at[0] == 0 && p.logprobs.at[1] == -0.5f && p.logprobs.at[2] == -2);
        cr_assert(p.top_ids.n == 6 && memcmp(p.top_ids.at, tops, 6 * sizeof(*tops)) == 0);
        cr_assert(isinf(p.top_logprobs.at[0]) && p.top_logprobs.at[2] == -0.5f);
        prompt_scores_done(&p);
    }
}

TEST(prompt_scores, sglang)
{
    static const int32_t tops[] = {-1, -1, 6, 1, 9, -1};

    expect(SCORER_SGLANG, SGLANG, tops);
}

TEST(prompt_scores, vllm)
{
    static const int32_t tops[] = {-1, -1, 6, 1, 9, 7};

    expect(SCORER_VLLM, VLLM, tops);
}

TEST(prompt_scores, what_does_not_fit)
{
    static const struct {
        enum scorer_kind kind;
        uint32_t top_k;
        const char *text, *why;
    } all[] = {
        {SCORER_SGLANG, 0, "{}", "another number"},
        {SCORER_SGLANG, 0, "{\"meta_info\":", "inside its JSON"},
        {SCORER_SGLANG, 0, "{\"meta_info\":{\"input_token_logprobs\":null}}", "another number"},
        {SCORER_SGLANG, 0, "{\"meta_info\":{\"input_token_logprobs\":[[null,5],[-1,6],[-1,8]]}}",
         "another prompt"},
        {SCORER_SGLANG, 0, "{\"meta_info\":{\"input_token_logprobs\":[[null,5],[null,6],[-1,7]]}}",
         "missing"},
        {SCORER_SGLANG, 1, "{\"meta_info\":{\"input_token_logprobs\":[[null,5],[-1,6],[-1,7]]}}",
         "alternatives"},
        {SCORER_VLLM, 0, "{\"prompt_logprobs\":null}", "alternatives"},
        {SCORER_VLLM, 0, "{\"prompt_logprobs\":[null,{\"6\":{\"logprob\":-1}},{}]}", "missing"},
        {SCORER_VLLM, 0, "{\"prompt_logprobs\":[null,{\"x\":{\"logprob\":-1}},null]}", "missing"},
        {SCORER_VLLM, 0, "{} {}", "behind"},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct prompt_scores p;
        struct err e = {0};

        prompt_scores_init(&p, all[i].kind, (struct token_span){IDS, 3}, all[i].top_k);
        cr_assert_eq(take(&p, all[i].text, 1, &e), -1, "%zu", i);
        cr_assert(strstr(e.text, all[i].why), "%zu: %s", i, e.text);
        prompt_scores_done(&p);
    }
}
