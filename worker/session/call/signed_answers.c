/* Finds what an upstream signed in its answers (signatures of thoughts and similar) and wants back
 * with the next turn. A stored assistant message has these as additional members, also in its tool
 * calls. Most clients drop them. An answer is found by the walk of its call, or, after the walk's
 * end, by the id of its first tool call, which the session issued. */
#include "worker/session/call/session_call.h"

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/vec.h"
#include "common/codec/json_build.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/message.h"
#include "worker/session/store/store.h"
#include "worker/text/request/thought_blocks.h"

static bool is_message_member(struct str name)
{
    static const char *const own[] = {"role", "content", "reasoning_content", "tool_calls", "name"};

    return str_is_one_of(name, own, ARRAY_LEN(own));
}

static bool is_call_member(struct str name)
{
    return str_eq_c(name, "id") || str_eq_c(name, "type") || str_eq_c(name, "function");
}

static bool has_others(const struct json *v, bool (*own)(struct str name))
{
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++)
        if (!own(json_string(&v->members[i].key)))
            return true;
    return false;
}

bool message_is_signed(const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls");

    if (has_others(message, is_message_member))
        return true;
    for (size_t i = 0; json_at(calls, i); i++)
        if (has_others(json_at(calls, i), is_call_member))
            return true;
    return false;
}

/* --- seals of thoughts, by their hashes --- */

void forest_remember_signed(struct forest *f, const struct json *message)
{
    struct arena a = {0};
    struct thought_block *blocks;
    size_t n = thought_blocks_read(&a, message, &blocks);

    f->has_signed = true;
    for (size_t i = 0; i < n; i++)
        if (blocks[i].seal.len > 0)
            *vec_push(&f->seals) = str_hash(blocks[i].seal, 0);
    arena_done(&a);
}

bool session_has_seal(const struct session *s, struct str seal)
{
    uint64_t hash = str_hash(seal, 0);

    for (size_t i = 0; i < s->forest.seals.n; i++)
        if (s->forest.seals.at[i] == hash)
            return true;
    return false;
}

/* --- data that is sent back --- */

static struct str first_id(const struct json *message)
{
    return json_string(json_get(json_at(json_get(message, "tool_calls"), 0), "id"));
}

enum { ANSWERS_MAX = 64 }; /* answers with one message that are compared */

/* Returns the answer of a node that issued the message's first tool call, else the newest. */
static const struct json *answer_at(const struct message_node *n, const struct json *message)
{
    struct str id = first_id(message);
    const struct checkpoint *t = n->newest;

    for (size_t i = 0; t && i < ANSWERS_MAX; i++, t = t->older)
        if (id.len == 0 || str_eq(first_id(t->message), id))
            return t->message;
    return n->newest ? n->newest->message : NULL;
}

static const struct json *issued_answer(struct plan *p, const struct json *message)
{
    const struct checkpoint *t = forest_issuer(&p->session->forest, first_id(message));

    return t && str_eq(checkpoint_pool(t), p->pool) ? t->message : NULL;
}

/* Copies the additional members, and tool calls with their ids, into the arena. */
static const struct json *copy_signed(struct arena *a, const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls");
    struct json all = json_empty(JSON_OBJECT), list = json_empty(JSON_ARRAY);

    for (uint32_t i = 0; i < message->n; i++) {
        const struct json_member *m = &message->members[i];

        if (!is_message_member(json_string(&m->key)))
            json_put(a, &all, arena_cstr(a, json_string(&m->key)), *json_copy(a, &m->value));
    }
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);
        struct json one = json_empty(JSON_OBJECT);

        for (uint32_t k = 0; json_is(call, JSON_OBJECT) && k < call->n; k++) {
            struct str name = json_string(&call->members[k].key);

            if (str_eq_c(name, "id") || !is_call_member(name))
                json_put(a, &one, arena_cstr(a, name), *json_copy(a, &call->members[k].value));
        }
        json_push(a, &list, one);
    }
    if (list.n > 0)
        json_put(a, &all, "tool_calls", list);
    return json_keep(a, all);
}

/* Lists the walk's nodes by the index of their message. */
static const struct message_node **nodes_of(const struct plan *p, struct arena *a)
{
    const struct message_node **ret = arena_calloc(a, p->chat.messages->n + 1, sizeof(*ret));

    for (const struct message_node *n = p->walk.last; n && n->depth > 0; n = n->parent)
        if (n->depth <= p->chat.messages->n)
            ret[n->depth - 1] = n;
    return ret;
}

const struct json *session_plan_signed(struct session_plan *pub, struct arena *a)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    const struct json *messages = p->chat.messages;
    struct json all = json_empty(JSON_ARRAY);
    const struct message_node **nodes;
    bool any = false;

    if (!messages || !p->session->forest.has_signed)
        return NULL;
    nodes = nodes_of(p, a);
    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i], *answer;

        if (!str_eq_c(json_string(json_get(m, "role")), "assistant"))
            continue;
        answer = nodes[i] ? answer_at(nodes[i], m) : issued_answer(p, m);
        any = any || message_is_signed(answer);
        json_push(a, &all,
                  message_is_signed(answer) ? *copy_signed(a, answer) : json_empty(JSON_NULL));
    }
    return any ? json_keep(a, all) : NULL;
}
