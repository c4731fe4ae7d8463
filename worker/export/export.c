/*
 * First the options, then the object. An export is a machine that makes one step in each turn of
 * export_next's loop:
 *
 *   SELECT -> BEGIN -> MIDDLE, format->end (again for each pass of the format) -> DONE
 *
 *   MIDDLE, for each trajectory:  recall, build, audit, format->part, recall, check and expand,
 *   format->rest, format->one, format->lay, format->settle, drain the rope
 *
 * What has left memory is read back a part in each step, and held until the step behind it is over:
 * built, a trajectory has its own copy of nearly all.
 * Audits and format->lay of long trajectories are left to whoever has helper threads (export_work).
 *
 * A step's cost is counted in bytes, also where it makes no output (selection, audit, passes for
 * sizes), so a slice ends in time. What is known without building anything is checked at the end
 * of SELECT: most mistakes are errors before the first byte. A payload that cannot be read back is
 * noted in x->failed by whoever met it, and ends the export after that step.
 */
#include "worker/export/export.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/mem.h"
#include "worker/export/drift_audit.h"
#include "worker/export/export_format.h"
#include "worker/export/export_reward.h"
#include "worker/export/media_table.h"
#include "worker/export/pictures_layout.h"
#include "worker/export/select.h"
#include "worker/export/trajectory.h"
#include "worker/session/recall.h"
#include "worker/session/score.h"
#include "worker/session/session.h"
#include "worker/session/session_view.h"

/* What a step of the selection and a format's part of a trajectory count as, in bytes; tokens above
 * which a trajectory is work for a helper, a millisecond of encoding, and above which it is long
 * work there. */
enum {
    SELECT_WORK = 16 << 10,
    PART_WORK = 16 << 10,
    HELPED_TOKENS = 8 << 10,
    LONG_TOKENS = 4 * HELPED_TOKENS
};

