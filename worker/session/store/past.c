/* Finds committed calls: the recorded answer of a repeated request, and the conversation of a
 * response id. */
#include "common/base/check.h"
#include "common/codec/json.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session_past.h"
#include "worker/session/store/store.h"

/* Finds the newest call of a key, as index + 1; 0: none. */
static uint32_t newest_of_key(const struct forest *f, const uint64_t body_hash[2], struct str key)
{
    const struct key_entry *found;
    struct buf said = {0};

    call_key_put(&said, body_hash, key);
    found = map_get(&f->by_key, buf_str(&said));
    buf_done(&said);
    return found ? found->newest : 0;
}

/* With a key, finds the call with that key, else one without a key. */
bool session_find_call(const struct session *s, const uint64_t body_hash[2], struct str key,
                       uint64_t *ret_call)
{
    const struct call_record *found = map_get(&s->forest.by_hash, body_hash_key(body_hash));

    if (found && key.p) {
        uint32_t newest = newest_of_key(&s->forest, body_hash, key);

        newest = newest ? newest : found->newest_plain;
        found = newest ? s->forest.calls.at[newest - 1] : NULL;
    }
    if (found)
        *ret_call = found->number;
    return found != NULL;
}

/* Returns the last call with that number, or NULL. */
static const struct call_record *find_numbered(const struct session *s, uint64_t number)
{
    const struct forest *f = &s->forest;
    size_t from = 0, to = f->by_number.n;

    while (from < to) {
        size_t mid = from + (to - from) / 2;

        if (f->calls.at[f->by_number.at[mid]]->number <= number)
            from = mid + 1;
        else
            to = mid;
    }
    if (from == 0 || f->calls.at[f->by_number.at[from - 1]]->number != number)
        return NULL;
    return f->calls.at[f->by_number.at[from - 1]];
}

enum session_cause session_response_cause(const struct session *s, struct str response_id,
                                          enum session_cause otherwise)
{
    const struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));

    return t ? t->cause : otherwise;
}

struct str session_call_key(const struct session *s, uint64_t call)
{
    const struct call_record *c = find_numbered(s, call);

    return c ? c->key : (struct str){0};
}

/* Reads back the answers of a call, which stay in memory until the next pause. */
MAY_PAUSE static int read_answers(struct session *s, const struct call_record *c, struct err *e)
{
    struct recall r = {.session = s, .holds = true, .open_only = true};
    int rc;

    recall_call(&r, c);
    rc = recall_read(&r, e);
    recall_done(&r);
    return session_has_ended(s) ? err_set(e, ERR_SESSION_ENDED, "the session has ended") : rc;
}

/* Returns a call with its answers, for a replay. Ids and logprobs point into the payload and are
 * valid until the session changes. Returns NULL if there is no such call, or with e set if it
 * cannot be read back. */
const struct session_past_call *session_past(struct session *s, struct arena *a, uint64_t call,
                                             bool sampled, struct err *e)
{
    const struct call_record *c = find_numbered(s, call);
    struct session_past_answer *answers;
    struct session_past_call *ret;

    CHECK(s->residence == RESIDENT);
    if (!c || (sampled && read_answers(s, c, e)))
        return NULL;
    ret = ARENA_NEW(a, struct session_past_call);
    answers = arena_calloc(a, c->n_checkpoints, sizeof(*answers));
    ret->call = c->number;
    ret->n_answers = c->n_checkpoints;
    ret->prompt_tokens = c->prompt_tokens;
    ret->answers = answers;
    for (uint32_t i = 0; i < c->n_checkpoints; i++) {
        const struct checkpoint *t = s->forest.checkpoints.at[c->first_checkpoint + i];

        ret->completion_tokens += t->n;
        answers[i].response_id = t->response_id;
        answers[i].message = t->message;
        answers[i].finish_reason = t->finish_reason;
        answers[i].told = t->told;
        if (!sampled)
            continue;
        answers[i].ids = (struct token_span){checkpoint_ids(t), t->n};
        answers[i].logprobs = checkpoint_logprobs(t);
    }
    return ret;
}

/* Returns the conversation up to and including that answer. Returns NULL if the answer is
 * unknown. */
const struct json *session_messages(const struct session *s, struct arena *a,
                                    struct str response_id)
{
    const struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));

    CHECK(s->residence == RESIDENT);
    return t && t->node ? node_messages(t->node, a) : NULL;
}

const struct json *session_walked_messages(const struct session *s, uint64_t reading,
                                           struct arena *a)
{
    for (size_t i = 0; i < WALK_ENDS && s->residence == RESIDENT; i++)
        if (s->forest.ends[i].node && s->forest.ends[i].reading == reading)
            return forest_messages(&s->forest, s->forest.ends[i].node, 0, a);
    return NULL;
}

const struct json *session_message(const struct session *s, struct str response_id,
                                   struct str *ret_told)
{
    const struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));

    CHECK(s->residence == RESIDENT);
    if (!t || !t->node || t->node->depth == 0)
        return NULL;
    *ret_told = t->told;
    return t->message;
}

const struct json *session_message_before(const struct session *s, struct str response_id)
{
    const struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));
    const struct message_node *before = t && t->node ? t->node->parent : NULL;

    CHECK(s->residence == RESIDENT);
    if (!before || before->depth == 0 || before->msg.calls ||
        !str_eq_c(before->msg.role, "assistant"))
        return NULL;
    return before->msg.json;
}

/* Returns the text of the conversation's first message. */
static struct str first_text(const struct checkpoint *t)
{
    const struct message_node *n = t->node;

    while (n && n->depth > 1)
        n = n->parent;
    return n ? node_text(n) : (struct str){0};
}

/* The result is borrowed from the session. */
bool session_find_response(const struct session *s, struct str response_id,
                           struct session_past_response *ret)
{
    const struct checkpoint *t = map_get(&s->forest.by_response, response_key(response_id));

    const struct call_record *call;

    if (!t)
        return false;
    call = s->forest.calls.at[t->call];
    *ret = (struct session_past_response){
        .finish_reason = t->finish_reason,
        .asked = call->asked,
        .instructions = call->asked_brief ? first_text(t) : (struct str){0},
        .told = t->told,
        .message = t->message,
        .prompt_tokens = call->prompt_tokens,
        .completion_tokens = t->n,
    };
    return true;
}

struct str session_call_owner(struct session *s, struct str call_id)
{
    const struct checkpoint *t = forest_issuer(&s->forest, call_id);

    return t ? t->response_id : (struct str){0};
}
