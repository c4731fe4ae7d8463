/* Consumes the end of an answer whose ids are complete. New ids become text, logprobs and tool
 * calls; for a long answer, a few in each loop iteration. The call continues when all of its
 * answers are consumed. */
#include "common/base/arena.h"
#include "common/base/check.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/answer_rules.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/tokens/tokenizer.h"

/* Returns the id by which the engine ended the turn: the one that the engine names, or an added
 * token at the end, because engines know stop ids that the model's folder does not list. Returns -1
 * if there is none. */
static int32_t ending_id(const struct model_call *t, const struct engine_result *res)
{
    int32_t last = res->ids.n > 0 ? res->ids.at[res->ids.n - 1] : -1;

    if (last < 0 || res->finish != ENGINE_STOP)
        return -1;
    return res->stop_id == last || tokenizer_is_added(model_tokenizer(t->env->model), last) ? last
                                                                                            : -1;
}

/* tokens with their alternatives that are consumed in about a millisecond */
enum { TAKE_MAX = 4096 };

/* Returns how many ids a step consumes: fewer with more listeners, because each takes time. */
static size_t ids_per_step(const struct model_call *t)
{
    size_t n = call_listeners_count(t);

    return TAKE_MAX / MAX_OF(n, (size_t)1);
}

/* Consumes the next n ids. If fewer are left, consumes them and the answer's end. */
static void consume_ids(struct model_call *t, struct sample *r, size_t n)
{
    size_t from = r->answer->fed;
    bool last = r->n_ids - from <= n;

    CHECK(from <= r->n_ids);
    struct token_span next = {r->ids + from, last ? r->n_ids - from : n};

    sample_logprobs(t, r, next, r->logprobs ? r->logprobs + from : NULL,
                    r->top ? r->top + from * r->n_top : NULL, r->n_top);
    if (!last) {
        sampled_answer_feed(r->answer, next);
        return;
    }
    sampled_answer_finish(r->answer, (struct token_span){r->ids, r->n_ids}, r->end_id);
    r->taken = true;
    answer_rules_check(t, r);
}

/* Sends about `most` more of the logprobs that were made, alternatives counted. After the last of
 * them sends the answer's end. */
static void send_rows_step(struct model_call *t, struct sample *r, size_t most)
{
    size_t left = r->n_rows - MIN_OF(r->n_rows, r->n_lp);
    size_t n = left > 0 ? sample_lp_within(r->lp + r->n_lp, left, most) : 0;

    if (n > 0) {
        r->n_lp += n;
        sample_send_logprobs(t, r);
    }
    if (n < left)
        return;
    sampled_answer_end_messages(r->answer);
    r->taken = true;
    answer_rules_check_message(t, r);
}

/* Returns the first long answer that is complete but not consumed, or NULL. */
static struct sample *find_untaken(const struct model_call *t)
{
    for (uint32_t i = 0; i < t->n_samples; i++)
        if (t->samples[i].done && !t->samples[i].taken)
            return &t->samples[i];
    return NULL;
}

int sample_consume_next(struct model_call *t)
{
    struct sample *r;

    while ((r = find_untaken(t))) {
        if (r->upstream)
            send_rows_step(t, r, ids_per_step(t));
        else
            consume_ids(t, r, MAX_OF(ids_per_step(t) / (1 + r->n_top), (size_t)1));
        t->n_taken += r->taken;
        if (model_call_pause(t)) /* tokens that arrived meanwhile are not kept */
            return -1;
    }
    return 0;
}

/* Ids that arrived as deltas were consumed already. New ids of a long answer are consumed in
 * steps. */
void sample_consume_end(struct sample *r, const struct engine_result *res)
{
    struct model_call *t = r->model_call;
    size_t new = r->n_ids - r->answer->fed;

    r->end_id = ending_id(t, res);
    r->top = t->in.req->logprobs ? res->top : NULL;
    r->n_top = r->top ? res->n_top : 0;
    if (new *(1 + r->n_top) <= ids_per_step(t)) {
        consume_ids(t, r, new);
        r->top = NULL;
        t->n_taken++;
        model_call_go_on(t);
        return;
    }
    if (r->top) {
        sample_hold_top(r, res);
        r->top = r->told_top;
    }
    if (t->in.req->logprobs && r->logprobs)
        sample_lp_reserve(t, r, new);
    model_call_go_on(t);
}

void sample_taken(struct sample *r)
{
    struct model_call *t = r->model_call;

    size_t most = ids_per_step(t);

    if (r->n_rows == 0 || sample_lp_within(r->lp, r->n_rows, most) == r->n_rows) {
        send_rows_step(t, r, most);
        t->n_taken++;
    }
    model_call_go_on(t);
}