int export_new(struct session *s, const struct model *m, struct model_scratch *scratch,
               const struct export_options *o, struct export **ret, struct err *e)
{
    struct score_wants *wants;
    struct export *x;

    *ret = NULL;
    if (export_options_check(o, e) != 0 || export_check_reward(s, o, e) != 0)
        return -1;
    if (session_foreign(s))
        m = NULL; /* what needs a tokenizer is left out: this one is not the session's */
    x = mem_zalloc(sizeof(*x));
    x->session = s;
    session_pin(s);
    x->arena.sum = x->scratch.sum = o->held_bytes;
    export_take_options(x, o);
    export_take_reward(x);
    wants = arena_alloc(&x->arena, sizeof(*wants));
    *wants = session_score_wants(s);
    x->score_wants = wants;
    x->format = export_format_of(o->format);
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

static int no_logprobs(const struct export *x, size_t trajectory, struct err *e)
{
    return err_set(e, ERR_UNASSEMBLABLE,
                   "the %s format needs the logprobs of every sampled token, and trajectory %zu "
                   "has none",
                   x->format->name, trajectory);
}

/* A part of the selection; at its end what is known without building anything is checked, so that
 * most of what is wrong is an error before the first byte. */
static int choose(struct export *x, struct err *e)
{
    size_t without;

    if (selection_next(&x->input, &x->options, x->selection))
        return 0;
    x->input.owners = x->selection->owners;
    x->step = EXPORT_BEGIN;
    if (x->options.strict && x->selection->textual > 0)
        return err_set(e, ERR_UNASSEMBLABLE,
                       "the session cannot be assembled: %u of its trajectories were captured as "
                       "text, without token ids",
                       x->selection->textual);
    without = x->format->needs_logprobs ? selection_without_logprobs(x->selection)
                                        : x->selection->tracks.n;
    if (without < x->selection->tracks.n)
        return no_logprobs(x, without, e);
    return selection_check(x->selection, x->session, e);
}

bool export_recalls(struct export *x)
{
    return recall_some(x->recall, RECALL_STEP, &x->failed) == 1;
}

static int check(const struct export *x, struct err *e)
{
    if (x->pass > 0)
        return 0;
    if (trajectory_check(&x->t, e) != 0)
        return -1;
    if (x->format->needs_logprobs && !x->t.logprobs)
        return no_logprobs(x, x->t.index, e);
    return x->format->check ? x->format->check(x, &x->t, e) : 0;
}

/* Begins the next trajectory, when all that it is made of is there; returns the bytes that took. */
static size_t build(struct export *x)
{
    const struct track *track = &x->selection->tracks.at[x->at];

    if (!x->recall->begun) {
        x->recall->rows = true;
        trajectory_note(track, x->recall);
    }
    if (export_recalls(x) || x->failed.kind != ERR_NONE)
        return PART_WORK;
    trajectory_build(&x->input, track, x->at, &x->scratch, &x->t);
    recall_done(x->recall);
    x->building = true;
    if (!trajectory_audit_kept(&x->input, &x->t) && trajectory_is_audited(&x->input, &x->t))
        x->auditing = AUDIT_DUE;
    return (size_t)x->t.total * sizeof(int32_t);
}

/* To a helper, where there is one and it is worth one. */
static bool hand_over(struct export *x)
{
    x->work_due = x->options.helped && x->t.total > HELPED_TOKENS;
    return x->work_due;
}

/* This and the next return the bytes of text that took. */
static size_t start_audit(struct export *x, struct model_scratch *scratch)
{
    trajectory_audit(&x->input, &x->t, scratch, x->audit);
    x->auditing = AUDIT_STARTED;
    return x->audit->text.len;
}

/* Its next part. */
static size_t go_on_auditing(struct export *x)
{
    size_t before = x->audit->at, work;
    bool more = drift_next(x->audit);

    work = x->audit->at - before;
    if (more)
        return work;
    trajectory_audited(x->audit, &x->scratch, &x->t);
    x->auditing = AUDIT_MADE;
    return work;
}

static void keep_audit(struct export *x)
{
    trajectory_keep_audit(x->session, &x->t);
    if (x->t.drift.count)
        x->drifted[x->t.drift.first]++;
    x->auditing = AUDIT_NONE;
}

/* The next step of an audit; returns the bytes that took. */
static size_t audit(struct export *x)
{
    if (x->auditing == AUDIT_DUE)
        return hand_over(x) ? 0 : start_audit(x, x->input.scratch);
    if (x->auditing == AUDIT_STARTED)
        return go_on_auditing(x);
    keep_audit(x);
    return 0;
}

static void lay(struct export *x)
{
    x->format->lay(x, &x->t);
    x->laid = true;
}

static bool is_laid(const struct export *x)
{
    return x->laid || x->pass > 0 || !x->format->lay;
}

bool export_has_work(const struct export *x)
{
    return x->work_due;
}

bool export_work_is_long(const struct export *x)
{
    return x->t.total > LONG_TOKENS;
}

/* Who gave it up drops the export. */
void export_work(struct export *x, struct model_scratch *scratch, void (*step)(void))
{
    if (x->auditing == AUDIT_DUE) {
        (void)start_audit(x, scratch);
        while (x->auditing == AUDIT_STARTED && !cancel_wanted()) {
            step();
            (void)go_on_auditing(x);
        }
    } else {
        lay(x);
    }
    x->work_due = false;
}

/* The rope has been drained: goes on to the next trajectory. */
static void forget_one(struct export *x)
{
    x->at++;
    x->building = x->checked = x->writing = x->laid = false;
    arena_reset(&x->scratch);
}

/* Its turns once more: it was built in an earlier slice. */
static bool reads_turns(struct export *x)
{
    if (!x->recall->begun) {
        x->recall->rows = false;
        trajectory_note_turns(&x->t, x->recall);
    }
    return export_recalls(x);
}

/* The trajectory at hand, which is held against what the engine was asked with. -1: it cannot be
 * exported. */
static int settle_one(struct export *x, struct err *e)
{
    if (check(x, e) != 0 ||
        trajectory_expand(&x->input, x->options.collapsed_ids, &x->scratch, &x->t, e) != 0 ||
        media_note(x, &x->t, e) != 0)
        return -1;
    recall_done(x->recall);
    export_sum_up(x, &x->t);
    x->checked = true;
    return 0;
}

/* Whether one of the two that are made in parts has made one. */
static bool is_in_parts(struct export *x)
{
    const struct format *f = x->format;

    if (x->writing || x->pass > 0)
        return false;
    if (!x->checked) /* those are over when the turns are read once more */
        return !x->recall->begun && f->part && f->part(x, &x->t);
    return f->rest && native_is_long(&x->t) && f->rest(x, &x->t);
}

/* Likewise behind `one`. */
static bool settles(struct export *x)
{
    return x->writing && is_laid(x) && x->pass == 0 && x->format->settle && x->format->settle(x);
}

/* A step of the trajectory at hand. Work that made no output counts too: neither a pass over sizes
 * nor the audit of a long one must hold the loop. Adds to *done. */
static int one(struct export *x, struct buf *out, size_t budget, size_t *done, struct err *e)
{
    size_t before = out->len;

    if (!x->building) {
        *done += build(x);
    } else if (x->auditing != AUDIT_NONE) {
        *done += audit(x);
    } else if (is_in_parts(x) || settles(x)) {
        *done += PART_WORK;
    } else if (!x->checked) {
        if (reads_turns(x))
            *done += PART_WORK;
        else if (x->failed.kind == ERR_NONE)
            return settle_one(x, e);
    } else if (!x->writing) {
        x->format->one(x, &x->t);
        x->writing = true;
    } else if (!is_laid(x)) {
        if (!hand_over(x))
            lay(x);
        *done += (size_t)x->t.total * sizeof(int32_t);
    } else {
        rope_drain(&x->rope, out, budget);
        *done += out->len - before;
        if (rope_empty(&x->rope))
            forget_one(x);
    }
    return 0;
}

/* The session knows what merging did; asked again, an export does the same once more. */
static void tell_merge(struct export *x)
{
    if (x->pass == 0)
        session_note_merge(x->session, x->sums.repaired, x->sums.lost, x->news);
}

static void end_of_pass(struct export *x, struct buf *out)
{
    tell_merge(x);
    if (x->format->end)
        x->format->end(x, out);
    x->pass++;
    x->at = x->format->takes_once ? x->selection->tracks.n : 0;
    x->input.audit = false; /* once is enough */
    x->step = x->pass < x->format->passes ? EXPORT_MIDDLE : EXPORT_DONE;
}

void export_defer(struct export *x, struct buf *b)
{
    if (b->len == 0)
        return;
    *vec_push(&x->parts) = *b;
    x->part_bytes += b->cap;
    *b = (struct buf){0};
}

static bool is_deferred(const struct export *x)
{
    return x->part < x->parts.n;
}

static size_t hand_out(struct export *x, struct buf *out, size_t max)
{
    struct buf *b = &x->parts.at[x->part];
    size_t n = MIN_OF(max, b->len - x->part_at);

    buf_add(out, b->p + x->part_at, n);
    x->part_at += n;
    if (x->part_at == b->len) {
        x->part_bytes -= b->cap;
        buf_done(b);
        x->part_at = 0;
        x->part++;
    }
    return n;
}

static bool is_over(const struct export *x)
{
    return x->step == EXPORT_DONE && !is_deferred(x) && rope_empty(&x->rope);
}

/* Texts that wait; arenas count themselves. */
static void count_texts(struct export *x)
{
    size_t now =
        x->part_bytes + x->made_bytes + x->rope.text.cap + x->rope.cap * sizeof(*x->rope.at);

    if (x->options.held_bytes)
        atomic_fetch_add_explicit(x->options.held_bytes, now - x->counted_bytes,
                                  memory_order_relaxed);
    x->counted_bytes = now;
}

static int some(struct export *x, struct buf *out, size_t budget_bytes, struct err *e)
{
    size_t done = 0;

    while (!is_over(x) && !x->work_due && done < budget_bytes) {
        if (is_deferred(x)) {
            done += hand_out(x, out, budget_bytes - done);
        } else if (x->step == EXPORT_SELECT) {
            if (choose(x, e) != 0)
                return -1;
            done += SELECT_WORK;
        } else if (x->step == EXPORT_BEGIN) {
            if (x->format->begin)
                x->format->begin(x, out);
            x->step = EXPORT_MIDDLE;
        } else if (!x->writing && !rope_empty(&x->rope)) { /* what the end of a pass has left */
            size_t before = out->len;

            rope_drain(&x->rope, out, budget_bytes - done);
            done += out->len - before;
        } else if (x->step == EXPORT_MIDDLE && x->at < x->selection->tracks.n) {
            if (one(x, out, budget_bytes - done, &done, e) != 0)
                return -1;
        } else {
            end_of_pass(x, out);
        }
        if (x->failed.kind != ERR_NONE) {
            *e = x->failed;
            return -1;
        }
    }
    return is_over(x);
}

int export_next(struct export *x, struct buf *out, size_t budget_bytes, struct err *e)
{
    int rc = some(x, out, budget_bytes, e);

    count_texts(x);
    return rc;
}

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

const char *export_content_type(const struct export *x)
{
    return x->format->content_type;
}

void export_free(struct export *x)
{
    if (!x)
        return;
    if (x->format->drop)
        x->format->drop(x);
    recall_done(x->recall);
    drift_drop(x->audit);
    native_rest_drop(x);
    rope_done(&x->rope);
    selection_done(x->selection);
    for (size_t i = x->part; i < x->parts.n; i++)
        buf_done(&x->parts.at[i]);
    x->part_bytes = 0;
    x->rope = (struct rope){0};
    count_texts(x);
    vec_done(&x->parts);
    media_drop(x);
    arena_done(&x->scratch);
    arena_done(&x->arena);
    session_let(x->session);
    free(x);
}
