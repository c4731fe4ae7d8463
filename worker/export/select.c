#include "worker/export/select.h"

#include <stdlib.h>

#include "worker/session/branch.h"

static void take(const struct branch_vec *b, struct track_vec *out)
{
    for (size_t i = 0; i < b->n; i++)
        *vec_push(out) = (struct track){.head = b->at[i].head,
                                        .whole = b->at[i].head,
                                        .seq = b->at[i].seq,
                                        .reason = b->at[i].reason};
}

static bool merges(const struct session *s, const struct export_options *o, struct merge_rule *rule)
{
    bool timelines = str_eq_c(str_cstr(session_history(s)), "timelines");

    *rule = (struct merge_rule){s->options.compare_tokens, s->options.ignore_tools};
    if (o->merge_set)
        *rule = (struct merge_rule){o->merge == MERGE_TOKEN, o->ignore_tools};
    return o->merge_set ? o->merge != MERGE_NONE : timelines && o->select != SELECT_ALL_CHECKPOINTS;
}

/* --- cutting by whole turns --- */

/* Two trajectories that were cut to the same turn are one. */
static void cut(const struct session *session, struct selection *s, uint64_t max)
{
    char *seen = mem_zalloc(session->forest.turns.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++) {
        struct track t = s->tracks.at[i];
        uint32_t turns = t.head->depth;
        bool gone;

        while (t.head &&
               (t.head->total > max || (t.authors && !t.authors[t.head->node->depth - 1])))
            t.head = t.head->parent;
        gone = !t.head || seen[t.head->id];
        if (t.head != t.whole)
            *vec_push(&s->dropped) = (struct dropped){
                t.whole, t.whole->total, turns - (t.head ? t.head->depth : 0), gone, "max_tokens"};
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

/* A leaf with a later sibling under the same turn was a try that was given up. */
static void drop_retries(const struct session *session, struct selection *s)
{
    size_t turns = session->forest.turns.n, n = 0;
    uint32_t *newest = mem_calloc(turns + 1, sizeof(*newest));

    for (size_t i = 0; i < turns; i++) {
        const struct turn *t = session->forest.turns.at[i];

        if (t->parent && !t->hidden && t->seq + 1 > newest[t->parent->id])
            newest[t->parent->id] = t->seq + 1;
    }
    for (size_t i = 0; i < s->tracks.n; i++) {
        const struct turn *t = s->tracks.at[i].whole;

        if (!t->parent || newest[t->parent->id] == t->seq + 1)
            s->tracks.at[n++] = s->tracks.at[i];
    }
    s->tracks.n = n;
    if (n)
        qsort(s->tracks.at, n, sizeof(*s->tracks.at), by_path_length);
    free(newest);
}

static uint64_t trained_tokens(const struct track *t)
{
    uint64_t n = 0;

    for (const struct turn *x = t->head; x; x = x->parent)
        n += x->n;
    return n;
}

static uint32_t response_length(const struct track *t)
{
    const struct turn *first = t->head;

    while (first->parent)
        first = first->parent;
    return t->head->total - turn_start(first);
}

/* Most trained tokens, then response length, then turns, then newest. */
static bool longer(const struct track *a, const struct track *b)
{
    uint64_t x = trained_tokens(a), y = trained_tokens(b);

    if (x != y)
        return x > y;
    if (response_length(a) != response_length(b))
        return response_length(a) > response_length(b);
    if (a->head->depth != b->head->depth)
        return a->head->depth > b->head->depth;
    return a->seq > b->seq;
}

static void keep_one(struct selection *s, bool longest)
{
    size_t best = s->tracks.n - 1;

    for (size_t i = 0; i < s->tracks.n && longest; i++)
        if (longer(&s->tracks.at[i], &s->tracks.at[best]))
            best = i;
    for (size_t i = 0; i < s->tracks.n && !longest; i++)
        if (s->tracks.at[i].seq > s->tracks.at[best].seq)
            best = i;
    s->tracks.at[0] = s->tracks.at[best];
    s->tracks.n = 1;
}

/* --- train_once --- */

static void own_turn(uint32_t *owners, const struct track_vec *v, const struct turn *t, size_t i)
{
    uint32_t had = owners[t->id];

    if (!had || v->at[i].seq < v->at[had - 1].seq)
        owners[t->id] = (uint32_t)i + 1;
}

/* The earliest committed of the tracks that hold a completion trains it. */
static uint32_t *share(const struct session *session, const struct track_vec *v)
{
    uint32_t *owners = mem_calloc(session->forest.turns.n + 1, sizeof(*owners));

    for (size_t i = 0; i < v->n; i++) {
        const struct track *t = &v->at[i];

        for (uint32_t k = 0; t->authors && k < t->head->node->depth; k++)
            if (t->authors[k])
                own_turn(owners, v, t->authors[k], i);
        for (const struct turn *x = t->authors ? NULL : t->head; x; x = x->parent)
            own_turn(owners, v, x, i);
    }
    return owners;
}

void selection_make(const struct trajectory_input *in, const struct export_options *o,
                    struct arena *a, struct selection *ret)
{
    struct branch_vec b = {0};
    struct merge_rule rule;

    *ret = (struct selection){0};
    if (merges(in->session, o, &rule)) {
        merge_timelines(in, &rule, a, &ret->tracks);
    } else {
        if (o->select == SELECT_ALL_CHECKPOINTS)
            session_checkpoints(in->session, &b);
        else
            session_branches(in->session, &b);
        take(&b, &ret->tracks);
        vec_done(&b);
        if (o->drop_retries)
            drop_retries(in->session, ret);
    }
    if (o->max_tokens)
        cut(in->session, ret, o->max_tokens);
    if (ret->tracks.n && (o->select == SELECT_LAST || o->select == SELECT_LONGEST))
        keep_one(ret, o->select == SELECT_LONGEST);
    if (o->train_once)
        ret->owners = share(in->session, &ret->tracks);
}

void selection_drop_text(struct selection *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->tracks.n; i++) {
        const struct turn *t = s->tracks.at[i].head;

        if (t->text)
            *vec_push(&s->dropped) = (struct dropped){t, 0, t->depth, true, "no_token_ids"};
        else
            s->tracks.at[n++] = s->tracks.at[i];
    }
    s->tracks.n = n;
}

void selection_done(struct selection *s)
{
    vec_done(&s->tracks);
    vec_done(&s->dropped);
    free(s->owners);
}
