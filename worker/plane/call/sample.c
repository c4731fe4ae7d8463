/* Reads the text of one of a call's answers from beginning to end, and keeps the logprobs that the
 * client asked for. sample_take.c takes the engine's results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "worker/engine/pool/engine.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/tokens/tokenizer.h"

enum { RESPONSE_ID_HEX = 32 }; /* digits behind the prefix of a response id */

static bool may_call(const struct chat_request *req)
{
    return req->callable && req->callable->n > 0 && req->tool_choice != CHOICE_NONE;
}

/* Returns how many tool calls of one answer the client gets at most. */
static size_t max_calls_of(const struct model_call *t)
{
    return MIN_OF((size_t)ANSWER_CALLS_MAX, ANSWERS_CALLS_MAX / (size_t)t->n_samples);
}

/* Returns the parser's options: it looks only for what the request allows. */
static struct parser_options parser_of(const struct model_call *t)
{
    const struct chat_request *req = t->in.req;

    return (struct parser_options){
        .tool = may_call(req) ? call_formats(t->env).tool : TOOL_NONE,
        .reasoning = req->chat->messages ? call_formats(t->env).reasoning : REASONING_NONE,
        .thought = t->kinds->thought,
        .call_closes = chat_request_needs_call(req),
        .hold_bytes = req->stream ? PARSER_HOLD_BYTES : SIZE_MAX,
        .tools = req->callable,
    };
}

static struct str new_response_id(struct model_call *t)
{
    struct str head = str_cstr(t->in.req->id_head ? t->in.req->id_head : "");
    char *id = arena_alloc(&t->arena, head.len + RESPONSE_ID_HEX + 1);

    memcpy(id, head.p, head.len);
    ids_hex(t->env->ids, id + head.len, RESPONSE_ID_HEX / 2);
    return str_of(id, head.len + RESPONSE_ID_HEX);
}

/* Sets the response id, too. */
void sample_begin(struct model_call *t, struct sample *r, uint32_t index)
{
    struct parser_options *parser = ARENA_NEW(&t->arena, struct parser_options);
    struct sampled_answer_options o = {
        .index = index,
        .tokenizer = model_tokenizer(t->env->model),
        .stop_ids = t->stop_ids,
        .n_stop_ids = t->n_stop_ids,
        .stops = t->stops,
        .min_tokens = t->min_tokens,
        .max_calls = t->in.req->parallel_tool_calls ? max_calls_of(t) : 1,
        .keep_special = may_call(t->in.req) && call_formats(t->env).tool == TOOL_NONE,
        .parser = parser,
        .sink = &call_listeners_sink,
        .sink_ctx = t,
        .history = t->in.req->chat->messages,
        .fresh_id = call_fresh_id,
        .fresh_ctx = t->env,
    };
    r->model_call = t;
    r->response_id = new_response_id(t);
    *parser = parser_of(t);
    r->answer = arena_calloc(&t->arena, 1, sizeof(*r->answer));
    sampled_answer_init(r->answer, &o);
}

void sample_end(struct sample *r)
{
    engine_cancel(r->call);
    free(r->replay_text);
    free(r->odds_own);
    free(r->told_top);
    for (int k = 0; k < ROWS_KINDS; k++)
        free(r->bulk[k]);
    if (r->answer)
        sampled_answer_done(r->answer);
    r->call = NULL;
    r->replay_text = r->odds_own = NULL;
    r->told_top = NULL;
    r->answer = NULL;
    memset(r->bulk, 0, sizeof(r->bulk));
}

/* A long row grows by a quarter; growing copies nothing, and memory that is not used yet is not
 * touched. */
void sample_lp_reserve(struct model_call *t, struct sample *r, size_t more)
{
    enum { LONG = 64 << 10 };

    if (r->n_lp + more <= r->cap_lp)
        return;
    r->cap_lp += r->cap_lp < LONG ? r->cap_lp : r->cap_lp / 4;
    r->cap_lp = MAX_OF(r->cap_lp, r->n_lp + more);
    r->lp = arena_grow_alone(&t->arena, r->lp, r->cap_lp * sizeof(*r->lp));
}

size_t sample_lp_within(const struct token_logprob *lp, size_t n, size_t most)
{
    size_t within = 0;

    for (size_t cost = 0; within < n && (within == 0 || cost < most); within++)
        cost += 1 + (size_t)lp[within].n_top;
    return within;
}

void sample_send_logprobs(struct model_call *t, struct sample *r)
{
    call_listeners_sink.logprobs(t, r->answer->opt.index, r->lp + r->lp_sent, r->n_lp - r->lp_sent);
    r->lp_sent = r->n_lp;
}

/* Adds the logprobs of the ids that r->lp does not have yet. */
void sample_logprobs(struct model_call *t, struct sample *r, struct token_span ids,
                     const float *logprobs, const struct engine_top *top, uint32_t n_top)
{
    const struct tokenizer *tk = model_tokenizer(t->env->model);
    /* the session may have requested more */
    uint32_t told = MIN_OF(n_top, t->in.req->top_logprobs);
    struct token_logprob *alt = NULL; /* alternatives of each id */

    if (!t->in.req->logprobs || !logprobs || ids.n == 0)
        return;
    sample_lp_reserve(t, r, ids.n);
    if (top && told > 0)
        alt = arena_calloc(&t->arena, ids.n * told, sizeof(*alt));
    for (size_t i = 0; i < ids.n; i++) {
        struct token_logprob *lp = &r->lp[r->n_lp++];

        *lp = (struct token_logprob){ids.at[i], logprobs[i], tokenizer_text(tk, ids.at[i]), alt, 0};
        for (uint32_t k = 0; alt && k < told; k++) {
            const struct engine_top *x = &top[i * n_top + k];

            if (x->id < 0 || isnan(x->logprob))
                continue; /* the engine returned fewer than requested */
            alt[lp->n_top++] =
                (struct token_logprob){x->id, x->logprob, tokenizer_text(tk, x->id), NULL, 0};
        }
        alt += alt ? told : 0;
    }
    sample_send_logprobs(t, r);
}
