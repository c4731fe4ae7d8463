/* Counts ends of sessions in the totals of the run (run_counts.h). */
#include "worker/plane/call/run_counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "common/proc/run_board.h"
#include "worker/plane/call/call_env.h"
#include "worker/session/store/session_sums.h"
#include "worker/session/store/stop.h"

struct run_end {
    struct run_event event;
    struct run_ended ended;
    char names[RUN_LABELS][RUN_NAME_MAX];
};

/* Larger rewards count as this one, so that the sum of many squares does not overflow. */
static const double REWARD_MAX = 1e4;

static const struct {
    const char *group, *name;
} figures[RUN_FIGURES] = {

#define FIGURE(field, kind, group, name, metric, label) [RUN_##field] = {group, name},
#include "common/proc/run_figures.def"
};

_Static_assert((int)RUN_SPENDINGS == (int)SPENDINGS, "as enum session_spending");

struct run_board *call_run_board(const struct call_env *env)
{
    return env->board ? env->board->run : NULL;
}

static enum run_figure figure_of(const char *reason)
{
    for (int i = 0; i < RUN_FIGURES; i++)
        if (strcmp(figures[i].group, "ended") == 0 && strcmp(figures[i].name, reason) == 0)
            return (enum run_figure)i;
    return RUN_ENDED_UNKNOWN;
}

static void set_name(struct run_end *x, enum run_label label, struct str name)
{
    run_copy_text(x->names[label], sizeof(x->names[label]), name);
    x->event.names[label] = str_cstr(x->names[label]);
}

static void set_names(struct run_end *x, const struct session_measures *m)
{
    set_name(x, RUN_TASK, m->task);
    set_name(x, RUN_MODEL, m->model.len > 0 ? m->model : STR("policy"));
    set_name(x, RUN_VERSION, m->newest);
}

static void set_reward(struct run_end *x, const struct session_measures *m)
{
    double reward = MAX_OF(MIN_OF(m->reward, REWARD_MAX), -REWARD_MAX);
    int64_t *at = x->event.counts.at;

    x->ended.rewarded = m->rewarded;
    x->ended.reward = m->reward;
    if (!m->rewarded)
        return;
    at[RUN_REWARDED] = 1;
    at[RUN_REWARD] = llround(reward * 1e6);
    at[RUN_REWARD_SQUARE] = llround(reward * reward * 1e6);
    at[RUN_PASSED] = m->reward >= 1;
}

static void set_staleness(struct run_end *x, const struct session_measures *m,
                          const struct call_env *env)
{
    uint64_t newest = 0;
    int64_t known;

    if (m->model.len > 0 || !m->numbered ||
        !call_run_board(env)) /* versions of other models differ */
        return;
    if (str_to_u64(m->newest, INT64_MAX, &newest) != 0)
        newest = m->oldest;
    known = run_board_newest_version(call_run_board(env), (int64_t)newest, m->began_ms);
    x->event.counts.at[RUN_STALENESS_SESSIONS] = 1;
    x->event.counts.at[RUN_STALENESS] = MAX_OF(known - (int64_t)m->oldest, 0);
}

static void set_sums(struct run_end *x, const struct session_measures *m)
{
    int64_t *at = x->event.counts.at;

    at[RUN_TURNS] = x->ended.turns = (int64_t)m->turns;
    at[RUN_TOKENS] = x->ended.tokens = (int64_t)m->tokens;
    at[RUN_SAMPLED] = (int64_t)m->sampled;
    at[RUN_TRUNCATED] = m->truncated > 0;
    at[RUN_RUN] = x->ended.run_us = (int64_t)m->run_us;
    for (int i = 0; i < SPENDINGS; i++)
        at[RUN_SPENT_START + i] = x->ended.spent_us[i] = (int64_t)m->spent_us[i];
}

struct run_end *run_end_measure(const struct call_env *env, struct session *s, enum session_end how,
                                bool stated)
{
    bool over = session_phase(s) == SESSION_FINALIZED || session_phase(s) == SESSION_ABORTED;
    struct session_measures m;
    struct run_end *x;

    if (how == SESSION_END_COMPLETE || over || session_copying(s))
        return NULL;
    if (how == SESSION_END_FINALIZE || how == SESSION_END_EXPIRE)
        session_expect_export(s);
    x = mem_zalloc(sizeof(*x));
    x->ended.ended_ms = clock_wall_ms();
    session_measure(s, x->ended.ended_ms, &m);
    x->ended.cause = stated ? RUN_ENDED_STATED : figure_of(session_stop_reason(s, how));
    x->event.evaluation = m.evaluation;
    x->event.counts.at[RUN_SESSIONS] = 1;
    x->event.counts.at[RUN_UNMEASURED] = !m.known;
    x->event.counts.at[x->ended.cause] = 1;
    if (!m.known)
        return x;
    set_names(x, &m);
    set_sums(x, &m);
    set_reward(x, &m);
    set_staleness(x, &m, env);
    x->event.ended = &x->ended;
    run_copy_text(x->ended.session, sizeof(x->ended.session), session_id(s));
    run_copy_text(x->ended.group, sizeof(x->ended.group), m.group);
    return x;
}

void run_end_count(struct run_end *x, const struct call_env *env)
{
    if (x)
        run_board_add(call_run_board(env), env->page, &x->event, x->ended.ended_ms);
    run_end_free(x);
}

void run_end_free(struct run_end *x)
{
    free(x);
}

void run_count_export(const struct call_env *env, struct session *s, uint64_t trained,
                      uint64_t trajectories, uint64_t drifted)
{
    struct session_measures m;
    struct run_end to = {0};

    if (session_phase(s) != SESSION_FINALIZED || !session_take_uncounted(s))
        return;
    session_measure(s, clock_wall_ms(), &m);
    to.event.evaluation = m.evaluation;
    if (m.known)
        set_names(&to, &m);
    to.event.counts.at[RUN_TRAINED] = (int64_t)trained;
    to.event.counts.at[RUN_TRAJECTORIES] = (int64_t)trajectories;
    to.event.counts.at[RUN_DRIFTED] = (int64_t)drifted;
    run_board_add(call_run_board(env), env->page, &to.event, clock_wall_ms());
}

void run_note_version(const struct call_env *env, struct str version)
{
    uint64_t number;

    if (call_run_board(env) && str_to_u64(version, INT64_MAX, &number) == 0)
        run_board_set_version(call_run_board(env), (int64_t)number, clock_wall_ms());
}
