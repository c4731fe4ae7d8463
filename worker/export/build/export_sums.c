/* Sums of an export over its trajectories (struct export_sums), and data that they lack. */
#include "worker/export/build/export_format.h"
#include "worker/export/build/select.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/store/session_view.h"

static bool is_versioned(const struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_versions; i++) {
        if (c->versions[i].version.len == 0)
            return false;
    }
    return c->n_versions > 0;
}

static void sum_versions(struct export_sums *s, const struct trajectory *t)
{
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct trajectory_turn *turn = &t->turns[i];

        if (turn->trained && is_versioned(turn->checkpoint))
            s->versioned++;
        else if (turn->trained)
            s->unversioned++;
    }
}

/* Returns why a trajectory has no routed experts although turns of it should have some, or NULL. */
static const char *lacks_experts(const struct trajectory *t)
{
    const char *why = NULL;
    bool told = false, again = false;

    if (t->experts.p || !t->own)
        return NULL;
    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct checkpoint *turn = t->turns[i].checkpoint;

        why = why ? why : checkpoint_lacks_experts(turn);
        again = again || checkpoint_is_recomputed(turn);
        told = told || turn->rows[ROWS_EXPERTS].has;
    }
    if (why || again || !told)
        return why;
    return "routed experts are not known for all of the tokens of some trajectory: they are left "
           "out";
}

/* Tokens that the trajectory trains and that were sampled in this session. */
static uint64_t own_trained(const struct export *x, const struct trajectory *t)
{
    size_t copied = session_view(x->session).copied_calls;
    uint64_t n = 0;

    for (uint32_t i = 0; i < t->n_turns; i++)
        if (t->turns[i].trained && t->turns[i].checkpoint->call >= copied)
            n += t->turns[i].end - t->turns[i].start;
    return n;
}

void export_sum_up(struct export *x, const struct trajectory *t)
{
    struct export_sums *s = &x->sums;

    if (x->pass > 0)
        return;
    for (size_t i = 0; !t->text && i < x->score_wants->n; i++)
        x->unscored = x->unscored || !t->scores[x->score_wants->at[i].what];
    s->trained += t->trained;
    s->own_trained += own_trained(x, t);
    x->unsupported = x->unsupported ||
                     (session_view(x->session).wants_support && t->trained > 0 && !t->odds.support);
    x->unindexed = x->unindexed ||
                   (session_view(x->session).wants_indexer && t->trained > 0 && !t->has_indexer);
    x->unrouted = x->unrouted ? x->unrouted : lacks_experts(t);
    for (uint32_t i = 0; i < t->n_turns; i++)
        x->recomputed = x->recomputed || checkpoint_is_recomputed(t->turns[i].checkpoint);
    s->prompt_tokens += t->n_prompt;
    s->trimmed += t->trimmed;
    s->drift += t->drift.count;
    s->trajectories++;
    s->drifted += t->drift.count > 0;
    sum_versions(s, t);
    s->repaired += t->repaired;
    s->lost += t->n_lost;
    for (uint32_t i = 0; i < t->n_lost; i++)
        *vec_push(&x->selection->dropped) =
            (struct dropped){t->lost[i], t->lost[i]->n, 1, false, "merge_not_found"};
    if (t->has_steps) {
        s->min_step = !s->has_steps || t->min_step < s->min_step ? t->min_step : s->min_step;
        s->max_step = !s->has_steps || t->max_step > s->max_step ? t->max_step : s->max_step;
        s->has_steps = true;
    }
}
