/*
 * book_apply reads one record and calls the apply_* function of its kind. Each of these first
 * checks whether the record fits. Only then does it change anything, so a record that does not fit
 * leaves the book as it was.
 *
 * States change only in set_group_state and set_rollout_state. They also update the counts of
 * groups and queues, and the lanes (book_lanes.h). attempt_over and settle follow an end: the
 * rollout gets its verdict. The group settles when n rollouts have succeeded or nothing can change.
 * Events follow their change, except `gone`, which comes while the group is still complete.
 */
#include "dispatcher/book.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "dispatcher/book_lanes.h"
#include "dispatcher/book_record.h"

void book_init(struct book *b)
{
    *b = (struct book){.next_seq = 1};
}

bool book_has_lost(const struct book *b)
{
    return b->places && place_table_is_taken(b->places, FLEET_DISPATCHER);
}

void book_forget_gone(struct book *b)
{
    struct group *g;

    while ((g = LIST_FIRST_OF(&b->gone, struct group, all_entry))) {
        list_remove(&g->all_entry);
        group_free(g);
    }
    map_done(&b->gone_groups);
    map_done(&b->gone_attempts);
    b->gone_groups = b->gone_attempts = (struct map){0};
    b->keeps_gone = false;
}

void book_done(struct book *b)
{
    struct group *g;

    book_forget_gone(b);
    while ((g = LIST_FIRST_OF(&b->all, struct group, all_entry))) {
        list_remove(&g->all_entry);
        group_free(g);
    }
    for (size_t i = 0; i < b->queues.n; i++) {
        free(b->queues.at[i]->name);
        free(b->queues.at[i]);
    }
    vec_done(&b->queues);
    book_runners_done(b);
    map_done(&b->groups);
    map_done(&b->attempts);
}

struct group *book_group(const struct book *b, struct str id)
{
    return map_get(&b->groups, id);
}

struct attempt *book_attempt(const struct book *b, struct str id)
{
    return map_get(&b->attempts, id);
}

struct group *book_gone_group(const struct book *b, struct str id)
{
    return map_get(&b->gone_groups, id);
}

struct attempt *book_gone_attempt(const struct book *b, struct str id)
{
    return map_get(&b->gone_attempts, id);
}

struct queue *book_queue(const struct book *b, struct str name)
{
    for (size_t i = 0; i < b->queues.n; i++)
        if (str_eq_c(name, b->queues.at[i]->name))
            return b->queues.at[i];
    return NULL;
}

static struct queue *queue_made(struct book *b, struct str name)
{
    struct queue *q = book_queue(b, name);

    if (q)
        return q;
    q = mem_zalloc(sizeof(*q));
    q->name = mem_strndup(name.p, name.len);
    *vec_push(&b->queues) = q;
    return q;
}

/* --- changes of state --- */

static void set_group_state(struct book *b, struct group *g, enum group_state state)
{
    if (g->queue) {
        g->queue->n_groups[g->state]--;
        g->queue->n_groups[state]++;
    }
    if (!group_settled(g) && state >= GROUP_FINISHED)
        b->n_waiting--;
    g->state = state;
}

static void set_rollout_state(struct rollout *r, enum rollout_state state)
{
    struct group *g = r->group;

    g->waiting -= r->state == ROLLOUT_WAITING;
    g->running -= r->state == ROLLOUT_RUNNING;
    g->succeeded -= r->state == ROLLOUT_SUCCEEDED;
    if (g->queue)
        g->queue->rollouts_running -= r->state == ROLLOUT_RUNNING;
    r->state = state;
    g->waiting += state == ROLLOUT_WAITING;
    g->running += state == ROLLOUT_RUNNING;
    g->succeeded += state == ROLLOUT_SUCCEEDED;
    if (g->queue)
        g->queue->rollouts_running += state == ROLLOUT_RUNNING;
    if (state == ROLLOUT_WAITING)
        lane_enter(g);
    else
        lane_leave(g);
}

/* Reports whether the end of an attempt, which is not `ok`, counts as a failure of its runner.
 * These ends do not count: the attempt was asked to end (with its group, or at its group's
 * deadline), its executor was lost or stopped, its session was refused, or the run ended well but
 * its result could not be determined. */
