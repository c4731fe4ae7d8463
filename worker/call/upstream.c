/* What can be taken from the answer of an engine that is asked with messages (kind openai): the
 * message, and ids and logprobs where the upstream tells them. */

#include "worker/call/upstream.h"

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/call/call_env.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/sampled_answer.h"
#include "worker/engine/engine_result.h"
#include "worker/model/model.h"
#include "worker/request/chat.h"
#include "worker/request/chat_request.h"

/* One token of the answer's logprobs. */
static struct token_logprob logprob_of(const struct json *v)
{
    const struct json *token = json_get(v, "token");
    double d = 0;

    (void)json_to_double(json_get(v, "logprob"), &d);
    return (struct token_logprob){.id = -1, .logprob = (float)d, .bytes = json_string(token)};
}

/* Adds what one event tells. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps)
{
    const struct json *content = json_get(lps, "content");
    struct arena *a = &t->arena;

    if (!t->in.req->logprobs || !json_is(content, JSON_ARRAY) || content->n == 0)
        return;
    sample_lp_reserve(t, r, content->n);
    for (size_t i = 0; i < content->n; i++) {
        const struct json *top = json_get(&content->items[i], "top_logprobs");
        size_t n = json_is(top, JSON_ARRAY) ? top->n : 0;
        struct token_logprob *alt = arena_calloc(a, n, sizeof(*alt));
        struct token_logprob *lp = &r->lp[r->n_lp++];

        *lp = logprob_of(&content->items[i]);
        lp->bytes = arena_str(a, lp->bytes);
        lp->top = alt;
        lp->n_top = (uint32_t)n;
        for (size_t k = 0; k < n; k++) {
            alt[k] = logprob_of(json_at(top, k));
            alt[k].bytes = arena_str(a, alt[k].bytes);
        }
    }
    sample_tell_logprobs(t, r);
}

static uint32_t count_of(const struct json *v)
{
    int64_t n = 0;

    return json_to_i64(v, &n) == 0 && n > 0 ? (uint32_t)MIN_OF(n, INT32_MAX) : 0;
}

/* The prompt's ids where the upstream told only how many there are: our own rendering, when the
 * model is the upstream's and the count is the same. */
static void render_prompt(struct model_call *t, struct sample *r)
{
    struct call_env *env = t->env;
    struct token_vec ids = {0};
    struct err e;

    if (env->model_known && t->in.req->chat->messages &&
        model_prompt(env->model, env->scratch, t->in.req->chat, &ids, &e) == 0 &&
        ids.n == r->prompt_tokens) {
        int32_t *copy = arena_calloc(&t->arena, ids.n + 1, sizeof(*copy));

        memcpy(copy, ids.at, ids.n * sizeof(*copy));
        r->prompt_ids = (struct token_span){copy, ids.n};
    }
    vec_done(&ids);
}

/* The prompt's ids, if the upstream tells them. */
static void take_prompt(struct model_call *t, struct sample *r, struct token_span told)
{
    int32_t *copy = arena_calloc(&t->arena, told.n + 1, sizeof(*copy));

    if (told.n > 0)
        memcpy(copy, told.at, told.n * sizeof(*copy));
    r->prompt_ids = (struct token_span){copy, told.n};
    if (told.n == 0 && r->n_ids > 0)
        render_prompt(t, r);
}

/* What the finished answer tells besides its message. */
void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    const struct json *body = NULL, *choice, *usage;
    struct err e;

    if (json_parse(&t->arena, arena_str(&t->arena, res->openai_body), &body, &e))
        body = NULL; /* the engine layer has read it before */
    choice = json_at(json_get(body, "choices"), 0);
    usage = json_get(body, "usage");
    r->upstream = true;
    r->prompt_tokens = count_of(json_get(usage, "prompt_tokens"));
    r->completion_tokens = MAX_OF(count_of(json_get(usage, "completion_tokens")), r->n_ids);
    if (!r->answer->taken)
        sampled_answer_take(r->answer, json_get(choice, "message"));
    if (r->n_lp == 0)
        upstream_logprobs(t, r, json_get(choice, "logprobs"));
    sampled_answer_take_end(r->answer);
    take_prompt(t, r, res->prompt_ids);
    t->usage.prompt_tokens = MAX_OF(r->prompt_tokens, (uint32_t)r->prompt_ids.n);
    if (json_to_i64(json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"),
                    &r->cached_tokens))
        r->cached_tokens = -1;
    t->usage.reasoning_tokens +=
        count_of(json_get(json_get(usage, "completion_tokens_details"), "reasoning_tokens"));
    r->filtered = str_eq_c(json_string(json_get(choice, "finish_reason")), "content_filter");
}
