/*
 * The steps, in their order:
 *
 *   branches of the session (or all checkpoints, or one branch)
 *   merge, or pick=drop_retries
 *   purposes, roles, max_tokens, select=last|longest, without those captured as text, train_once
 *
 * Each shortens `tracks` in place. `dropped` lists what max_tokens, purposes and the format's need
 * for tokens remove. A trajectory is cut by moving its head to an earlier checkpoint, so nothing is
 * copied. Two that were cut to the same head are one. Merging takes long and is done in steps; the
 * steps after it wait for its end (finish_selection).
 */
#include "worker/export/build/select.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/export/build/export.h"
#include "worker/export/build/pictures_layout.h"
#include "worker/export/build/timeline_merge.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"
#include "worker/text/request/purpose.h"

/* Adds tracks. `all`: including those that other pools than the session's answered. */
static void add_tracks(const struct session *s, const struct branch_vec *b, bool all,
                       struct track_vec *out)
{
    for (size_t i = 0; i < b->n; i++) {
        if (!all && !session_keeps_pool(s, b->at[i].head))
            continue;
        *vec_push(out) = (struct track){.head = b->at[i].head,
                                        .whole = b->at[i].head,
                                        .seq = b->at[i].seq,
                                        .reason = b->at[i].reason,
                                        .tail = b->at[i].tail,
                                        .tail_end = b->at[i].tail_end};
    }
}

/* Counts the branches that other pools answered, which are exported only by name. */
static void count_pools(const struct session *s, struct selection *out)
{
    struct session_view v = session_view(s);

    for (size_t i = 0; i < v.n_checkpoints; i++) {
        const struct checkpoint *t = v.checkpoints[i];

        if (!t->hidden && t->children == 0 && !session_keeps_pool(s, t))
            *vec_push(&out->dropped) = (struct dropped){t, t->total, t->depth, true, "pool"};
    }
}

static bool is_merging(const struct session *s, const struct export_options *o,
                       struct timeline_merge_rule *rule)
{
    bool timelines = str_eq_c(str_cstr(session_history(s)), "timelines");
    struct session_view v = session_view(s);

    *rule = (struct timeline_merge_rule){v.compare_tokens, v.ignore_tools};
    if (o->merge_set)
        rule->tokens = o->merge == MERGE_TOKEN;
    if (o->merge_set || o->ignore_tools_set)
        rule->ignore_tools = o->ignore_tools;
    return o->merge_set ? o->merge != MERGE_NONE : timelines && o->select != SELECT_ALL_CHECKPOINTS;
}

/* --- cutting by whole turns --- */

/* Returns the tokens of the trajectory. Answers of a merged one may be longer or shorter than its
 * head's copies. */
static uint64_t length_of(const struct trajectory_input *in, const struct track *t, uint64_t max)
{
    uint64_t extra = track_image_extra(in, t), most = track_total(t) + extra;
    struct arena tmp = {0};
    struct trajectory r;

    for (uint32_t i = 0; t->authors && i < checkpoint_messages(t->head); i++)
        most += t->authors[i] ? t->authors[i]->n : 0;
    if (!t->authors || most <= max)
        return most;
    trajectory_build(in, t, 0, &tmp, &r);
    most = r.total + extra;
    arena_done(&tmp);
    return most;
}

static bool is_author(const struct track *t)
{
    return !t->authors || t->authors[checkpoint_messages(t->head) - 1];
}

/* Cuts trajectories. Two that were cut to the same checkpoint become one. */
static void cut_tracks(const struct trajectory_input *in, struct selection *s, uint64_t max)
{
    char *seen = mem_zalloc(session_view(in->session).n_checkpoints + 1);
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++) {
        struct track t = s->tracks.at[i];
        uint32_t depth = t.head->depth,
                 tokens = track_total(&t) + (uint32_t)track_image_extra(in, &t);
        bool gone, tail = t.tail && tokens > max;

        if (tail)
            t.tail = NULL;
        while (t.head && (!is_author(&t) || length_of(in, &t, max) > max))
            t.head = t.head->parent;
        gone = !t.head || seen[t.head->id];
        if (t.head != t.whole || tail)
            *vec_push(&s->dropped) = (struct dropped){
                t.whole, tokens, depth - (t.head ? t.head->depth : 0), gone, "max_tokens"};
        if (gone)
            continue;
        seen[t.head->id] = 1;
        s->tracks.at[n++] = t;
    }
    s->tracks.n = n;
    free(seen);
}

/* --- picking --- */

static int by_path_length(const void *a, const void *b)
{
    const struct track *x = a, *y = b;

    if (x->whole->depth != y->whole->depth)
        return x->whole->depth < y->whole->depth ? 1 : -1;
    return (x->seq < y->seq) - (x->seq > y->seq);
}

/* Marks, by checkpoint id, leaves with a later sibling: abandoned retries. Only checkpoints on the
 * tracks count. The caller frees the result. */
