/*
 * Searches the number where the format does: miles uses metadata.reward of the request, all others
 * the session's. The check before an export (export_check_reward) and the export itself both call
 * is_known_reward(). So an export that has passed the check never lacks the reward later. The
 * export copies the session's reward when it is made. Otherwise a reward that comes during the
 * export could be in one pass over a file, or in one of its rows, and missing in the others.
 */
#include "worker/export/build/export_reward.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"

static bool is_known_reward(const struct reward *r, const struct export_options *o, double *ret)
{
    if (o->format == EXPORT_MILES && json_to_double(json_get(o->metadata, "reward"), ret) == 0)
        return true;
    return reward_number(r, ret);
}

/* Copies which texts there are. The texts themselves stay with the session and do not change. */
static const struct reward *copy_reward(struct arena *a, const struct reward *r)
{
    struct reward *ret = ARENA_NEW(a, struct reward);
    size_t bytes = r->members.n * sizeof(*r->members.at);

    ret->members.n = r->members.n;
    ret->members.at = arena_alloc(a, bytes);
    if (bytes > 0)
        memcpy(ret->members.at, r->members.at, bytes);
    return ret;
}

/* Reports whether an agent or a trainer has said that the episode was not finished. */
static bool is_unfinished(const struct session_view *v)
{
    const struct reward *r = v->reward;

    if (v->has_finished)
        return !v->finished;
    for (size_t i = 0; i < r->members.n; i++)
        if (str_eq_c(r->members.at[i].key, "finished"))
            return str_eq_c(r->members.at[i].json, "false");
    return false;
}

void export_take_reward(struct export *x)
{
    struct session_view v = session_view(x->session);

    x->told = copy_reward(&x->arena, v.reward);
    x->unfinished = is_unfinished(&v);
    x->rewarded = is_known_reward(x->told, &x->options, &x->reward);
}

bool export_reward(const struct export *x, double *ret)
{
    *ret = x->reward;
    return x->rewarded;
}

void export_put_reward(const struct export *x, const char *key, struct json_out *o)
{
    double reward;

    json_out_key(o, key);
    if (export_reward(x, &reward))
        json_out_double(o, reward);
    else
        json_out_null(o);
}

static bool any_trained(const struct session *s, const struct export_options *o)
{
    const struct trajectory_input in = {.train_purposes = o->train_purposes,
                                        .train_roles = o->train_roles};
    struct session_view v = session_view(s);

    for (size_t i = 0; i < v.n_checkpoints; i++) {
        const struct checkpoint *t = v.checkpoints[i];

        if (!t->hidden && !t->text && trajectory_trains(&in, t))
            return true;
    }
    return false;
}

int export_check_reward(const struct session *s, const struct export_options *o, struct err *e)
{
    double reward;

    if (o->require_trained && !any_trained(s, o))
        return err_set(e, ERR_UNASSEMBLABLE,
                       "require_trained: no token of the session %.*s would be trained",
                       (int)session_id(s).len, session_id(s).p);
    if (!o->require_reward || is_known_reward(session_view(s).reward, o, &reward))
        return 0;
    return err_set(e, ERR_REWARD_MISSING,
                   "require_reward: the session %.*s has no reward (reward_info needs a number "
                   "`reward` or `score`, or one number only)",
                   (int)session_id(s).len, session_id(s).p);
}

bool export_has_no_calls(const struct export *x)
{
    return session_view(x->session).n_calls == 0;
}

bool export_lacks_reward(const struct export *x)
{
    double reward;

    return x->format->needs_reward && session_view(x->session).n_checkpoints > 0 &&
           !export_reward(x, &reward);
}
