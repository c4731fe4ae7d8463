/*
 * A track names checkpoints. This file makes arrays of them:
 *
 *   recall_missing payloads must be in memory first; if that fails, the rest is skipped
 *   slots          regions of the head's ids for each answer: its own (own_slots), or,
 *                  in merged timelines, that of the message's author (merged_slots)
 *   lay_out        ids, prompt, response, turns; an author's ids replace those of a copy
 *   fill_*         mask and logprobs, versions, messages, routed experts, odds, scores
 *
 * A message that the head only had as context is found among its ids by two renderings: of what
 * precedes the message, and of what ends with it (find_rendered). If they do not agree with the
 * ids, the answer is `lost`. trajectory_check compares the result with what the engine was sent.
 */
#include "worker/export/build/trajectory.h"
#include "worker/export/build/drift_audit.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory_odds.h"
#include "worker/export/build/trajectory_rows.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/purpose.h"

uint32_t track_total(const struct track *t)
{
    return t->tail ? t->tail_end : t->head->total;
}

/* Ends a recall. A failure is recorded for the whole export, which keeps its first failure. */
static bool end_recall(const struct trajectory_input *in, struct recall *r)
{
    struct err e = {0};

    if (recall_end(r, &e) == 0)
        return true;
    if (in->failed && in->failed->kind == ERR_NONE)
        *in->failed = e;
    return false;
}

bool trajectory_recall(const struct trajectory_input *in, const struct checkpoint *t)
{
    struct recall r = {.session = in->session};

    recall_checkpoint(&r, t);
    return end_recall(in, &r);
}

void trajectory_note(const struct track *track, struct recall *ret)
{
    if (track->head->text)
        return;
    recall_path(ret, track->tail ? track->tail : track->head);
    for (uint32_t i = 0; track->authors && i < track->head->node->depth; i++)
        if (track->authors[i])
            recall_checkpoint(ret, track->authors[i]);
}

void trajectory_note_turns(const struct trajectory *r, struct recall *ret)
{
    for (uint32_t i = 0; i < r->n_turns && !r->text; i++)
        recall_checkpoint(ret, r->turns[i].checkpoint);
}

/* Reads back what is missing, in one step. Nothing is if `build` in export.c has read the track in
 * steps. For `length_of` in select.c, which has not, it reads everything. */
static bool recall_missing(const struct trajectory_input *in, const struct track *track)
{
    struct recall r = {.session = in->session, .rows = true};

    trajectory_note(track, &r);
    return end_recall(in, &r);
}

/* A region of the head's own ids for one turn: its own sampled ids, or a copy of those of the turn
 * that wrote this message (merged timelines). */
struct slot {
    struct checkpoint *checkpoint;
    uint32_t from, to; /* range in the head's ids */
    bool foreign;      /* the turn's ids replace from..to */
};

struct slots {
    struct slot *at;
    uint32_t n;
};

/* Returns the end of the parent's sampled ids after the child has dropped the overlap. */
static uint32_t end_before(const struct checkpoint *child)
{
    return checkpoint_start(child) - child->n_context;
}

static void own_slots(const struct track *track, struct arena *a, struct slots *ret)
{
    struct checkpoint **path = checkpoint_path(track->head, a);
    uint32_t end = track->tail ? end_before(track->tail) : track->head->total;

    ret->n = track->head->depth;
    ret->at = arena_calloc(a, ret->n, sizeof(*ret->at));
    for (uint32_t i = ret->n; i-- > 0; end = end_before(path[i]))
        ret->at[i] = (struct slot){path[i], checkpoint_start(path[i]), end, false};
}

/* --- merged timelines --- */