static bool is_failure(const struct attempt *a)
{
    return a->outcome != OUTCOME_CANCELLED && !a->lost && !a->refused && !a->kill &&
           !a->rollout->result.beside;
}

static void attempt_over(struct book *b, struct attempt *a, enum outcome outcome,
                         enum rollout_state verdict)
{
    struct runner *r = a->rollout->group->runner;

    a->ended = true;
    a->outcome = outcome;
    a->verdict = verdict;
    list_remove(&a->entry);
    r->running--;
    r->outcomes[outcome]++;
    if (outcome == OUTCOME_OK)
        r->failures = 0;
    else if (is_failure(a))
        r->failures++;
    set_rollout_state(a->rollout, verdict);
    if (b->events)
        b->events->attempt_over(b->events_ctx, a);
}

/* Ends the rollouts of a group that begins no attempts any longer. Waiting rollouts get the state
 * `waiting` (cancelled, or failed at a deadline). With `running`, running ones are cancelled. */
static void close_rollouts(struct book *b, struct group *g, bool running,
                           enum rollout_state waiting)
{
    lane_begin(g);
    for (uint32_t i = 0; i < group_rollouts(g); i++) {
        struct rollout *r = &g->rollouts[i];

        if (r->state == ROLLOUT_RUNNING && running) {
            r->result.outcome = OUTCOME_CANCELLED;
            r->result.has_outcome = true;
            attempt_over(b, r->last, OUTCOME_CANCELLED, ROLLOUT_CANCELLED);
        } else if (r->state == ROLLOUT_WAITING) {
            set_rollout_state(r, waiting);
        }
    }
}

static void offer_group(struct book *b, struct group *g, uint64_t at_ms)
{
    g->settled_at_ms = at_ms;
    if (g->queue) {
        list_append(&g->queue->settled, &g->settled_entry);
        g->queue->offered++;
        g->delivery = DELIVERY_OFFERED;
    }
    if (b->events)
        b->events->settled(b->events_ctx, g);
}

/* Returns the state of a group whose rollouts can no longer change. */
static enum group_state judge_group(const struct group *g)
{
    if (g->succeeded >= g->spec.n)
        return GROUP_FINISHED;
    return g->succeeded >= g->spec.min && g->succeeded > 0 ? GROUP_PARTIAL : GROUP_FAILED;
}

/* Settles the group if n rollouts have succeeded or none can change any longer. */
static void settle_if_decided(struct book *b, struct group *g, uint64_t at_ms)
{
    if (group_settled(g) || (g->succeeded < g->spec.n && g->waiting + g->running > 0))
        return;
    set_group_state(b, g, judge_group(g));
    close_rollouts(b, g, true, ROLLOUT_CANCELLED); /* the rollouts beyond n are not needed */
    lane_leave(g);
    offer_group(b, g, at_ms);
}

/* --- records --- */

static int apply_group(struct book *b, const struct json *r, struct err *e)
{
    const struct json *body = json_get(r, "group");
    struct group_spec spec;
    struct group *g;

    if (group_parse(body, NULL, (struct str){0}, "", &spec, e))
        return -1;
    if (book_group(b, spec.id))
        return err_set(e, ERR_INVALID, "the group is there already");
    g = group_new(&spec, body);
    g->runner = book_runner_made(b, spec.runner);
    g->queue = spec.queue.p ? queue_made(b, spec.queue) : NULL;
    g->seq = MAX_OF(record_seq(r), b->next_seq);
    b->next_seq = g->seq + 1;
    g->submitted_at_ms = record_at(r);
    (void)map_set(&b->groups, g->spec.id, g);
    list_append(&b->all, &g->all_entry);
    if (g->queue) {
        list_append(&g->queue->groups, &g->queue_entry);
        g->queue->n_groups[GROUP_WAITING]++;
    }
    b->n_waiting++;
    lane_enter(g);
    return 0;
}

static struct rollout *member_of(struct group *g, const struct json *r)
{
    int64_t k = 0;

    if (!g || json_to_i64(json_get(r, "rollout"), &k) || k < 0 || k >= group_rollouts(g))
        return NULL;
    lane_begin(g);
    return &g->rollouts[k];
}

