/* Texts of servers that refuse a prompt that is too long, and their figures. */
#include "testing.h"

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/engine/wire/overflow.h"
#include "worker/engine/wire/refusal.h"

static const struct {
    const char *words;
    struct err_overflow figures;
} known[] = {
    /* SGLang */
    {"The input (500 tokens) is longer than the model's context length (300 tokens).",
     {500, 0, 300}},
    {"Requested token count exceeds the model's maximum context length of 300 tokens. You "
     "requested "
     "a total of 350 tokens: 250 tokens from the input messages and 100 tokens for the completion. "
     "Please reduce the number of tokens",
     {250, 100, 300}},
    {"Input length (500 tokens) exceeds the maximum allowed length (300 tokens). Use a shorter "
     "input or enable --allow-auto-truncate.",
     {500, 0, 300}},
    /* vLLM */
    {"This model's maximum context length is 300 tokens. However, your request has 500 input "
     "tokens. Please reduce the length of the input messages.",
     {500, 0, 300}},
    {"This model's maximum context length is 300 tokens. However, you requested 100 output tokens "
     "and your prompt contains at least 201 input tokens, for a total of at least 301 tokens.",
     {201, 100, 300}},
    {"'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
     "length is 4096 tokens and your request has 10 input tokens (5000 > 4096 - 10).",
     {10, 5000, 4096}},
    {"The decoder prompt (length 500) is longer than the maximum model length of 300. Make sure",
     {500, 0, 300}},
    {"You passed 500 input tokens and requested 100 output tokens. However, the model's context "
     "length is only 300 tokens, resulting in a maximum input length of 200 tokens.",
     {500, 100, 300}},
    {"Input length (500) exceeds model's maximum context length (300).", {500, 0, 300}},
    /* llama-server */
    {"request (500 tokens) exceeds the available context size (300 tokens), try increasing it",
     {500, 0, 300}},
    {"the request exceeds the available context size, try increasing it", {0, 0, 0}},
    /* OpenAI */
    {"This model's maximum context length is 300 tokens. However, your messages resulted in 519 "
     "tokens. Please reduce the length of the messages.",
     {519, 0, 300}},
    {"This model's maximum context length is 300 tokens. However, you requested 350 tokens (250 in "
     "the messages, 100 in the completion).",
     {250, 100, 300}},
    {"This model's maximum context length is 300 tokens, however you requested 350 tokens (250 in "
     "your prompt; 100 for the completion).",
     {250, 100, 300}},
    {"Your input exceeds the context window of this model. Please adjust your input and try again.",
     {0, 0, 0}},
    {"Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 509178 "
     "tokens.",
     {509178, 0, 272000}},
    /* others */
    {"prompt is too long: 213462 tokens > 200000 maximum", {213462, 0, 200000}},
    {"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease",
     {188240, 21333, 200000}},
    {"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
     {1196265, 0, 1048575}},
    {"This model's maximum prompt length is 131072 but the request contains 537812 tokens",
     {537812, 0, 131072}},
    {"This endpoint's maximum context length is 300 tokens. However, you requested about 500 "
     "tokens",
     {500, 0, 300}},
    {"Your request exceeded model token limit: 300 (requested: 500)", {500, 0, 300}},
    {"Prompt contains 500 tokens and 0 draft tokens, too large for model with 300 maximum context "
     "length",
     {500, 0, 300}},
    {"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 300. Given: 250 "
     "`inputs` tokens and 100 `max_new_tokens`",
     {250, 100, 300}},
    {"litellm.ContextWindowExceededError: too much", {0, 0, 0}},
    {"no (context_length_exceeded)", {0, 0, 0}},
};

TEST(overflow, words_of_servers_give_their_figures)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct err_overflow o;

        cr_expect(overflow_in_words(str_cstr(known[i].words), true, &o), "%s", known[i].words);
        cr_expect(memcmp(&o, &known[i].figures, sizeof(o)) == 0, "%s: %lu %lu %lu", known[i].words,
                  (unsigned long)o.prompt, (unsigned long)o.answer, (unsigned long)o.max);
    }
}

TEST(overflow, other_words_are_no_overflow)
{
    static const char *const others[] = {
        "temperature must be at most 2",
        "Rate limit reached: Limit 6000 tokens per min, Requested 7000",
        "messages: at least one message is required",
        "Loading model",
        "",
    };
    struct err_overflow o;

    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        cr_expect(!overflow_in_words(str_cstr(others[i]), false, &o), "%s", others[i]);
    cr_expect(overflow_in_words(STR("beyond the context length"), false, &o));
    cr_expect(!overflow_in_words(STR("beyond the context length"), true, &o));
}

static enum err_kind judged(int64_t status, const char *body, struct err *e)
{
    struct arena a = {0};

    *e = (struct err){0};
    (void)refusal_of(status, refusal_text(&a, str_cstr(body)), e);
    arena_done(&a);
    return e->kind;
}

TEST(overflow, codes_and_members_count_whatever_the_message)
{
    struct err e;

    cr_expect_eq(
        judged(400, "{\"error\":{\"message\":\"no\",\"code\":\"context_length_exceeded\"}}", &e),
        ERR_CONTEXT_LENGTH);
    cr_expect_eq(judged(413,
                        "{\"error\":{\"message\":\"no\",\"type\":\"exceed_context_size_error\","
                        "\"code\":400,\"n_prompt_tokens\":500,\"n_ctx\":300}}",
                        &e),
                 ERR_CONTEXT_LENGTH);
    cr_expect(e.overflow.prompt == 500 && e.overflow.max == 300 && err_status(&e) == 400);
    cr_expect(strstr(e.text, "maximum context length is 300 tokens") && strstr(e.text, "500"));
    cr_expect_eq(judged(422, "{\"detail\":\"prompt is too long\"}", &e), ERR_CONTEXT_LENGTH);
    cr_expect_eq(judged(500, "{\"message\":\"prompt is too long\"}", &e), ERR_CONTEXT_LENGTH);
    cr_expect_eq(judged(500, "{\"message\":\"the context size is odd\"}", &e), ERR_ENGINE_INVALID);
    cr_expect_eq(judged(429, "{\"message\":\"prompt is too long\"}", &e), ERR_OVERLOADED);
    cr_expect_eq(judged(400, "{\"error\":{\"message\":\"no\",\"code\":\"invalid_value\"}}", &e),
                 ERR_ENGINE_REFUSED);
}
