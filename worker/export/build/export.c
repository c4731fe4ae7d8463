/*
 * An export, in the order of export_write:
 *
 *   choose_branches
 *   format->begin
 *   for each pass of the format:
 *     for each trajectory (write_trajectory):
 *       build          evicted data is read back, and copied into flat arrays
 *       audit_drift    first pass: the ids are compared with a fresh rendering
 *       check          against the invariants; images become runs of their token
 *       format->write  into the rope
 *       drain_rope     into the answer, a few kilobytes at a time
 *     format->end
 *
 * Other tasks run between the steps of all of these (export_pause). Only drain_rope waits for a
 * slow reader. The session stays pinned meanwhile, but its payloads may be evicted, because a
 * trajectory has its own copy of what it needs.
 *
 * Mistakes that are visible without building anything are errors before the first byte. Each error
 * is in x->failed, and each step returns false.
 */
#include "worker/export/build/export.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/export/build/drift_audit.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/pictures_layout.h"
#include "worker/export/build/select.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"

/* --- sums over the trajectories, and data that they lack --- */

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
        told = told || checkpoint_rows(turn, ROWS_EXPERTS)->has;
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

/* Adds a complete trajectory to x->sums, in the first pass only. */
static void export_sum_up(struct export *x, const struct trajectory *t)
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

/* --- the export --- */

enum { DRAIN_BYTES = 4 << 10 }; /* bytes between two pauses: some microseconds */

int export_new(struct session *s, const struct model *m, struct model_scratch *scratch,
               const struct export_options *o, struct export **ret, struct err *e)
{
    struct score_wants *wants;
    struct export *x;

    *ret = NULL;
    if (export_options_check(o, e) != 0 || export_check_reward(s, o, e) != 0)
        return -1;
    if (session_foreign(s))
        m = NULL; /* the tokenizer is not the session's, so steps that need it are left out */
    x = mem_zalloc(sizeof(*x));
    x->session = s;
    session_pin(s);
    x->arena.sum = x->scratch.sum = o->held_bytes;
    export_take_options(x, o);
    export_take_reward(x);
    wants = arena_alloc(&x->arena, sizeof(*wants));
    *wants = session_score_wants(s);
    x->score_wants = wants;
    x->format = export_formats[o->format].functions;
    x->input =
        (struct trajectory_input){.session = s,
                                  .model = m,
                                  .scratch = scratch,
                                  .train_purposes = x->options.train_purposes,
                                  .train_roles = x->options.train_roles,
                                  .audit = m && !o->no_drift,
                                  .indexer = x->format->indexer,
                                  .n_scores = session_shows_images(s) ? 0 : session_scores(s),
                                  .text_too = x->format->text_too,
                                  .failed = &x->failed};
    x->recall = ARENA_NEW(&x->arena, struct recall);
    *x->recall = (struct recall){.session = s, .holds = true};
    x->selection = arena_calloc(&x->arena, 1, sizeof(*x->selection));
    x->audit = arena_calloc(&x->arena, 1, sizeof(*x->audit));
    selection_start(&x->input, &x->options, &x->arena, x->selection);
    *ret = x;
    return 0;
}

/* --- steps --- */

static int no_logprobs(const struct export *x, size_t trajectory, struct err *e)
{
    return err_set(e, ERR_UNASSEMBLABLE,
                   "the %s format needs the logprobs of every sampled token, and trajectory %zu "
                   "has none",
                   export_formats[x->options.format].name, trajectory);
}

/* Checks the selection without building anything. */
static int check_selection(struct export *x, struct err *e)
{
    size_t without = x->selection->tracks.n;

    if (x->options.strict && x->selection->textual > 0)
        return err_set(e, ERR_UNASSEMBLABLE,
                       "the session cannot be assembled: %u of its trajectories were captured as "
                       "text, without token ids",
                       x->selection->textual);
    if (x->format->needs_logprobs)
        without = selection_without_logprobs(x->selection);
    if (without < x->selection->tracks.n)
        return no_logprobs(x, without, e);
    return selection_check(x->selection, x->session, e);
}

MAY_PAUSE static bool choose_branches(struct export *x)
{
    while (selection_next(&x->input, &x->options, x->selection))
        if (!export_pause(x))
            return false;
    x->input.owners = x->selection->owners;
    return x->failed.kind == ERR_NONE && check_selection(x, &x->failed) == 0;
}

MAY_PAUSE static bool build(struct export *x)
{
    const struct track *track = &x->selection->tracks.at[x->at];

    x->recall->rows = true;
    trajectory_note(track, x->recall);
    if (!export_recall(x))
        return false;
    trajectory_build(&x->input, track, x->at, &x->scratch, &x->t);
    recall_done(x->recall);
    return export_pause(x);
}