static int apply_claim(struct book *b, struct group *g, const struct json *r, struct err *e)
{
    struct str id = json_string(json_get(r, "attempt"));
    struct str session = json_string(json_get(r, "session"));
    struct str executor = json_string(json_get(r, "executor"));
    struct rollout *m = member_of(g, r);
    struct attempt *a;

    if (!m || m->state != ROLLOUT_WAITING || group_settled(g) || id.len != ATTEMPT_ID_LEN ||
        !session.p || session.len >= SESSION_ID_MAX || !executor.p || book_attempt(b, id))
        return err_set(e, ERR_INVALID, "the claim does not fit its group");
    a = mem_zalloc(sizeof(*a));
    memcpy(a->id, id.p, id.len);
    memcpy(a->session, session.p, session.len);
    a->executor = mem_strndup(executor.p, executor.len);
    a->rollout = m;
    a->before = m->last;
    a->number = m->last ? m->last->number + 1 : 1;
    a->claimed_at_ms = record_at(r);
    m->last = a;
    m->reserved = false;
    (void)map_set(&b->attempts, str_cstr(a->id), a);
    list_append(&b->running, &a->entry);
    g->runner->running++;
    if (g->state == GROUP_WAITING)
        set_group_state(b, g, GROUP_RUNNING);
    set_rollout_state(m, ROLLOUT_RUNNING);
    return 0;
}

static int apply_end(struct book *b, const struct json *r, struct err *e)
{
    struct attempt *a = book_attempt(b, json_string(json_get(r, "attempt")));
    enum outcome outcome = record_outcome(r);
    struct rollout *m;
    struct group *g;
    enum rollout_state verdict;

    if (!a || a->ended || outcome == OUTCOMES)
        return err_set(e, ERR_INVALID, "the end does not fit an attempt that runs");
    m = a->rollout;
    g = m->group;
    a->lost = json_is_true(json_get(r, "lost"));
    a->refused = json_is_true(json_get(r, "refused"));
    /* Records of earlier programs have no `open`. Their verdict is the same as it was then. */
    verdict = book_verdict(a, outcome, !json_is_true(json_get(r, "open")));
    m->errors += outcome == OUTCOME_ERROR || outcome == OUTCOME_TIMEOUT;
    m->infras += outcome == OUTCOME_INFRA;
    if (outcome != OUTCOME_OK) {
        free(m->avoid);
        m->avoid = mem_strdup(a->executor);
    }
    if (verdict == ROLLOUT_WAITING)
        m->not_before_ms = outcome == OUTCOME_INFRA ? record_at(r) + book_backoff_ms(m->infras) : 0;
    record_result(r, &m->result);
    /* If an executor's own clock ends the run at the deadline, its end comes before the record of
     * the deadline. */
    if (g->spec.deadline_ms && record_at(r) >= g->submitted_at_ms + g->spec.deadline_ms)
        m->result.beside = true;
    if (!g->first_end_at_ms)
        g->first_end_at_ms = record_at(r);
    attempt_over(b, a, outcome, verdict);
    if (verdict == ROLLOUT_WAITING && g->overdue)
        set_rollout_state(m, ROLLOUT_FAILED);
    settle_if_decided(b, g, record_at(r));
    return 0;
}

/* Applies the loss of a session that counted. The rollout is tried again unless the group has
 * settled, whose state then follows from the members that are left. */
static int apply_lost(struct book *b, const struct json *r, struct err *e)
{
    const struct attempt *a = book_attempt(b, json_string(json_get(r, "attempt")));
    struct rollout *m;
    struct group *g;
    bool again;

    if (!a || a->rollout->last != a || a->rollout->state != ROLLOUT_SUCCEEDED ||
        group_is_delivered(a->rollout->group))
        return err_set(e, ERR_INVALID, "the loss does not fit a member that was not delivered");
    m = a->rollout;
    g = m->group;
    again = !group_settled(g) && book_verdict(a, OUTCOME_INFRA, false) == ROLLOUT_WAITING;
    m->infras++;
    if (again)
        m->not_before_ms = record_at(r) + book_backoff_ms(m->infras);
    m->result.outcome = OUTCOME_INFRA;
    free(m->result.reason);
    m->result.reason = mem_strdup(SESSION_LOST_REASON);
    set_rollout_state(m, again ? ROLLOUT_WAITING : ROLLOUT_LOST);
    if (!group_settled(g))
        settle_if_decided(b, g, record_at(r));
    else if (g->state != GROUP_CANCELLED)
        set_group_state(b, g, judge_group(g));
    return 0;
}

