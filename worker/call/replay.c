/* A recorded answer told again (replay.h): the events of the original call, from what the commit
 * kept: messages, ids, logprobs, and the text of told.h. session_past reads back what was
 * evicted. */

#include "worker/call/replay.h"

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "worker/call/call_env.h"
#include "worker/call/model_call.h"
#include "worker/call/told.h"
#include "worker/model/model.h"
#include "worker/request/answer_sink.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"
#include "worker/session/session_past.h"
#include "worker/tokens/tokenizer.h"

/* The deltas that the message would have come in, each whole. */
static void send_deltas(const struct json *m, uint32_t index, const struct call_listener *l)
{
    const struct json *calls = json_get(m, "tool_calls");
    struct str reasoning = json_string(json_get(m, "reasoning_content"));
    struct str text = json_string(json_get(m, "content"));

    if (reasoning.len > 0)
        l->sink->reasoning(l->ctx, index, reasoning);
    if (text.len > 0)
        l->sink->text(l->ctx, index, text);
    for (uint32_t i = 0; calls && i < calls->n; i++) {
        const struct json *c = json_at(calls, i);
        const struct json *f = json_get(c, "function");

        l->sink->tool_begin(l->ctx, index, i, json_string(json_get(c, "id")),
                            json_string(json_get(f, "name")));
        l->sink->tool_args(l->ctx, index, i, json_string(json_get(f, "arguments")));
        l->sink->tool_end(l->ctx, index, i);
    }
}

/* Logprobs with the alternatives that the client was told, or NULL. */
static const struct token_logprob *logprobs_of(const struct call_env *env, struct arena *a,
                                               const struct session_past_answer *p,
                                               const struct told *told)
{
    const struct tokenizer *tk = model_tokenizer(env->model);
    struct token_logprob *lp;

    if (!p->logprobs)
        return NULL;
    lp = arena_calloc(a, p->ids.n, sizeof(*lp));
    for (size_t i = 0; i < p->ids.n; i++)
        lp[i] = (struct token_logprob){
            .id = p->ids.at[i],
            .logprob = p->logprobs[i],
            .bytes = tokenizer_text(tk, p->ids.at[i]),
        };
    told_tops(told, a, tk, lp, p->ids.n);
    return lp;
}

/* A call without room got an empty answer that nobody generated. */
static void send_exhausted(struct call_env *env, struct arena *a,
                           const struct session_past_call *call, struct answer_head *head,
                           struct call_listener *l)
{
    struct call_usage usage = {.prompt_tokens = call->prompt_tokens};
    struct finished_answer out = {.finish_reason = STR_LIT("length")};
    char hex[33];

    ids_hex(env->ids, hex, 16);
    head->response_id = arena_str(a, str_of(hex, 32));
    head->created_s = clock_wall_ms() / 1000;
    head->usage = usage;
    if (json_parse(a, STR("{\"role\":\"assistant\",\"content\":\"\"}"), &out.message, NULL))
        return;
    l->sink->head(l->ctx, head);
    l->sink->finish(l->ctx, &out, 1, &usage);
}

/* Deltas if the listener streams, then the end with all answers. */
static void send_answers(struct call_env *env, struct arena *a,
                         const struct session_past_call *call, struct answer_head *head,
                         struct call_listener *l)
{
    struct call_usage usage = {.prompt_tokens = call->prompt_tokens};
    struct finished_answer *out = arena_calloc(a, call->n_answers, sizeof(*out));
    struct told told;
    struct err e = {0};

    (void)told_read(call->answers[0].told, &told);
    usage.cached_tokens = told.cached_tokens;
    head->response_id = arena_str(a, call->answers[0].response_id);
    head->created_s = told.created_s;
    head->usage = usage;
    usage.completion_tokens = call->completion_tokens;
    usage.reasoning_tokens = told.reasoning_tokens;
    l->sink->head(l->ctx, head);
    for (uint32_t i = 0; i < call->n_answers; i++) {
        const struct session_past_answer *p = &call->answers[i];
        const struct json *message = NULL;

        (void)told_read(p->told, &told);
        if (json_parse(a, arena_str(a, p->message_json), &message, &e)) {
            l->sink->failed(l->ctx, &e);
            return;
        }
        out[i] = (struct finished_answer){
            .index = i,
            .finish_reason = arena_str(a, p->finish_reason),
            .stop_text = told.stop_text,
            .message = message,
            .logprobs = logprobs_of(env, a, p, &told),
        };
        out[i].n_logprobs = out[i].logprobs ? p->ids.n : 0;
        if (l->stream) {
            l->sink->logprobs(l->ctx, i, out[i].logprobs, out[i].n_logprobs);
            send_deltas(message, i, l);
        }
    }
    l->sink->finish(l->ctx, out, call->n_answers, &usage);
}

/* Returns false if the session has no such call; then nothing was sent. */
bool replay_send(struct call_env *env, struct session *s, struct arena *a, uint64_t call,
                 struct call_listener *l)
{
    struct err e = {0};
    const struct session_past_call *past = session_past(s, a, call, &e);
    struct answer_head head = {.session_id = arena_str(a, session_id(s)), .call = call};

    if (!past && e.kind != ERR_NONE)
        l->sink->failed(l->ctx, &e);
    if (!past)
        return e.kind != ERR_NONE;
    if (past->n_answers > 0)
        send_answers(env, a, past, &head, l);
    else
        send_exhausted(env, a, past, &head, l);
    return true;
}
