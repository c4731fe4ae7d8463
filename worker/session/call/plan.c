/* Makes a plan when a call begins, and frees it with its record or its release. */
#include "worker/session/call/plan.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/new_env.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/record/session_texts.h"
#include "worker/session/store/store.h"

struct plan *plan_new(struct session *s, struct arena *a, const struct session_call_input *in)
{
    struct plan *p = mem_zalloc(sizeof(*p));

    p->session = s;
    p->arena = a;
    if (in->chat)
        p->chat = *in->chat;
    p->label = in->label;
    p->parent_label = in->parent_label;
    p->dropped_fields = in->dropped_fields;
    p->pool = in->pool;
    p->env_key = (struct env_key){.tools = p->chat.tools,
                                  .kwargs = p->chat.kwargs,
                                  .pool = p->pool,
                                  .tools_hashed = p->chat.tools_hashed,
                                  .tools_hash = {p->chat.tools_hash[0], p->chat.tools_hash[1]}};
    p->body_hash[0] = in->body_hash[0];
    p->body_hash[1] = in->body_hash[1];
    p->key = in->key;
    p->max_tokens = in->max_tokens;
    p->temperature = in->temperature;
    p->asked = in->asked;
    p->asked_brief = in->asked_brief;
    p->instructions = in->instructions;
    p->look = in->look;
    p->max_ids = in->look ? 0 : in->context_length; /* a token count refuses nothing */
    p->text = in->text;
    p->pub.call = UINT64_MAX; /* no number yet */
    list_prepend(&s->plans, &p->item);
    s->inflight++;
    return p;
}

/* Releases the chain of a plan that fails at the moment when it took the chain from a call, which
 * the caller has not ended yet: gives the chain back to that call. */
static void release_chain(struct plan *p)
{
    if (p->chain && p->chain->reserved == p)
        p->chain->reserved =
            p->pub.displaced ? CONTAINER_OF(p->pub.displaced, struct plan, pub) : NULL;
}

void session_set_left(struct session_plan *pub, bool left)
{
    if (pub)
        CONTAINER_OF(pub, struct plan, pub)->left = left;
}

bool session_reserves_chains(const struct session *s)
{
    return s->options.policy == &policy_chains;
}

void session_release_chain(struct session_plan *pub)
{
    if (pub)
        release_chain(CONTAINER_OF(pub, struct plan, pub));
}

void plan_free(struct plan *p)
{
    struct session *s = p->session;

    release_chain(p);
    plan_let(p);
    if (p->bulk.written) {
        s->bulk_bytes -= bulk_memory(p->bulk.written);
        bulk_done(p->bulk.written);
        free(p->bulk.written);
    }
    list_remove(&p->item);
    s->inflight--;
    new_messages_free(p->made.messages);
    new_env_free(p->made.env);
    ready_answers_free(p->made.answers);
    free(p);
}

const struct policy *plan_policy(const struct plan *p)
{
    return p->pool.len ? &policy_tree : p->session->options.policy;
}

static void make_messages(struct plan *p, bool always)
{
    const struct json *all = p->chat.messages;
    size_t bytes = 0;

    if (p->walk.n_matched == p->walk.n)
        return;
    for (uint32_t i = p->walk.n_matched; i < all->n && bytes < NEW_MESSAGES_MIN; i++)
        bytes += json_text_bytes(&all->items[i], NEW_MESSAGES_MIN - bytes);
    if (always || bytes >= NEW_MESSAGES_MIN)
        p->made.messages =
            new_messages_make(all, p->walk.n_matched, &p->session->forest.matcher, p->arena->sum);
}

void plan_make_ready(struct plan *p, bool always)
{
    if (p->look)
        return;
    make_messages(p, always);
    if (!p->env && (always || plan_env_bytes(p, NEW_MESSAGES_MIN) >= NEW_MESSAGES_MIN))
        p->made.env = new_env_make(&p->env_key, p->arena->sum);
}

size_t plan_env_bytes(const struct plan *p, size_t enough)
{
    return json_text_bytes(p->chat.tools, enough) + json_text_bytes(p->chat.kwargs, enough);
}

struct str plan_env_texts(const struct plan *p)
{
    return p->made.env ? buf_str(&p->made.env->texts) : (struct str){0};
}

struct token_parts plan_one_part(const struct plan *p, struct token_span ids)
{
    struct token_span *part = ARENA_NEW(p->arena, struct token_span);

    *part = ids;
    return token_parts_of(part);
}

/* Returns the prepared messages. Some may be in the forest already. */
static const struct new_messages *prepared_messages(const struct plan *p)
{
    return p->walk.n_matched < p->walk.n ? p->made.messages : NULL;
}

struct str plan_new_texts(const struct plan *p)
{
    const struct new_messages *m = prepared_messages(p);

    return m ? new_messages_texts(m, p->walk.n - p->walk.n_matched) : (struct str){0};
}

uint64_t session_plan_adds(const struct session_plan *pub)
{
    const struct plan *p = (const struct plan *)(const void *)pub; /* pub is the first member */

    size_t ids = pub->prompt.n - MIN_OF(pub->reused, pub->prompt.n);

    return plan_new_texts(p).len + ids * sizeof(int32_t);
}

const struct message *plan_new_message(const struct plan *p)
{
    const struct new_messages *m = prepared_messages(p);

    return m ? &m->nodes[p->walk.n_matched - m->from]->msg : NULL;
}

struct new_messages *session_new_messages(struct session *s, uint64_t call)
{
    const struct plan *p = plan_find(s, call);

    if (p)
        return p->made.messages;
    return s->ready && s->ready->call == call ? s->ready->messages : NULL;
}

struct arena *session_new_env(struct session *s, uint64_t call, struct env_key *ret)
{
    const struct plan *p = plan_find(s, call);
    struct new_env *v = NULL;

    if (p)
        v = p->made.env;
    else if (s->ready && s->ready->call == call)
        v = s->ready->env;
    if (v)
        *ret = v->key;
    return v ? &v->copy : NULL;
}

struct new_messages *session_ready_answer(struct session *s, uint64_t call, uint32_t answer)
{
    const struct plan *p = plan_find(s, call);

    if (p)
        return ready_answers_get(p->made.answers, answer);
    return s->ready && s->ready->call == call ? ready_answers_get(s->ready->answers, answer) : NULL;
}

struct plan *plan_find(struct session *s, uint64_t call)
{
    struct plan *p;

    LIST_EACH(&s->plans, p, struct plan, item)
        if (p->pub.call == call)
            break;
    return p;
}

/* Also frees the session if it only waited for this release. */
void session_release(struct session_store *st, struct session_plan *pub)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct session *s;
    bool written;

    (void)st;
    if (!pub)
        return;
    s = p->session;
    written = p->bulk.written;
    plan_free(p);
    if (written && !s->unlinked)
        session_account(s);
    session_maybe_free(s);
}

void session_release_unused(struct session_store *st, struct session_plan *pub)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);

    if (pub->call != UINT64_MAX && p->session->next_call == pub->call + 1)
        p->session->next_call = pub->call;
    session_release(st, pub);
}

void session_call_recorded(struct session *s, uint64_t call)
{
    struct plan *p = plan_find(s, call);

    if (p)
        plan_free(p);
}