static uint8_t *mark_retries(const struct session *session, const struct track_vec *v)
{
    struct session_view all = session_view(session);
    size_t n = all.n_checkpoints;
    uint32_t *newest = mem_calloc(n + 1, sizeof(*newest)); /* newest child of each checkpoint */
    uint8_t *seen = mem_zalloc(n + 1);

    for (size_t i = 0; i < v->n; i++)
        for (const struct checkpoint *t = v->at[i].whole; t && !seen[t->id]; t = t->parent) {
            seen[t->id] = 1;
            if (t->parent && t->seq + 1 > newest[t->parent->id])
                newest[t->parent->id] = t->seq + 1;
        }
    for (size_t i = 0; i < n; i++) {
        const struct checkpoint *t = all.checkpoints[i];

        seen[i] = seen[i] && t->parent && !newest[i] && newest[t->parent->id] > t->seq + 1;
    }
    free(newest);
    return seen;
}

static void drop_retries(const struct session *session, struct selection *s)
{
    uint8_t *given_up = mark_retries(session, &s->tracks);
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++)
        if (!given_up[s->tracks.at[i].whole->id])
            s->tracks.at[n++] = s->tracks.at[i];
    s->tracks.n = n;
    free(given_up);
}

static void sort_by_path(struct track_vec *v)
{
    if (v->n)
        qsort(v->at, v->n, sizeof(*v->at), by_path_length);
}

/* Returns how many tokens will have mask 1. A merged track has those of its authors. Other tracks
 * have those of their answers, without the ends that the next answer does not continue. A track
 * captured as text has none. */
static uint64_t trained_tokens(const struct trajectory_input *in, const struct track *t)
{
    const struct checkpoint *next = t->tail;
    uint64_t n = 0;

    if (t->head->text)
        return 0;
    for (uint32_t i = 0; t->authors && i < checkpoint_messages(t->head); i++)
        n += t->authors[i] && trajectory_trains(in, t->authors[i]) ? t->authors[i]->n : 0;
    for (const struct checkpoint *x = t->authors ? NULL : t->head; x; next = x, x = x->parent)
        n += trajectory_trains(in, x) ? x->n - (next ? next->trim : 0) : 0;
    return n;
}

static uint32_t response_length(const struct track *t)
{
    const struct checkpoint *first = t->head;

    while (first->parent)
        first = first->parent;
    return track_total(t) - checkpoint_start(first);
}

/* Compares by the number of trained tokens, then response length, then turns, then age (newest
 * wins). */
static bool is_longer(const struct trajectory_input *in, const struct track *a,
                      const struct track *b)
{
    uint64_t x = trained_tokens(in, a), y = trained_tokens(in, b);

    if (x != y)
        return x > y;
    if (response_length(a) != response_length(b))
        return response_length(a) > response_length(b);
    if (a->head->depth != b->head->depth)
        return a->head->depth > b->head->depth;
    return a->seq > b->seq;
}

static void keep_best(const struct trajectory_input *in, struct selection *s, bool longest)
{
    size_t best = s->tracks.n - 1;

    for (size_t i = 0; i < s->tracks.n && longest; i++)
        if (is_longer(in, &s->tracks.at[i], &s->tracks.at[best]))
            best = i;
    for (size_t i = 0; i < s->tracks.n && !longest; i++)
        if (s->tracks.at[i].seq > s->tracks.at[best].seq)
            best = i;
    s->tracks.at[0] = s->tracks.at[best];
    s->unchosen = s->tracks.n - 1;
    s->tracks.n = 1;
}

/* Keeps only the branch that ends at this answer. */
static void keep_branch(const struct session *session, struct selection *s, struct str response_id)
{
    const struct checkpoint *head = session_response(session, response_id);
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n && n == 0; i++)
        if (s->tracks.at[i].head == head)
            s->tracks.at[n++] = s->tracks.at[i];
    s->tracks.n = n;
}

/* --- train_once --- */

static int by_commit(const void *a, const void *b)
{
    const struct track *const *x = a, *const *y = b;

    return ((*x)->seq > (*y)->seq) - ((*x)->seq < (*y)->seq);
}

static void own_path(uint32_t *owners, const struct checkpoint *t, uint32_t who)
{
    if (!owners[t->id])
        owners[t->id] = who;
}

/* Chooses the owner of each completion that several tracks contain: the track that was committed
 * first trains it. In this order, the ancestors of a checkpoint that has an owner have owners,
 * too. */
static uint32_t *share_completions(const struct session *session, const struct track_vec *v)
{
    uint32_t *owners = mem_calloc(session_view(session).n_checkpoints + 1, sizeof(*owners));
    const struct track **order = mem_calloc(v->n + 1, sizeof(*order));

    for (size_t i = 0; i < v->n; i++)
        order[i] = &v->at[i];
    if (v->n)
        qsort(order, v->n, sizeof(*order), by_commit);
    for (size_t i = 0; i < v->n; i++) {
        const struct track *t = order[i];
        uint32_t who = (uint32_t)(t - v->at) + 1;

        for (uint32_t k = 0; t->authors && k < checkpoint_messages(t->head); k++)
            if (t->authors[k])
                own_path(owners, t->authors[k], who);
        for (const struct checkpoint *x = t->authors ? NULL : t->head; x && !owners[x->id];
             x = x->parent)
            own_path(owners, x, who);
    }
    free(order);
    return owners;
}

