/* One of a call's answers from its beginning to its end: how its text is read, and the row of
 * logprobs that the client asked for. What the engine tells is taken by sample_take.c. */
#include "worker/call/sample.h"
#include "common/base/check.h"
#include "common/proc/ids.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_rules.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sampled_answer.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/request/chat_request.h"

/* The id of a tool call to which the model gave none. */
static void fresh_call_id(void *ctx, char *out, size_t size)
{
    struct call_env *env = ctx;

    CHECK(size > 5 + 24);
    if (env->rules->formats.tool == TOOL_MISTRAL) {
        ids_hex(env->ids, out, 5);
        out[9] = '\0'; /* its templates refuse ids of any other length */
        return;
    }
    memcpy(out, "call_", 5);
    ids_hex(env->ids, out + 5, 12);
}

static bool may_call(const struct chat_request *req)
{
    return req->callable && req->callable->n > 0 && req->tool_choice != CHOICE_NONE;
}

/* How the answer is read: only what the request allows is looked for. */
static struct parser_options parser_of(const struct model_call *t)
{
    const struct chat_request *req = t->in.req;

    return (struct parser_options){
        .tool = may_call(req) ? t->env->rules->formats.tool : TOOL_NONE,
        .reasoning = req->chat.messages ? t->env->rules->formats.reasoning : REASONING_NONE,
        .thought = t->thought,
        .call_closes = chat_request_needs_call(req),
        .hold_bytes = req->stream ? PARSER_HOLD_BYTES : SIZE_MAX,
        .tools = req->callable,
    };
}

/* The text side of one sample. */
void sample_begin(struct model_call *t, struct sample *r, uint32_t index)
{
    struct parser_options parser = parser_of(t);
    struct sampled_answer_options o = {
        .index = index,
        .tokenizer = model_tokenizer(t->env->model),
        .stop_ids = t->stop_ids,
        .n_stop_ids = t->n_stop_ids,
        .stops = t->stops,
        .one_call = !t->in.req->parallel_tool_calls,
        .keep_special = may_call(t->in.req) && t->env->rules->formats.tool == TOOL_NONE,
        .parser = parser,
        .sink = &call_listeners_sink,
        .sink_ctx = t,
        .history = t->in.req->chat.messages,
        .fresh_id = fresh_call_id,
        .fresh_ctx = t->env,
    };

    r->answer = arena_calloc(&t->arena, 1, sizeof(*r->answer));
    sampled_answer_init(r->answer, &o);
}

void sample_end(struct sample *r)
{
    engine_cancel(r->call);
    if (r->answer)
        sampled_answer_done(r->answer);
}

/* Grows in the arena; the old row is left there. */
void sample_lp_reserve(struct model_call *t, struct sample *r, size_t more)
{
    struct token_logprob *grown;

    if (r->n_lp + more <= r->cap_lp)
        return;
    r->cap_lp = MAX_OF(r->cap_lp * 2, r->n_lp + more);
    grown = arena_calloc(&t->arena, r->cap_lp, sizeof(*grown));
    if (r->n_lp > 0)
        memcpy(grown, r->lp, r->n_lp * sizeof(*grown));
    r->lp = grown;
}

void sample_tell_logprobs(struct model_call *t, struct sample *r)
{
    call_listeners_sink.logprobs(t, r->answer->opt.index, r->lp + r->lp_sent, r->n_lp - r->lp_sent);
    r->lp_sent = r->n_lp;
}
