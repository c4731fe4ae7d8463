/* Takes the answer of an engine that is asked with messages (kind openai): the message, and ids and
 * logprobs if the upstream returns them. */

#include "worker/plane/call/upstream.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/request/chat_logprobs.h"
#include "worker/text/request/chat_request.h"

/* Logprobs are few: an event with many of them is sent in several deltas. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps, size_t n)
{
    if (!t->in.req->logprobs || n == 0)
        return;
    sample_lp_reserve(t, r, n);
    chat_logprobs_read(lps, n, r->lp + r->n_lp, &t->arena);
    r->n_lp += n;
    sample_send_logprobs(t, r);
}

static uint32_t count_of(const struct json *v)
{
    int64_t n = 0;

    return json_to_i64(v, &n) == 0 && n > 0 ? (uint32_t)MIN_OF(n, INT32_MAX) : 0;
}

/* Takes the prompt's ids, if the upstream returns them. Keeps one copy for several answers as long
 * as they are equal. */
static void keep_prompt(struct model_call *t, struct sample *r, struct token_span told)
{
    size_t bytes = told.n * sizeof(*told.at);
    int32_t *copy;

    if (told.n == 0)
        return;
    if (told.n == t->told_prompt.n && memcmp(told.at, t->told_prompt.at, bytes) == 0) {
        r->prompt_ids = t->told_prompt;
        return;
    }
    copy = arena_alloc(&t->arena, bytes);
    memcpy(copy, told.at, bytes);
    r->prompt_ids = (struct token_span){copy, told.n};
    if (t->told_prompt.n == 0)
        t->told_prompt = r->prompt_ids;
}

static void warn_of_halves(struct sample *r, const struct json *replaced)
{
    uint32_t n = count_of(replaced);
    struct buf told = {0};

    if (n == 0)
        return;
    buf_printf(&told, "%u lone surrogate%s of the upstream's text became U+FFFD.", n,
               n == 1 ? "" : "s");
    sampled_answer_warn(r->answer, buf_str(&told));
    buf_done(&told);
}

void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    const struct json *choice = json_at(json_get(res->openai, "choices"), 0);
    const struct json *usage = json_get(res->openai, "usage");

    arena_absorb(&t->arena, res->openai_arena);
    r->upstream = true;
    r->prompt_tokens = count_of(json_get(usage, "prompt_tokens"));
    r->completion_tokens = MAX_OF(count_of(json_get(usage, "completion_tokens")), r->n_ids);
    for (size_t i = 0; json_at(json_get(choice, "messages"), i); i++)
        sampled_answer_feed_message(r->answer, json_at(json_get(choice, "messages"), i));
    r->answer->signed_members = json_get(choice, "signed");
    warn_of_halves(r, json_get(choice, "replaced"));
    keep_prompt(t, r, res->prompt_ids);
    t->usage.prompt_tokens = MAX_OF(r->prompt_tokens, (uint32_t)r->prompt_ids.n);
    if (json_to_i64(json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"),
                    &r->cached_tokens))
        r->cached_tokens = -1;
    t->usage.reasoning_tokens +=
        count_of(json_get(json_get(usage, "completion_tokens_details"), "reasoning_tokens"));
    if (r->n_lp == 0 && t->in.req->logprobs && res->rows && res->rows->n > 0) {
        arena_absorb(&t->arena, &res->rows->arena);
        r->lp = res->rows->at;
        r->n_rows = r->cap_lp = res->rows->n;
    }
    r->filtered = json_is_true(json_get(choice, "filtered"));
}
