/*
 * Each array covers every trained token or does not exist: a trainer could not explain gaps in it.
 * So the number of alternatives is the least that any trained turn has, and one turn without a
 * support removes all supports. Supports have different lengths. They are stored one after the
 * other, with the count of each token in an array of its own.
 */
#include "worker/export/build/trajectory_odds.h"

#include <math.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/check.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/text/request/odds.h"

void trajectory_add(struct trajectory *r, struct trajectory_array array)
{
    CHECK(r->n_arrays < TRAJECTORY_ARRAYS_MAX);
    r->arrays[r->n_arrays++] = array;
}

/* Returns how many alternatives every trained turn has; 0: a turn has none. */
static uint32_t common_top(const struct trajectory *r)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < r->n_turns; i++) {
        struct odds o = {0};

        if (!r->turns[i].trained)
            continue;
        (void)checkpoint_odds(r->turns[i].checkpoint, &o);
        least = MIN_OF(least, o.n_top);
    }
    return least == UINT32_MAX ? 0 : least;
}

static void fill_tops(struct arena *a, struct trajectory *r)
{
    uint32_t k = common_top(r);
    struct trajectory_odds *to = &r->odds;
    size_t cells = (size_t)r->n * k;

    if (k == 0)
        return;
    to->n_top = k;
    to->top_ids = arena_alloc(a, cells * sizeof(int32_t));
    to->top_logprobs = arena_alloc(a, cells * sizeof(float));
    for (size_t i = 0; i < cells; i++) {
        to->top_ids[i] = -1;
        to->top_logprobs[i] = -INFINITY;
    }
    for (uint32_t i = 0; i < r->n_turns; i++) {
        const struct trajectory_turn *x = &r->turns[i];
        struct odds o;

        if (!x->trained || !checkpoint_odds(x->checkpoint, &o))
            continue;
        for (uint32_t j = x->start; j < x->end; j++) {
            size_t from = (size_t)(j - x->start) * o.n_top;

            memcpy(to->top_ids + (size_t)j * k, o.top_ids + from, k * sizeof(int32_t));
            memcpy(to->top_logprobs + (size_t)j * k, o.top_logprobs + from, k * sizeof(float));
        }
    }
    trajectory_add(r,
                   (struct trajectory_array){"response_top_ids", false, {r->n, k}, 2, to->top_ids});
    trajectory_add(r, (struct trajectory_array){
                          "response_top_logprobs", true, {r->n, k}, 2, to->top_logprobs});
}

/* Counts the support ids of the first `tokens` tokens of an answer, which are those that the turn
 * has here. */
static size_t ids_of(const struct odds_support *s, uint32_t tokens)
{
    size_t n = 0;

    for (uint32_t i = 0; i < tokens; i++)
        n += (size_t)s->counts[i];
    return n;
}

/* Reports whether every trained turn has a support. *ret_ids: number of ids; *ret_logprobs: all
 * have logprobs. */
static bool sum_support(const struct trajectory *r, size_t *ret_ids, bool *ret_logprobs)
{
    *ret_ids = 0;
    *ret_logprobs = true;
    for (uint32_t i = 0; i < r->n_turns; i++) {
        const struct trajectory_turn *x = &r->turns[i];
        struct odds o = {0};

        if (!x->trained)
            continue;
        if (!checkpoint_odds(x->checkpoint, &o) || !o.support.counts)
            return false;
        *ret_logprobs = *ret_logprobs && o.support.logprobs;
        *ret_ids += ids_of(&o.support, x->end - x->start);
    }
    return r->trained > 0;
}

static void fill_support(struct arena *a, struct trajectory *r)
{
    struct odds_support *support;
    bool has_logprobs;
    size_t n_ids, at = 0;
    int32_t *counts, *ids;
    float *logprobs = NULL;

    if (!sum_support(r, &n_ids, &has_logprobs))
        return;
    counts = arena_calloc(a, r->n, sizeof(*counts));
    ids = arena_alloc(a, n_ids * sizeof(*ids));
    if (has_logprobs)
        logprobs = arena_alloc(a, n_ids * sizeof(*logprobs));
    for (uint32_t i = 0; i < r->n_turns; i++) {
        const struct trajectory_turn *x = &r->turns[i];
        struct odds o;
        size_t n;

        if (!x->trained || !checkpoint_odds(x->checkpoint, &o))
            continue;
        n = ids_of(&o.support, x->end - x->start);
        memcpy(counts + x->start, o.support.counts, (x->end - x->start) * sizeof(*counts));
        memcpy(ids + at, o.support.ids, n * sizeof(*ids));
        if (logprobs)
            memcpy(logprobs + at, o.support.logprobs, n * sizeof(*logprobs));
        at += n;
    }
    support = arena_alloc(a, sizeof(*support));
    *support = (struct odds_support){counts, ids, logprobs, n_ids};
    r->odds.support = support;
    trajectory_add(r,
                   (struct trajectory_array){"response_support_counts", false, {r->n}, 1, counts});
    trajectory_add(r, (struct trajectory_array){"response_support_ids", false, {n_ids}, 1, ids});
    if (logprobs)
        trajectory_add(
            r, (struct trajectory_array){"response_support_logprobs", true, {n_ids}, 1, logprobs});
}

void trajectory_fill_odds(struct arena *a, struct trajectory *r)
{
    fill_tops(a, r);
    fill_support(a, r);
}

/* --- scores of other engines --- */

void trajectory_fill_scores(const struct trajectory_input *in, struct arena *a,
                            struct trajectory *r)
{
    static const char *const arrays[SCORE_KINDS][3] = {
        [SCORE_TEACHER] = {"teacher_logprobs", "teacher_top_ids", "teacher_top_logprobs"},
        [SCORE_REFERENCE] = {"reference_logprobs", "reference_top_ids", "reference_top_logprobs"},
        [SCORE_SELF] = {"self_logprobs", "self_top_ids", "self_top_logprobs"},
    };

    r->scores = arena_calloc(a, SCORE_KINDS, sizeof(const struct score *));
    for (int i = 0; i < SCORE_KINDS && r->own && !r->track->tail; i++) {
        const struct score *x =
            session_score(r->session, r->track->head, (enum score_what)i, in->n_scores);
        struct score *copy;

        if (!x)
            continue;
        /* copied, because the session's table of scores moves when it grows */
        copy = arena_alloc(a, sizeof(*copy));
        *copy = *x;
        r->scores[i] = copy;
        trajectory_add(r,
                       (struct trajectory_array){arrays[i][0], true, {r->total}, 1, x->logprobs});
        if (x->top_k == 0)
            continue;
        trajectory_add(
            r, (struct trajectory_array){arrays[i][1], false, {r->total, x->top_k}, 2, x->top_ids});
        trajectory_add(r, (struct trajectory_array){
                              arrays[i][2], true, {r->total, x->top_k}, 2, x->top_logprobs});
    }
}