static void run_audit(struct export *x, struct model_scratch *scratch)
{
    trajectory_audit(&x->input, &x->t, scratch, x->audit);
    while (drift_next(x->audit))
        if (!export_work_goes_on(x))
            return;
    trajectory_audited(x->audit, &x->scratch, &x->t);
}

MAY_PAUSE static bool audit_drift(struct export *x)
{
    bool kept = trajectory_audit_kept(&x->input, &x->t);

    if ((kept && !(x->format->drift_places && x->t.drift.count)) ||
        !trajectory_is_audited(&x->input, &x->t))
        return true;
    if (x->format->drift_places)
        x->t.drift.places = arena_zalloc(&x->scratch, sizeof(*x->t.drift.places));
    if (!export_offload(x, run_audit))
        return false;
    if (kept)
        return true;
    trajectory_keep_audit(x->session, &x->t);
    if (x->t.drift.count)
        x->drifted[x->t.drift.first]++;
    return true;
}

static int check_first(const struct export *x, struct err *e)
{
    if (trajectory_check(&x->t, e))
        return -1;
    if (x->format->needs_logprobs && !x->t.logprobs)
        return no_logprobs(x, x->t.index, e);
    return x->format->check ? x->format->check(x, &x->t, e) : 0;
}

/* Checks the trajectory. Its turns are read once more, because they may have been evicted after it
 * was built. */
MAY_PAUSE static bool check(struct export *x)
{
    x->recall->rows = false;
    trajectory_note_turns(&x->t, x->recall);
    if (!export_recall(x) || (x->pass == 0 && check_first(x, &x->failed)) ||
        trajectory_expand(&x->input, x->options.collapsed_ids, &x->scratch, &x->t, &x->failed) ||
        media_note(x, &x->t, &x->failed))
        return false;
    recall_done(x->recall);
    export_sum_up(x, &x->t);
    return x->failed.kind == ERR_NONE;
}

MAY_PAUSE static bool drain_rope(struct export *x)
{
    while (!rope_empty(&x->rope)) {
        rope_drain(&x->rope, x->out->bytes, DRAIN_BYTES);
        if (!export_pause(x))
            return false;
    }
    arena_reset(&x->scratch);
    return export_pause(x);
}

MAY_PAUSE static bool write_trajectory(struct export *x)
{
    if (!build(x) || !audit_drift(x) || !check(x))
        return false;
    if (x->format->write)
        x->format->write(x, &x->t);
    return export_pause(x) && drain_rope(x);
}

MAY_PAUSE static bool end_pass(struct export *x)
{
    /* the session records what merging did, because the next export does the same */
    if (x->pass == 0)
        session_record_merge(x->session, x->sums.repaired, x->sums.lost, x->news);
    if (x->format->end)
        x->format->end(x, x->out->bytes);
    x->input.audit = false; /* one audit is enough */
    return export_pause(x) && drain_rope(x);
}

MAY_PAUSE static bool write_all(struct export *x)
{
    if (!choose_branches(x))
        return false;
    if (x->format->begin)
        x->format->begin(x, x->out->bytes);
    for (x->pass = 0; x->pass < x->format->passes; x->pass++) {
        size_t n = x->pass > 0 && x->format->takes_once ? 0 : x->selection->tracks.n;

        for (x->at = 0; x->at < n; x->at++)
            if (!write_trajectory(x))
                return false;
        if (!end_pass(x))
            return false;
    }
    return true;
}

int export_write(struct export *x, struct export_out *out, struct err *e)
{
    x->out = out;
    if (write_all(x))
        return 0;
    *e = x->failed;
    return -1;
}

/* --- results --- */

size_t export_branches(const struct export *x)
{
    return x->selection->tracks.n;
}

const uint32_t *export_drifted(const struct export *x)
{
    return x->drifted;
}

const uint32_t *export_merged(const struct export *x)
{
    return x->news;
}

struct export_figures export_figures(const struct export *x)
{
    return (struct export_figures){x->sums.own_trained, x->sums.trajectories, x->sums.drifted};
}

const char *export_content_type(const struct export *x)
{
    return export_formats[x->options.format].content_type;
}

void export_free(struct export *x)
{
    if (!x)
        return;
    if (x->format->drop)
        x->format->drop(x);
    recall_done(x->recall);
    drift_drop(x->audit);
    rope_done(&x->rope);
    selection_done(x->selection);
    x->kept_bytes = 0;
    x->rope = (struct rope){0};
    export_count_texts(x);
    media_drop(x);
    arena_done(&x->scratch);
    arena_done(&x->arena);
    session_unpin_view(x->session);
    free(x);
}
