/* Looking back at committed calls: the recorded answer of a repeated request, the conversation
 * behind a response id. */
#include "worker/session/policy.h"

static struct str as_text(const struct json *v, struct arena *a)
{
    struct buf b = {0};
    struct str s;

    json_write(&b, v);
    s = arena_str(a, buf_str(&b));
    buf_done(&b);
    return s;
}

const struct session_past_call *session_find_call(struct session *s, struct arena *a,
                                                  const uint64_t body_hash[2])
{
    const struct call *c =
        map_get(&s->forest.by_hash, str_of((const char *)body_hash, 2 * sizeof(*body_hash)));
    struct session_past_answer *answers;
    struct session_past_call *ret;

    if (!c)
        return NULL;
    ret = ARENA_NEW(a, struct session_past_call);
    answers = arena_calloc(a, c->n_turns, sizeof(*answers));
    ret->call = c->number;
    ret->n_answers = c->n_turns;
    ret->prompt_tokens = c->prompt_tokens;
    ret->answers = answers;
    for (uint32_t i = 0; i < c->n_turns; i++) {
        const struct turn *t = s->forest.turns.at[c->first_turn + i];

        ret->completion_tokens += t->n;
        answers[i].response_id = t->response_id;
        answers[i].message_json = as_text(t->message, a);
        answers[i].finish_reason = t->finish_reason;
        answers[i].told = t->told;
        answers[i].ids = (struct token_span){t->ids, t->n};
        answers[i].logprobs = t->logprobs;
    }
    return ret;
}

const struct json *session_messages(const struct session *s, struct arena *a,
                                    struct str response_id)
{
    const struct turn *t = map_get(&s->forest.by_response, response_id);

    return t && t->node ? node_messages(t->node, 0, a) : NULL;
}

bool session_find_response(const struct session *s, struct str response_id,
                           struct session_past_response *ret)
{
    const struct turn *t = map_get(&s->forest.by_response, response_id);

    if (!t)
        return false;
    *ret = (struct session_past_response){
        .finish_reason = t->finish_reason,
        .asked = s->forest.calls.at[t->call].asked,
        .told = t->told,
        .message = t->message,
        .prompt_tokens = s->forest.calls.at[t->call].prompt_tokens,
        .completion_tokens = t->n,
    };
    return true;
}

struct str session_call_owner(const struct session *s, struct str call_id)
{
    const struct turn *t = map_get(&s->forest.by_call, call_id);

    return t ? t->response_id : (struct str){0};
}