/* Applies a passed deadline: no further attempt begins, and running attempts are asked to end. */
static int apply_deadline(struct book *b, struct group *g, const struct json *r, struct err *e)
{
    if (!g || group_settled(g))
        return err_set(e, ERR_INVALID, "the deadline does not fit its group");
    g->overdue = true;
    close_rollouts(b, g, false, ROLLOUT_FAILED);
    for (uint32_t i = 0; i < group_rollouts(g); i++)
        if (g->rollouts[i].state == ROLLOUT_RUNNING && !g->rollouts[i].last->kill)
            g->rollouts[i].last->kill = "deadline";
    settle_if_decided(b, g, record_at(r));
    return 0;
}

static void keep_gone(struct book *b, struct group *g)
{
    list_append(&b->gone, &g->all_entry);
    (void)map_set(&b->gone_groups, g->spec.id, g);
    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
        if (g->rollouts[i].state == ROLLOUT_SUCCEEDED)
            (void)map_set(&b->gone_attempts, str_cstr(g->rollouts[i].last->id),
                          g->rollouts[i].last);
}

static void remove_group(struct book *b, struct group *g)
{
    struct queue *q = g->queue;

    if (b->events)
        b->events->gone(b->events_ctx, g);
    if (q) {
        list_remove(&g->queue_entry);
        if (g->delivery != DELIVERY_NONE)
            list_remove(&g->settled_entry);
        q->offered -= g->delivery == DELIVERY_OFFERED;
        q->taken -= g->delivery == DELIVERY_TAKEN;
        q->n_groups[g->state]--;
    }
    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
        for (struct attempt *a = g->rollouts[i].last; a; a = a->before)
            (void)map_take(&b->attempts, str_cstr(a->id));
    list_remove(&g->all_entry);
    (void)map_take(&b->groups, g->spec.id);
    if (b->keeps_gone)
        keep_gone(b, g);
    else
        group_free(g);
}

void book_remove(struct book *b, struct group *g)
{
    bool keeps = b->keeps_gone;

    b->keeps_gone = false;
    remove_group(b, g);
    b->keeps_gone = keeps;
}

/* Settles a group that is not offered to a trainer. */
static void settle_undelivered(struct book *b, struct group *g, uint64_t at_ms)
{
    g->settled_at_ms = at_ms;
    if (b->events)
        b->events->settled(b->events_ctx, g);
}

bool book_cancels(const struct group *g, bool deliver)
{
    return !group_settled(g) || (!deliver && g->queue);
}

/* Cancels the group. With `deliver` it is offered as cancelled; otherwise it is removed at once (if
 * it has a queue). A group that has settled keeps its state, but can be removed as well. */
static int apply_cancel(struct book *b, struct group *g, const struct json *r, struct err *e)
{
    bool deliver = json_is_true(json_get(r, "deliver"));

    if (!g)
        return err_set(e, ERR_INVALID, "the cancelled group is not there");
    if (!group_settled(g)) {
        set_group_state(b, g, GROUP_CANCELLED);
        close_rollouts(b, g, true, ROLLOUT_CANCELLED);
        lane_leave(g);
        if (deliver || !g->queue)
            offer_group(b, g, record_at(r));
        else
            settle_undelivered(b, g, record_at(r));
    }
    if (!deliver && g->queue)
        remove_group(b, g);
    return 0;
}

static int apply_taken(struct group *g, const struct json *r, struct err *e)
{
    if (!g || (g->queue ? g->delivery != DELIVERY_OFFERED : !group_settled(g)))
        return err_set(e, ERR_INVALID, "the taken group was not offered");
    g->deliveries++;
    if (!g->queue)
        return 0;
    g->delivery = DELIVERY_TAKEN;
    g->lease_ms = record_lease_ms(r);
    g->taken_until_ms = 0;
    g->queue->offered--;
    g->queue->taken++;
    return 0;
}

static int apply_returned(struct group *g, struct err *e)
{
    if (!g || g->delivery != DELIVERY_TAKEN)
        return err_set(e, ERR_INVALID, "the returned group was not taken");
    g->delivery = DELIVERY_OFFERED;
    g->queue->offered++;
    g->queue->taken--;
    return 0;
}

