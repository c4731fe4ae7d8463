/* Finds the cause of a call's position (enum session_cause), which answers the question "why has
 * this session two branches?". The request was walked down the trie of messages (forest_walk). This
 * file looks where the walk stopped, and compares the stored messages there with the request's.
 *
 *   known under another environment    tools_changed, template_kwargs_changed
 *   walked to its end                  extended, resampled, history_rewritten
 *   stopped at a message               assistant_rewritten, history_rewritten, extended, new_root
 *   nothing in common                  new_root
 *
 * Causes that only tokens show (template_rewrite, truncated_answer, same_answer) are set where
 * tokens are compared (prepare.c, apply.c). The search is bounded (GATES_TRIED, TURNS_TRIED, and
 * the bytes that all gates compare together), because a cause only helps people and decides
 * nothing. */

#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/store.h"

enum { GATES_TRIED = 16, TURNS_TRIED = 1024 };

enum { GATES_MESSAGES = 4096, GATES_BYTES = 1 << 20 };

static const char *const NAMES[CAUSE_COUNT] = {
    [CAUSE_EXTENDED] = "extended",
    [CAUSE_NEW_ROOT] = "new_root",
    [CAUSE_HISTORY_REWRITTEN] = "history_rewritten",
    [CAUSE_RESAMPLED] = "resampled",
    [CAUSE_SAME_ANSWER] = "same_answer",
    [CAUSE_ASSISTANT_REWRITTEN] = "assistant_rewritten",
    [CAUSE_TOOLS_CHANGED] = "tools_changed",
    [CAUSE_KWARGS_CHANGED] = "template_kwargs_changed",
    [CAUSE_TEMPLATE_REWRITE] = "template_rewrite",
    [CAUSE_TRUNCATED] = "truncated_answer",
};

const char *session_cause_name(enum session_cause c)
{
    return NAMES[c];
}

/* Sets the first field in which the stored message and the request's differ. */
static void set_diff(struct session *s, struct plan *p, const struct message_node *stored,
                     const struct message *request)
{
    struct message_diff d;

    message_diff(&stored->msg, request, &s->forest.matcher, p->arena, &d);
    p->pub.diff_message = stored->depth - 1;
    p->pub.diff_field = str_cstr(d.field);
    p->pub.diff_stored = d.stored;
    p->pub.diff_request = d.request;
}

/* Returns the environment under which the conversation has answers beyond its first `covered`
 * messages or, if it has no answer under its own, under which it is known. Returns NULL if there is
 * none among those that were compared. */
static struct prompt_env *known_elsewhere(struct session *s, struct plan *p, uint32_t covered)
{
    struct walk_room room = {GATES_MESSAGES, GATES_BYTES, false};
    struct walk w;

    for (size_t i = s->forest.envs.n, tried = 0;
         i-- > 0 && tried < GATES_TRIED && room.messages > 0; tried++) {
        struct prompt_env *g = s->forest.envs.at[i];

        if (g == p->env || !str_eq(g->pool, p->pool))
            continue;
        forest_walk_begin(p->chat.messages, &w);
        (void)forest_walk_on(&s->forest, g, p->chat.messages, p->arena, &room, &w);
        if (!p->prompt && w.n_matched == w.n)
            return g;
        for (const struct message_node *n = w.last; n && n->depth > covered; n = n->parent)
            if (n->newest)
                return g;
    }
    return NULL;
}

/* Sets the cause for a different environment: tools before kwargs, if both have changed. */
static void cause_of_env(struct plan *p, const struct prompt_env *g)
{
    bool tools = !forest_same_tools(g, &p->env_key);
    struct message_diff d;

    if (tools)
        message_value_diff("tools", g->tools, p->chat.tools, p->arena, &d);
    else
        message_value_diff("chat_template_kwargs", g->kwargs, p->chat.kwargs, p->arena, &d);
    p->pub.cause = tools ? CAUSE_TOOLS_CHANGED : CAUSE_KWARGS_CHANGED;
    p->pub.diff_message = p->covered;
    p->pub.diff_field = str_cstr(d.field);
    p->pub.diff_stored = d.stored;
    p->pub.diff_request = d.request;
}

/* Returns how many messages of the request an answer under its own environment covers. */
static uint32_t known_here(const struct plan *p)
{
    const struct message_node *at = p->walk.last;

    while (at && at->depth > 0 && !at->newest)
        at = at->parent;
    return at ? at->depth : 0;
}

/* Reports whether the request has a further answer after the first `covered` messages, which this
 * session did not write. */
static bool has_other_answers(const struct plan *p, uint32_t covered)
{
    for (uint32_t i = covered; i < p->walk.n; i++)
        if (str_eq_c(json_string(json_get(&p->chat.messages->items[i], "role")), "assistant"))
            return true;
    return false;
}

/* Returns the newest answer after this node, to compare it with a rewritten one. */
static const struct message_node *newest_sample(const struct session *s,
                                                const struct message_node *at)
{
    size_t oldest =
        s->forest.checkpoints.n > TURNS_TRIED ? s->forest.checkpoints.n - TURNS_TRIED : 0;

    for (size_t i = s->forest.checkpoints.n; i-- > oldest;) {
        const struct message_node *n = s->forest.checkpoints.at[i]->node;

        if (n && n->parent == at)
            return n;
    }
    return at->latest;
}

/* Sets the cause of a request that differs from what is stored after `at`, from message `unmatched`
 * on. */
static void cause_of_fork(struct session *s, struct plan *p, struct message_node *at)
{
    bool assistant = str_eq_c(p->walk.unmatched.role, "assistant") && at->samples > 0;
    const struct message_node *other = assistant ? newest_sample(s, at) : at->latest;

    p->pub.cause = assistant ? CAUSE_ASSISTANT_REWRITTEN : CAUSE_HISTORY_REWRITTEN;
    if (other)
        set_diff(s, p, other, &p->walk.unmatched);
}

/* Sets the cause of a request whose walk ended or stopped at `at`. */
static void cause_at_node(struct session *s, struct plan *p, struct message_node *at)
{
    if (p->walk.n_matched == p->walk.n) {
        if (at->samples > 0)
            p->pub.cause = CAUSE_RESAMPLED;
        else if (p->covered == p->walk.n)
            p->pub.cause = CAUSE_EXTENDED;
        else
            p->pub.cause = CAUSE_HISTORY_REWRITTEN;
    } else if (p->covered > at->depth && p->parent->children == 0) {
        p->pub.cause = CAUSE_EXTENDED; /* the answer with added text */
    } else if (at->latest) {
        cause_of_fork(s, p, at);
    } else {
        p->pub.cause = p->parent ? CAUSE_EXTENDED : CAUSE_NEW_ROOT;
    }
}

/* Also sets the difference if there is one to show. A plan that is only read gets no cause. */
void cause_find(struct session *s, struct plan *p)
{
    const struct prompt_env *g = NULL;
    uint32_t covered = p->added.p ? p->covered : known_here(p);

    if (p->look)
        return;
    if (!p->prompt || (s->forest.envs.n > 1 && has_other_answers(p, covered)))
        g = known_elsewhere(s, p, covered);
    if (g)
        cause_of_env(p, g);
    else if (p->prompt)
        cause_at_node(s, p, p->prompt);
    else
        p->pub.cause = CAUSE_NEW_ROOT;
}