/* Drops trajectories that were captured as text, for formats made of tokens. */
static void drop_text(struct selection *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++) {
        const struct checkpoint *t = s->tracks.at[i].head;

        if (!t->text) {
            s->tracks.at[n++] = s->tracks.at[i];
            continue;
        }
        *vec_push(&s->dropped) = (struct dropped){t, 0, t->depth, true, "no_token_ids"};
        s->textual++;
    }
    s->tracks.n = n;
}

/* Drops trajectories whose newest checkpoint has none of the purposes, or of the roles. */
static void keep_listed(struct selection *s, const struct export_options *o, bool by_role)
{
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++) {
        const struct checkpoint *t = s->tracks.at[i].head;
        struct str label = checkpoint_remarks(t)->label;

        if (by_role ? roles_have(o->roles, label) : (o->purposes & 1u << purpose_of(label)) != 0)
            s->tracks.at[n++] = s->tracks.at[i];
        else
            *vec_push(&s->dropped) =
                (struct dropped){t, t->total, t->depth, true, by_role ? "role" : "purpose"};
    }
    s->tracks.n = n;
}

/* Does the steps after merging, or after pick if nothing is merged. */
static void finish_selection(const struct trajectory_input *in, const struct export_options *o,
                             struct selection *ret)
{
    if (o->drop_retries)
        sort_by_path(&ret->tracks);
    if (o->purposes)
        keep_listed(ret, o, false);
    if (o->roles.p)
        keep_listed(ret, o, true);
    if (o->has_max_tokens)
        cut_tracks(in, ret, o->max_tokens);
    if (ret->tracks.n && (o->select == SELECT_LAST || o->select == SELECT_LONGEST))
        keep_best(in, ret, o->select == SELECT_LONGEST);
    if (!in->text_too)
        drop_text(ret);
    if (o->train_once)
        ret->owners = share_completions(in->session, &ret->tracks);
}

void selection_start(const struct trajectory_input *in, const struct export_options *o,
                     struct arena *a, struct selection *ret)
{
    struct branch_vec b = {0};
    struct timeline_merge_rule rule;

    *ret = (struct selection){0};
    if (o->select == SELECT_ALL_CHECKPOINTS || o->branch.p)
        session_checkpoints(in->session, &b);
    else
        session_branches(in->session, &b);
    add_tracks(in->session, &b, o->branch.p != NULL, &ret->tracks);
    if (!o->branch.p)
        count_pools(in->session, ret);
    vec_done(&b);
    if (o->branch.p)
        keep_branch(in->session, ret, o->branch);
    else if (is_merging(in->session, o, &rule)) {
        uint8_t *skip = o->drop_retries ? mark_retries(in->session, &ret->tracks) : NULL;

        ret->merge = merge_new(in, &rule, skip, a);
        vec_clear(&ret->tracks);
        free(skip);
        return;
    }
    if (o->drop_retries)
        drop_retries(in->session, ret);
    finish_selection(in, o, ret);
}

bool selection_next(const struct trajectory_input *in, const struct export_options *o,
                    struct selection *s)
{
    if (!s->merge)
        return false;
    if (merge_next(s->merge))
        return true;
    merge_survivors(s->merge, &s->tracks);
    merge_done(s->merge);
    s->merge = NULL;
    finish_selection(in, o, s);
    return false;
}

void selection_done(struct selection *s)
{
    merge_done(s->merge);
    vec_done(&s->tracks);
    vec_done(&s->dropped);
    free(s->owners);
}

int selection_check(const struct selection *s, const struct session *session, struct err *e)
{
    uint8_t *seen = mem_zalloc(session_view(session).n_checkpoints + 1);
    int rc = 0;

    for (size_t i = 0; i < s->tracks.n && rc == 0; i++)
        for (const struct checkpoint *t = s->tracks.at[i].head; t && !seen[t->id] && rc == 0;
             t = t->parent) {
            seen[t->id] = 1;
            rc = trajectory_check_turn(session, t, e);
        }
    free(seen);
    return rc;
}

static bool has_logprobs(const struct track *t)
{
    for (uint32_t k = 0; t->authors && k < checkpoint_messages(t->head); k++)
        if (t->authors[k] && !t->authors[k]->has_logprobs)
            return false;
    for (const struct checkpoint *x = t->authors ? NULL : t->head; x; x = x->parent)
        if (!x->has_logprobs)
            return false;
    return true;
}

size_t selection_without_logprobs(const struct selection *s)
{
    size_t i = 0;

    while (i < s->tracks.n && has_logprobs(&s->tracks.at[i]))
        i++;
    return i;
}