static bool is_stop(const struct model *m, int32_t id)
{
    const struct model_info *info = model_info(m);

    for (size_t i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return false;
}

/* State for finding a message in the head's ids. */
struct search {
    const struct trajectory_input *in;
    const struct track *track;
    const int32_t *ids; /* token ids of track->head */
    struct arena *arena;
};

/* Computes the ids that a call with the head's first n messages would have had after the ids of
 * `base`. */
static int render_behind(const struct search *s, const struct checkpoint *base, uint32_t n,
                         struct token_vec *out)
{
    const struct message_node *node = s->track->head->node;
    const struct prompt_env *g = node->env;
    struct json *messages = node_messages(node, s->arena);
    struct chat chat = {.messages = messages, .tools = g->tools, .kwargs = g->kwargs};
    struct model_suffix x = {0};
    struct model_tail tail;
    struct err e;
    int rc;

    messages->n = n;
    if (!base)
        return model_prompt(s->in->model, s->in->scratch, &chat, out, &e);
    tail = (struct model_tail){.last = {s->ids, base->total}, .cut = base->cut};
    while (node->depth > base->node->depth)
        node = node->parent;
    if (node != base->node && message_begins_with(&node->msg, base, &tail.added) &&
        !checkpoint_trim_added(s->in->model, base, tail.last, s->arena, &tail.added))
        return -1;
    rc = model_suffix(s->in->model, s->in->scratch, &chat, base->node->depth, &tail, &x, &e);
    *out = x.ids;
    return rc;
}

static bool stands_at(const int32_t *ids, uint32_t total, uint32_t at, const int32_t *what,
                      size_t n)
{
    return at <= total && n <= total - at && memcmp(ids + at, what, n * sizeof(*ids)) == 0;
}

/* Finds message `index`, which the head had as context, in the head's ids: by rendering again what
 * precedes it, and what ends with it. */
static bool find_rendered(const struct search *s, uint32_t index, struct slot *ret)
{
    uint32_t total = s->track->head->total;
    const struct checkpoint *q = s->track->head;
    struct token_vec before = {0}, with = {0};
    size_t end = 0;
    uint32_t at;
    bool ok;

    while (q->parent && q->parent->node->depth > index)
        q = q->parent;
    at = checkpoint_start(q) - q->n_context;
    ok = render_behind(s, q->parent, index, &before) == 0 &&
         render_behind(s, q->parent, index + 1, &with) == 0;
    for (end = ok ? with.n : 0; end > 0 && !is_stop(s->in->model, with.at[end - 1]);)
        end--;
    ok = ok && end > before.n && stands_at(s->ids, total, at, before.at, before.n) &&
         stands_at(s->ids, total, at, with.at, end);
    ret->from = at + (uint32_t)before.n;
    ret->to = at + (uint32_t)end;
    vec_done(&before);
    vec_done(&with);
    return ok;
}

/* Finds the region of an answer on the head's own path that a different answer replaces: including
 * the stop token if the other one has its own, else up to it. */
static bool take_over_region(const struct trajectory_input *in, const struct checkpoint *t,
                             const struct checkpoint *child, const int32_t *ids, uint32_t total,
                             struct slot *ret)
{
    const struct checkpoint *author = ret->checkpoint;
    uint32_t stop;

    if (child && child->trim)
        return false;
    ret->from = checkpoint_start(t);
    stop = t->cut ? t->total : t->total - 1;
    ret->to = stop;
    if (!author->cut && stop < total && in->model && is_stop(in->model, ids[stop]))
        ret->to++;
    return author->cut || ret->to > stop || stop == total;
}

static bool patch_slot(const struct trajectory_input *in, const struct track *track, uint32_t index,
                       const int32_t *ids, struct arena *a, struct slot *ret)
{
    struct checkpoint *author = track->authors[index];
    struct checkpoint *child = NULL, *t = track->head;

    *ret = (struct slot){.checkpoint = author, .foreign = true};
    for (; t && t->node->depth > index + 1; t = t->parent)
        child = t;
    if (t && t == author) {
        *ret = (struct slot){t, checkpoint_start(t), child ? end_before(child) : t->total, false};
        return true;
    }
    if (t && t->node->depth == index + 1)
        return take_over_region(in, t, child, ids, track->head->total, ret);
    if (!in->model || !find_rendered(&(struct search){in, track, ids, a}, index, ret))
        return false;
    if (author->cut)
        ret->to--; /* the template's own stop token is not replaced */
    return true;
}

/* Reports whether these are only the turns of the head's own path. */
static bool are_own(const struct track *track, const struct slots *slots)
{
    if (slots->n != track->head->depth)
        return false;
    for (uint32_t i = 0; i < slots->n; i++)
        if (slots->at[i].foreign)
            return false;
    return true;
}

static bool is_repair(const struct slot *s, const int32_t *ids)
{
    return s->foreign && (s->checkpoint->n != s->to - s->from ||
                          memcmp(checkpoint_ids(s->checkpoint), ids + s->from,
                                 s->checkpoint->n * sizeof(*ids)) != 0);
}

static void merged_slots(const struct trajectory_input *in, const int32_t *ids, struct arena *a,
                         struct slots *ret, struct trajectory *r)
{
    uint32_t depth = r->track->head->node->depth;

    ret->at = arena_calloc(a, depth, sizeof(*ret->at));
    ret->n = 0;
    r->lost = arena_calloc(a, depth, sizeof(struct checkpoint *));
    for (uint32_t i = 0; i < depth; i++) {
        struct checkpoint *author = r->track->authors[i];

        if (!author || author->n == 0)
            continue;
        if (patch_slot(in, r->track, i, ids, a, &ret->at[ret->n]))
            r->repaired += is_repair(&ret->at[ret->n++], ids);
        else
            r->lost[r->n_lost++] = author;
    }
}

/* --- arrays --- */

/* Lays out own turns, for which nothing moves. */
static void lay_out_own(const struct slots *slots, int32_t *own, uint32_t total, struct arena *a,
                        struct trajectory *r)
{
    r->ids = own;
    r->total = total;
    r->n_prompt = slots->at[0].from;
    r->n = total - r->n_prompt;
    r->n_turns = slots->n;
    r->turns = arena_calloc(a, slots->n, sizeof(*r->turns));
    for (uint32_t i = 0; i < slots->n; i++)
        r->turns[i] =
            (struct trajectory_turn){slots->at[i].checkpoint, slots->at[i].from - r->n_prompt,
                                     slots->at[i].to - r->n_prompt, true};
}

static void lay_out(const struct slots *slots, const int32_t *own, uint32_t own_total,
                    struct arena *a, struct trajectory *r)
{
    uint64_t total = own_total;
    uint32_t at = 0, from = 0;

    for (uint32_t i = 0; i < slots->n; i++)
        if (slots->at[i].foreign)
            total += slots->at[i].checkpoint->n;
    r->ids = arena_alloc(a, (total + 1) * sizeof(*r->ids));
    r->turns = arena_calloc(a, slots->n, sizeof(*r->turns));
    for (uint32_t i = 0; i < slots->n; i++) {
        const struct slot *s = &slots->at[i];
        uint32_t n = s->foreign ? s->checkpoint->n : s->to - s->from;

        memcpy(r->ids + at, own + from, (s->from - from) * sizeof(*own));
        at += s->from - from;
        memcpy(r->ids + at, s->foreign ? checkpoint_ids(s->checkpoint) : own + s->from,
               n * sizeof(*own));
        if (i == 0)
            r->n_prompt = at;
        r->turns[i] =
            (struct trajectory_turn){s->checkpoint, at - r->n_prompt, at - r->n_prompt + n, true};
        at += n;
        from = s->to;
    }
    memcpy(r->ids + at, own + from, (own_total - from) * sizeof(*own));
    r->total = at + own_total - from;
    r->n = r->total - r->n_prompt;
    r->n_turns = slots->n;
}

bool trajectory_trains(const struct trajectory_input *in, const struct checkpoint *t)
{
    struct str label = checkpoint_remarks(t)->label;

    return !t->copied && !checkpoint_pool(t).len &&
           (!in->train_purposes || in->train_purposes & 1u << purpose_of(label)) &&
           roles_have(in->train_roles, label);
}

static void fill_mask(const struct trajectory_input *in, struct arena *a, struct trajectory *r)
{
    bool logprobs = true;

    r->mask = arena_zalloc(a, r->n);
    for (uint32_t i = 0; i < r->n_turns; i++) {
        struct trajectory_turn *t = &r->turns[i];

        logprobs = logprobs && t->checkpoint->has_logprobs;
        t->trained = (!in->owners || in->owners[t->checkpoint->id] == r->index + 1) &&
                     trajectory_trains(in, t->checkpoint);
        if (!t->trained)
            continue;
        memset(r->mask + t->start, 1, t->end - t->start);
        r->trained += t->end - t->start;
    }
    if (!logprobs)
        return;
    r->logprobs = arena_calloc(a, r->n, sizeof(float));
    for (uint32_t i = 0; i < r->n_turns; i++)
        if (r->turns[i].trained)
            memcpy(r->logprobs + r->turns[i].start, checkpoint_logprobs(r->turns[i].checkpoint),
                   (r->turns[i].end - r->turns[i].start) * sizeof(float));
}

static void fill_span(struct trajectory *r, const struct trajectory_turn *t,
                      const struct checkpoint_version *v, int64_t number)
{
    for (uint32_t k = v->start; k < v->end && t->start + k < t->end; k++) {
        if (!t->trained || v->version.len == 0)
            continue;
        if (r->version_texts)
            r->version_texts[t->start + k] = v->version;
        else
            r->versions[t->start + k] = number;
    }
}

static void record_step(struct trajectory *r, int64_t step)
{
    r->min_step = !r->has_steps || step < r->min_step ? step : r->min_step;
    r->max_step = !r->has_steps || step > r->max_step ? step : r->max_step;
    r->has_steps = true;
}

/* Fills the versions. The tokens of a span without a version are unknown, like those of a turn
 * without spans. Other spans keep theirs. */
static void fill_versions(struct arena *a, struct trajectory *r)
{
    bool any = false, numbers = true;
    uint64_t number = 0;

    for (uint32_t i = 0; i < r->n_turns; i++)
        for (uint32_t k = 0; k < r->turns[i].checkpoint->n_versions; k++) {
            struct str version = r->turns[i].checkpoint->versions[k].version;

            if (version.len == 0)
                continue;
            any = true;
            if (str_to_u64(version, INT64_MAX, &number) == 0)
                record_step(r, (int64_t)number);
            else
                numbers = false;
        }
    if (!any)
        return;
    r->has_steps = r->has_steps && numbers;
    if (numbers) {
        r->versions = arena_alloc(a, r->n * sizeof(*r->versions));
        for (uint32_t i = 0; i < r->n; i++)
            r->versions[i] = -1;
    } else {
        r->version_texts = arena_calloc(a, r->n, sizeof(*r->version_texts));
    }
    for (uint32_t i = 0; i < r->n_turns; i++)
        for (uint32_t k = 0; k < r->turns[i].checkpoint->n_versions; k++) {
            const struct checkpoint_version *v = &r->turns[i].checkpoint->versions[k];

            (void)str_to_u64(v->version, INT64_MAX, &number);
            fill_span(r, &r->turns[i], v, (int64_t)number);
        }
}

/* Returns the last message; NULL for a completion. */
static const struct message_node *last_node(const struct track *t)
{
    return t->tail ? t->tail->node->parent : t->head->node;
}

/* An answer to which the client added text is not on the path: the client's message is. */
static void fill_messages(struct arena *a, struct trajectory *r)
{
    const struct message_node *node = last_node(r->track), *at = node;

    r->messages = node_messages(node, a);
    r->generated = arena_zalloc(a, r->messages->n + (size_t)1);
    r->verl_num_turns = 1;
    for (uint32_t i = r->n_turns; node && i-- > 0;) {
        const struct checkpoint *t = r->turns[i].checkpoint;
        struct json *m = &r->messages->items[t->node->depth - 1];

        while (at->depth > t->node->depth)
            at = at->parent;
        *m = at == t->node || r->track->authors ? *t->message
                                                : message_with_thought(m, t->message, a);
        r->generated[t->node->depth - 1] = 1;
    }
    for (uint32_t i = 0; i < r->messages->n; i++) {
        struct str role = json_string(json_get(&r->messages->items[i], "role"));

        r->verl_num_turns += str_eq_c(role, "user") || str_eq_c(role, "assistant");
    }
}

/* --- the audit --- */

bool trajectory_is_audited(const struct trajectory_input *in, const struct trajectory *r)
{
    return in->audit && in->model && last_node(r->track) && !r->text;
}

void trajectory_audit(const struct trajectory_input *in, const struct trajectory *r,
                      struct model_scratch *scratch, struct drift_audit *ret)
{
    const struct prompt_env *g = last_node(r->track)->env;
    struct chat chat = {.messages = r->messages, .tools = g->tools, .kwargs = g->kwargs};

    drift_start(ret, in->model, scratch, &chat);
}

void trajectory_audited(struct drift_audit *audit, struct arena *a, struct trajectory *r)
{
    uint8_t *written = arena_zalloc(a, r->total);

    for (uint32_t i = 0; i < r->n_turns; i++)
        memset(written + r->n_prompt + r->turns[i].start, 1, r->turns[i].end - r->turns[i].start);
    drift_finish(audit, (struct token_span){r->ids, r->total}, written, &r->drift);
}

void trajectory_keep_audit(struct session *s, const struct trajectory *r)
{
    struct checkpoint_audit found = {.done = true,
                                     .audited = r->drift.audited,
                                     .first = (uint8_t)r->drift.first,
                                     .count = r->drift.count,
                                     .position = r->drift.position};

    if (r->own && !r->track->tail)
        session_record_audit(s, r->track->head, &found);
}

bool trajectory_audit_kept(const struct trajectory_input *in, struct trajectory *r)
{
    const struct checkpoint_audit *kept = &r->track->head->audit;

    if (!in->audit || !r->own || r->track->tail || !kept->done)
        return false;
    r->drift = (struct drift){.audited = kept->audited,
                              .count = kept->count,
                              .first = (enum drift_kind)kept->first,
                              .position = kept->position};
    return true;
}

/* Makes the turns of a history captured as text: the authors of its messages, and no tokens. */
static void text_turns(const struct track *track, struct arena *a, struct trajectory *r)
{
    struct checkpoint **path = checkpoint_path(track->head, a);
    uint32_t n = track->authors ? track->head->node->depth : track->head->depth;

    r->text = true;
    r->turns = arena_calloc(a, n, sizeof(*r->turns));
    for (uint32_t i = 0; i < n; i++) {
        struct checkpoint *t = track->authors ? track->authors[i] : path[i];

        if (t)
            r->turns[r->n_turns++] = (struct trajectory_turn){.checkpoint = t};
    }
}

void trajectory_build(const struct trajectory_input *in, const struct track *track, size_t index,
                      struct arena *a, struct trajectory *ret)
{
    struct slots slots = {0};
    const struct checkpoint *last;
    int32_t *own;

    *ret = (struct trajectory){.session = in->session, .track = track, .index = index};
    /* If reading back fails, the trajectory stays empty, because the export fails. */
    if (track->head->text || !recall_missing(in, track)) {
        text_turns(track, a, ret);
        fill_messages(a, ret);
        return;
    }
    last = track->tail ? track->tail : track->head;
    own = arena_alloc(a, last->total * sizeof(*own));
    checkpoint_copy(last, own);
    if (track->authors)
        merged_slots(in, own, a, &slots, ret);
    else
        own_slots(track, a, &slots);
    ret->own = are_own(track, &slots);
    if (!ret->own) {
        lay_out(&slots, own, track->head->total, a, ret);
    } else {
        lay_out_own(&slots, own, track_total(track), a, ret);
    }
    fill_mask(in, a, ret);
    fill_versions(a, ret);
    fill_messages(a, ret);
    trajectory_fill_experts(a, ret);
    trajectory_fill_odds(a, ret);
    trajectory_fill_indexer(in->indexer, a, ret);
    trajectory_fill_scores(in, a, ret);
    for (const struct checkpoint *t = last; t; t = t->parent)
        ret->trimmed += t->trim;
}

/* --- invariants --- */

static int fail_invariant(const struct checkpoint *t, const char *what, struct err *e)
{
    return err_set(e, ERR_UNASSEMBLABLE, "the trajectory cannot be assembled: %s (turn %u, %.*s)",
                   what, t->depth, (int)t->response_id.len, t->response_id.p);
}

int trajectory_check_turn(const struct session *s, const struct checkpoint *t, struct err *e)
{
    uint32_t before = t->parent ? t->parent->total - t->trim : 0;

    if (t->text)
        return 0; /* no tokens to agree */
    if (t->parent && t->trim > t->parent->n)
        return fail_invariant(t, "it drops more than the answer before it", e);
    if (t->total != before + t->n_context + t->n)
        return fail_invariant(t, "its lengths disagree", e);
    if (checkpoint_prompt_tokens(s, t) != checkpoint_start(t))
        return fail_invariant(t, "its prompt is not what the engine was asked with", e);
    if (t->parent && t->n_context == 0)
        return fail_invariant(t, "nothing stands between it and the answer before", e);
    return 0;
}

/* Reports whether the ids are those that the engine returned. The last ones may have been dropped
 * (declared: the next turn's trim). */
static bool is_answer(const struct trajectory *r, const struct trajectory_turn *x, uint32_t trim)
{
    const struct checkpoint *t = x->checkpoint;

    return x->start <= x->end && x->end <= r->n && x->end - x->start + trim == t->n &&
           memcmp(r->ids + r->n_prompt + x->start, checkpoint_ids(t),
                  (x->end - x->start) * sizeof(*r->ids)) == 0;
}

static int check_turn(const struct trajectory *r, uint32_t i, struct err *e)
{
    const struct trajectory_turn *x = &r->turns[i];
    const struct trajectory_turn *next = i + 1 < r->n_turns ? x + 1 : NULL;
    const struct checkpoint *tail = r->track->tail;
    uint32_t trim = x->checkpoint->n - MIN_OF(x->checkpoint->n, x->end - x->start);

    if (r->own && checkpoint_start(x->checkpoint) != r->n_prompt + x->start)
        return fail_invariant(x->checkpoint, "its prompt is not what stands before it", e);
    if (r->own && trim != (next ? next->checkpoint->trim : tail ? tail->trim : 0))
        return fail_invariant(x->checkpoint, "an answer's end is missing", e);
    if (!is_answer(r, x, trim))
        return fail_invariant(x->checkpoint, "its ids are not the engine's", e);
    if (next && x->end >= next->start)
        return fail_invariant(next->checkpoint, "nothing stands between it and the answer before",
                              e);
    return 0;
}

/* Checks that every turn was requested with exactly the ids before it. */
static int check_sent(const struct trajectory *r, struct err *e)
{
    uint64_t h = IDS_HASH_NONE;
    uint32_t at = 0;

    for (uint32_t i = 0; i < r->n_turns && r->own; i++) {
        uint32_t start = r->n_prompt + r->turns[i].start;

        h = ids_hash(h, r->ids + at, start - at);
        at = start;
        if (r->turns[i].checkpoint->sent && r->turns[i].checkpoint->sent != h)
            return fail_invariant(r->turns[i].checkpoint,
                                  "its prompt is not what the engine was asked with", e);
    }
    return 0;
}

/* Checks that mask 1 and logprobs other than 0 are only on trained answers, and versions only on
 * answers. */
static bool arrays_agree(const struct trajectory *r)
{
    uint32_t at = 0, ones = 0;
    uint8_t stray = 0;

    for (uint32_t i = 0; i < r->n_turns; i++) {
        uint32_t end = r->turns[i].trained ? r->turns[i].end : at;

        for (uint32_t k = at; k < (r->turns[i].trained ? r->turns[i].start : at); k++)
            stray |= r->mask[k] | (r->logprobs && r->logprobs[k] != 0);
        for (uint32_t k = MAX_OF(at, r->turns[i].start); k < end; k++)
            ones += r->mask[k];
        at = end;
    }
    for (uint32_t k = at; k < r->n; k++)
        stray |= r->mask[k] | (r->logprobs && r->logprobs[k] != 0);
    return !stray && ones == r->trained;
}

int trajectory_check(const struct trajectory *r, struct err *e)
{
    struct checkpoint *head = r->track->head;

    if (r->text)
        return 0; /* no tokens to agree */
    if (r->n_turns == 0 || r->turns[0].start != 0)
        return fail_invariant(head, "its response begins with no answer", e);
    if (r->n_prompt + r->n != r->total || (r->own && r->total != track_total(r->track)))
        return fail_invariant(head, "its lengths disagree", e);
    for (uint32_t i = 0; i < r->n_turns; i++)
        if (check_turn(r, i, e) != 0)
            return -1;
    if (check_sent(r, e) != 0)
        return -1;
    return arrays_agree(r) ? 0 : fail_invariant(head, "its mask marks what no answer holds", e);
}

/* --- rewards --- */

const struct reward *trajectory_turn_reward(const struct session *s, const struct checkpoint *t)
{
    return session_response_reward(s, t->response_id);
}
