#include "worker/turn/replay.h"

#include <time.h>

bool replay_exists(struct session *s, struct arena *a, const uint64_t hash[2])
{
    return session_find_call(s, a, hash) != NULL;
}

/* The deltas that the message would have come in, each whole. */
static void send_deltas(const struct json *m, uint32_t index, const struct turn_listener *l)
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

static const struct turn_logprob *logprobs_of(const struct turn_env *env, struct arena *a,
                                              const struct session_past_answer *p)
{
    struct turn_logprob *lp;

    if (!p->logprobs)
        return NULL;
    lp = arena_calloc(a, p->ids.n, sizeof(*lp));
    for (size_t i = 0; i < p->ids.n; i++)
        lp[i] = (struct turn_logprob){
            .id = p->ids.at[i],
            .logprob = p->logprobs[i],
            .bytes = tokenizer_text(model_tokenizer(env->model), p->ids.at[i]),
        };
    return lp;
}

void replay_send(struct turn_env *env, struct session *s, struct arena *a, const uint64_t hash[2],
                 struct turn_listener *l)
{
    const struct session_past_call *call = session_find_call(s, a, hash);
    struct turn_usage usage = {
        .prompt_tokens = call->prompt_tokens,
        .completion_tokens = call->completion_tokens,
    };
    struct turn_head head = {
        .session_id = arena_str(a, session_id(s)),
        .response_id = arena_str(a, call->answers[0].response_id),
        .created_s = (uint64_t)time(NULL),
        .usage = usage,
    };
    struct turn_answer *out = arena_calloc(a, call->n_answers, sizeof(*out));
    struct err e = {0};

    l->sink->head(l->ctx, &head);
    for (uint32_t i = 0; i < call->n_answers; i++) {
        const struct session_past_answer *p = &call->answers[i];
        const struct json *message = NULL;

        if (json_parse(a, arena_str(a, p->message_json), &message, &e)) {
            l->sink->failed(l->ctx, &e);
            return;
        }
        out[i] = (struct turn_answer){
            .index = i,
            .finish_reason = arena_str(a, p->finish_reason),
            .message = message,
            .logprobs = logprobs_of(env, a, p),
        };
        out[i].n_logprobs = out[i].logprobs ? p->ids.n : 0;
        if (l->stream)
            send_deltas(message, i, l);
    }
    l->sink->finish(l->ctx, out, call->n_answers, &usage);
}