static int apply_acked(struct book *b, struct group *g, struct err *e)
{
    if (!g || !group_settled(g))
        return err_set(e, ERR_INVALID, "the acknowledged group had not settled");
    if (g->queue)
        g->queue->acked_total++;
    remove_group(b, g);
    return 0;
}

/* Reports whether the record is about this group, and not about an earlier or later group with the
 * same id. */
static bool is_about_group(const struct group *g, const struct json *r)
{
    return g && record_submitted(r) == g->submitted_at_ms;
}

/* Finds a removed group that the record is about. The map has the newest group of an id. NULL: that
 * group is not kept. */
static struct group *find_gone(const struct book *b, const struct json *r)
{
    struct str id = json_string(json_get(r, "id"));
    struct group *newest = book_gone_group(b, id), *g;

    if (!newest || is_about_group(newest, r))
        return newest;
    LIST_EACH(&b->gone, g, struct group, all_entry) {
        if (str_eq(g->spec.id, id) && is_about_group(g, r))
            return g;
    }
    return NULL;
}

/* Marks that the sinks may have the group's entry, whose content is fixed from now on. */
static int apply_telling(struct group *g, struct err *e)
{
    if (!g || !group_settled(g))
        return err_set(e, ERR_INVALID, "the group that is told had not settled");
    g->telling = true;
    return 0;
}

/* Marks that the sinks have the group's entry. The group may be acknowledged before that. */
static int apply_told(struct book *b, struct group *g, const struct json *r, struct err *e)
{
    if (!is_about_group(g, r))
        g = find_gone(b, r);
    if (!g)
        return 0;
    if (!group_settled(g))
        return err_set(e, ERR_INVALID, "the group that was told had not settled");
    g->told = true;
    return 0;
}

static int fail_kind(const struct json *r, struct err *e)
{
    struct str kind = json_string(json_get(r, "t"));

    return err_set(e, ERR_UNSUPPORTED,
                   "a group has a record of the kind \"%.*s\", which a later version wrote",
                   (int)MIN_OF(kind.len, (size_t)40), kind.p ? kind.p : "");
}

int book_apply(struct book *b, struct str record, struct err *e)
{
    struct arena arena = {0};
    const struct json *r = NULL;
    struct group *g;
    int rc;

    if (json_parse(&arena, record, &r, e)) {
        arena_done(&arena);
        return -1;
    }
    g = book_group(b, json_string(json_get(r, "id")));
    switch (record_kind(r)) {
    case RECORD_GROUP:
        rc = apply_group(b, r, e);
        break;
    case RECORD_CLAIM:
        rc = apply_claim(b, g, r, e);
        break;
    case RECORD_END:
        rc = apply_end(b, r, e);
        break;
    case RECORD_DEADLINE:
        rc = apply_deadline(b, g, r, e);
        break;
    case RECORD_CANCEL:
        rc = apply_cancel(b, g, r, e);
        break;
    case RECORD_TAKEN:
        rc = apply_taken(g, r, e);
        break;
    case RECORD_RETURNED:
        rc = apply_returned(g, e);
        break;
    case RECORD_TOLD:
        rc = apply_told(b, g, r, e);
        break;
    case RECORD_LOST:
        rc = apply_lost(b, r, e);
        break;
    case RECORD_TELLING:
        rc = apply_telling(g, e);
        break;
    case RECORD_ACKED:
        rc = apply_acked(b, g, e);
        break;
    default:
        rc = fail_kind(r, e);
    }
    arena_done(&arena);
    return rc;
}

/* --- choosing what to do next --- */

struct group *book_next_group(struct queue *q, unsigned states, bool submitted)
{
    struct group *g;

    if (submitted) {
        LIST_EACH(&q->groups, g, struct group, queue_entry) {
            if (!group_settled(g) || g->sought > 0)
                return NULL; /* later groups must wait for this group */
            if (g->delivery == DELIVERY_OFFERED && states & 1u << g->state)
                return g;
        }
        return NULL;
    }
    LIST_EACH(&q->settled, g, struct group, settled_entry) {
        if (g->delivery == DELIVERY_OFFERED && g->sought == 0 && states & 1u << g->state)
            return g;
    }
    return NULL;
}
