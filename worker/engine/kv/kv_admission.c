#include "worker/engine/kv/kv_admission.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/engine/kv/kv_admission_internal.h"
#include "worker/engine/kv/kv_room.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

enum {
    HELD_TICK_MS = 10, /* needed because other workers and engines free space without a notice */
    IDLE_TICK_MS = 1000,
    GUESS_SHARE = 16, /* until a session has ended, a guess is at most this fraction of a cache */
};

struct ticket {
    struct list_item in_row; /* in admission->row */
    struct list_head calls;  /* linked by engine_call.held */
    uint64_t since_us;       /* first arrival of the session */
    uint64_t left_ms;        /* when the last call of the session left */
    size_t len;
    char session[];
};

static void set_hold_tick(struct engine_pool *p);

/* --- size and replica of a session --- */

/* Returns the prompt's tokens in the engine, where a picture is more than its placeholder. */
static uint64_t prompt_tokens(const struct engine_request *q)
{
    uint64_t n = q->prompt.n;

    for (size_t i = 0; i < q->n_images; i++)
        n += q->images[i].tokens;
    return n;
}

static uint64_t count_answers(const struct engine_call *c)
{
    return MAX_OF(c->req.answers, 1u);
}

/* Returns the largest number of tokens of all answers of the call together. */
static uint64_t wanted_tokens(const struct engine_call *c)
{
    return pool_answer_tokens(c) * count_answers(c);
}

/* Estimates the tokens that the session will hold there. */
static uint64_t needed_tokens(const struct engine_call *c, const struct replica *r)
{
    const struct engine_pool *p = c->pool;
    uint64_t prompt = prompt_tokens(&c->req);
    uint64_t expected = p->opt.kv_session_tokens;

    if (expected == 0)
        expected = p->admission->mean_size;
    if (expected == 0)
        expected = MIN_OF(prompt + wanted_tokens(c), kv_limit(r) / GUESS_SHARE);
    return MAX_OF(MAX_OF(prompt, expected), MAX_OF(r->kv.told.unit, (uint64_t)1));
}

/* Estimates the additional tokens while the call runs. Each answer has a slot of its own if there
 * are slots; the first answer's tokens count in the session's. */
static uint64_t extra_tokens(const struct engine_call *c, const struct replica *r)
{
    return r->kv.told.unit * (count_answers(c) - 1);
}

/* Adds the call to the lease, which counts as used until admission_left. */
static void join_lease(struct engine_call *c, struct lease *lease)
{
    if (!c->leased)
        lease_begin(lease);
    c->leased = true;
}

/* Makes the session's lease. Returns false if there is no space. */
static bool make_lease(struct engine_call *c, struct replica *r)
{
    uint64_t tokens = needed_tokens(c, r), extra = extra_tokens(c, r);
    struct lease *lease;

    if (!r->up || !replica_suits(r, &c->req) || !kv_take(r, tokens + extra))
        return false;
    lease = lease_new(&c->pool->admission->leases, c->req.session_id, r, tokens, extra, clock_ms());
    lease->first = c->req.call;
    join_lease(c, lease);
    return true;
}

/* Returns the replica with most space, among those that report it. */
static struct replica *find_most_free(const struct engine_pool *p, const struct engine_call *c)
{
    struct replica *found = NULL;

    for (size_t i = 0; i < p->replicas->n; i++) {
        struct replica *r = p->replicas->at[i];

        if (r->up && replica_suits(r, &c->req) && (!found || kv_free(r) > kv_free(found)))
            found = r;
    }
    return found;
}

/* Reports whether the call could run at engines, all of which are down or have not reported their
 * caches yet. That is no lack of space, so other sessions do not wait for it. */
static bool stands_aside(const struct engine_call *c)
{
    const struct replicas *all = c->pool->replicas;

    for (size_t i = 0; i < all->n; i++) {
        const struct replica *r = all->at[i];

        if (r->up && r->kv.state != KV_ASKED && replica_suits(r, &c->req))
            return false;
    }
    return replicas_any_up(all) && replicas_suit(all, &c->req, false);
}

/* Admits a call: first at the session's own replica, which may have its prompt, then at the one
 * with most space, then at any. If none is up, the call goes to the queue, where it also fails if
 * no engine accepts it. */
static bool admit_call(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct replica_wish w = {.session_id = c->req.session_id, .request = &c->req};
    struct replica *r = replicas_home(p->replicas, &w);

    if (!replicas_any_up(p->replicas) || !replicas_suit(p->replicas, &c->req, false))
        return true;
    if (r && make_lease(c, r))
        return true;
    r = find_most_free(p, c);
    if (r && make_lease(c, r))
        return true;
    for (size_t i = 0; i < p->replicas->n; i++) {
        if (make_lease(c, p->replicas->at[i]))
            return true;
    }
    return false;
}

/* Returns the largest cache that could hold the call; 0: a possible replica does not report its
 * size. */
static uint64_t largest_cache(const struct engine_call *c)
{
    const struct engine_pool *p = c->pool;
    uint64_t most = 0;

    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];

        if (!replica_suits(r, &c->req))
            continue;
        if (r->kv.state != KV_TOLD)
            return 0;
        most = MAX_OF(most, r->kv.told.capacity);
    }
    return most;
}

/* --- tickets --- */

static struct ticket *ticket_of(struct admission *a, struct str session)
{
    struct ticket *t = map_get(&a->tickets, session);

    if (t)
        return t;
    t = mem_zalloc(sizeof(*t) + session.len);
    t->since_us = clock_us();
    t->len = session.len;
    if (session.len > 0)
        memcpy(t->session, session.p, session.len);
    (void)map_set(&a->tickets, str_of(t->session, t->len), t);
    list_append(&a->row, &t->in_row);
    return t;
}

static void drop_ticket(struct admission *a, struct ticket *t)
{
    list_remove(&t->in_row);
    (void)map_take(&a->tickets, str_of(t->session, t->len));
    free(t);
}

static bool is_waiting(const struct ticket *t)
{
    return !list_is_empty(&t->calls);
}

static struct engine_call *first_call(const struct ticket *t)
{
    return LIST_FIRST_OF(&t->calls, struct engine_call, held);
}

/* Returns the oldest ticket that waits for space. Drops tickets whose clients have not come back in
 * time. */
static struct ticket *oldest_ticket(struct admission *a)
{
    uint64_t now = clock_ms();
    struct ticket *t, *next;

    LIST_EACH_SAFE(&a->row, t, next, struct ticket, in_row) {
        if (is_waiting(t) && !stands_aside(first_call(t)))
            return t;
        if (!is_waiting(t) && now - t->left_ms > TICKET_KEPT_MS)
            drop_ticket(a, t);
    }
    return NULL;
}

/* Publishes the figures to the other workers and the metrics. */
static void publish_held(struct engine_pool *p)
{
    const struct ticket *first = oldest_ticket(p->admission);

    kv_tell_held(&p->opt, p->admission->n_sessions, first ? first->since_us : 0);
}

static bool older_elsewhere(const struct engine_pool *p, uint64_t since_us)
{
    return kv_older_held(&p->opt, since_us);
}

/* Removes the call from its ticket. */
static void leave_ticket(struct engine_call *c)
{
    struct admission *a = c->pool->admission;

    list_remove(&c->held);
    fair_take(&a->held, &c->place);
    if (!is_waiting(c->ticket)) {
        a->n_sessions--;
        c->ticket->left_ms = clock_ms();
    }
    c->ticket = NULL;
}

/* Moves all calls of the ticket to the queue. */
static void admit_ticket(struct engine_pool *p, struct ticket *t)
{
    struct lease *lease = lease_of(&p->admission->leases, str_of(t->session, t->len));
    struct engine_call *c;

    LIST_EACH(&t->calls, c, struct engine_call, held) {
        if (lease)
            join_lease(c, lease);
    }

    metrics_observe_us(p->opt.metrics, METRIC_kv_hold, clock_us() - t->since_us);
    while ((c = first_call(t))) {
        leave_ticket(c);
        c->queue_us += clock_us() - c->queued_us;
        loop_timer_stop(p->loop, &c->timer);
        pool_queue(c);
    }
    drop_ticket(p->admission, t);
}

static void on_tick(struct loop_timer *timer)
{
    struct admission *a = CONTAINER_OF(timer, struct admission, tick);
    struct engine_pool *p = a->pool;
    uint64_t now = clock_ms(), idle = p->opt.kv_lease_idle_ms;
    struct ticket *t;

    a->tick_ms = 0;
    if (now > idle)
        leases_sweep(&a->leases, now - idle);
    while (p->pause == ENGINE_RUN && (t = oldest_ticket(a)) && !older_elsewhere(p, t->since_us) &&
           admit_call(first_call(t)))
        admit_ticket(p, t);
    publish_held(p);
    set_hold_tick(p);
}

/* Sets the tick. A tick that is set already is not postponed, because calls come more often than
 * ticks. */
static void set_hold_tick(struct engine_pool *p)
{
    struct admission *a = p->admission;
    uint64_t in_ms = a->n_sessions > 0 ? HELD_TICK_MS : IDLE_TICK_MS;
    uint64_t at_ms = clock_ms() + in_ms;

    if (a->n_sessions == 0 && a->leases.n == 0 && list_is_empty(&a->row))
        return;
    if (a->tick_ms > 0 && a->tick_ms <= at_ms)
        return;
    a->tick_ms = at_ms;
    loop_timer_set(p->loop, &a->tick, in_ms, on_tick);
}

/* --- refusals --- */

/* Returns the rank among the held sessions of this worker, from 1. */
static size_t rank_of(const struct admission *a, const struct ticket *own)
{
    const struct ticket *t;
    size_t rank = 1;

    LIST_EACH(&a->row, t, struct ticket, in_row) {
        if (t == own)
            break;
        rank += is_waiting(t);
    }
    return rank;
}

static void on_row_full(struct loop_timer *timer)
{
    struct engine_call *c = CONTAINER_OF(timer, struct engine_call, timer);
    struct engine_pool *p = c->pool;
    const struct admission *a = p->admission;
    size_t node = kv_count_held(&p->opt, a->n_sessions);
    struct err e = {0};

    metrics_count_at(p->opt.metrics, METRIC_refusals, METRIC_REFUSAL_KV, 0, 1);
    if (stands_aside(c)) {
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                      "none of the engines that take this call is up and has told its KV cache "
                      "(--kv-admission): send it again");
        pool_fail(c, &e);
        return;
    }
    (void)err_set(&e, ERR_OVERLOADED,
                  "the engines' KV caches are full of running sessions (--kv-admission): this new "
                  "session has place %zu of %zu that wait at its worker, of %zu on the node; the "
                  "place is kept for %d s: send it again",
                  rank_of(a, c->ticket), a->n_sessions, MAX_OF(node, a->n_sessions),
                  TICKET_KEPT_MS / 1000);
    pool_fail(c, &e);
}

static void on_hold_timeout(struct loop_timer *timer)
{
    struct engine_pool *p = CONTAINER_OF(timer, struct engine_call, timer)->pool;

    if (p->pause == ENGINE_RUN)
        on_row_full(timer);
    /* a paused pool: the call is held as long as the pause lasts, then for the full time again */
    else
        loop_timer_set(p->loop, timer, MAX_OF(p->opt.kv_hold_ms, (uint64_t)1), on_hold_timeout);
}

static void on_too_large(struct loop_timer *timer)
{
    struct engine_call *c = CONTAINER_OF(timer, struct engine_call, timer);
    struct err e = {0};

    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_KV, 0, 1);
    (void)err_context(&e, (struct err_overflow){prompt_tokens(&c->req), 1, largest_cache(c)},
                      "the prompt has %llu tokens, but the largest KV cache of any engine has %llu",
                      (unsigned long long)prompt_tokens(&c->req),
                      (unsigned long long)largest_cache(c));
    pool_fail(c, &e);
}

/* --- functions for the pool --- */

/* Refuses the call from the loop. Until then its session keeps its rank. */
static void turn_away(struct engine_call *c)
{
    struct engine_pool *p = c->pool;

    fair_take(&p->admission->held, &c->place);
    loop_timer_set(p->loop, &c->timer, 1, on_row_full);
}

/* Gives the call, which has a ticket, a place among the held calls. If all are taken, sessions
 * with more than their share give up places to those with less, as in the queue
 * (may_queue_or_refuse of pool.c). */
static void hold_or_refuse(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct fair_queue *held = &p->admission->held;
    bool full = p->opt.max_queue > 0 && held->n >= p->opt.max_queue;
    struct fair_item *surplus =
        full ? fair_surplus(held, c->req.session_id, p->opt.max_queue) : NULL;

    if (surplus)
        turn_away(CONTAINER_OF(surplus, struct engine_call, place));
    if (full && !surplus) {
        turn_away(c);
        return;
    }
    fair_push(held, &c->place, c->req.session_id);
    loop_timer_set(p->loop, &c->timer, MAX_OF(p->opt.kv_hold_ms, (uint64_t)1), on_hold_timeout);
}

static void hold_call(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct admission *a = p->admission;
    struct ticket *t = ticket_of(a, c->req.session_id);

    a->n_sessions += !is_waiting(t);
    list_append(&t->calls, &c->held);
    c->ticket = t;
    c->state = CALL_RESTING;
    c->queued_us = clock_us();
    hold_or_refuse(c);
    publish_held(p);
    set_hold_tick(p);
}

/* Reports whether the call's session has as many held answers as may wait. */
static bool session_is_full(const struct engine_call *c)
{
    const struct engine_pool *p = c->pool;
    uint32_t max = p->opt.max_session_queue;

    return max > 0 && fair_waiting(&p->admission->held, c->req.session_id) >= max;
}

static bool too_large(const struct engine_call *c)
{
    uint64_t most = largest_cache(c);

    return most > 0 && prompt_tokens(&c->req) >= most;
}

bool admission_holds(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct admission *a = p->admission;
    struct str session = c->req.session_id;
    struct lease *lease = lease_of(&a->leases, session);
    struct ticket *t = lease ? NULL : map_get(&a->tickets, session);

    if (lease)
        join_lease(c, lease);
    if (lease || c->req.ran)
        return false;
    if (too_large(c)) {
        c->state = CALL_RESTING;
        loop_timer_set(p->loop, &c->timer, 1, on_too_large);
        return true;
    }
    if (a->n_sessions == 0 && p->pause == ENGINE_RUN &&
        !older_elsewhere(p, t ? t->since_us : clock_us()) && admit_call(c)) {
        if (t)
            drop_ticket(a, t);
        set_hold_tick(p);
        return false;
    }
    if (session_is_full(c))
        pool_refuse_session(c);
    else
        hold_call(c);
    return true;
}

/* Updates the mean size; the last session counts an eighth. */
static void record_size(struct admission *a, uint64_t size)
{
    if (size > 0)
        a->mean_size = a->mean_size == 0 ? size : a->mean_size - a->mean_size / 8 + size / 8;
}

void admission_left(struct engine_call *c)
{
    struct admission *a = c->pool->admission;
    struct lease *lease;

    if (c->ticket) {
        leave_ticket(c);
        publish_held(c->pool);
    }
    if (!c->leased)
        return;
    c->leased = false;
    lease = lease_of(&a->leases, c->req.session_id);
    if (!lease)
        return;
    lease_shrink(lease, c->stretch);
    if (c->req.answer == 0 && c->stretch == 0)
        lease_unbear(lease, c->req.call);
    c->stretch = 0;
    lease_end(&a->leases, lease, clock_ms());
    /* no call of the session ever ran */
    if (lease->calls == 0 && (lease->over || lease->size == 0))
        record_size(a, lease_drop(&a->leases, lease));
}

void admission_runs(struct engine_call *c, struct replica *r)
{
    struct leases *l = &c->pool->admission->leases;
    struct lease *lease = lease_of(l, c->req.session_id);

    if (!lease) /* the session ran before, or no engine was up for it */
        lease = lease_force(l, c->req.session_id, r, needed_tokens(c, r), clock_ms());
    lease_to(lease, r);
    join_lease(c, lease);
    if (c->stretch == 0 && (c->req.answer > 0 || !lease_bears(lease, c->req.call))) {
        c->stretch = r->kv.told.unit;
        lease_stretch(lease, c->req.call, c->stretch);
    }
    lease_grow(lease, prompt_tokens(&c->req));
    set_hold_tick(c->pool);
}

void admission_answered(struct engine_call *c, const struct engine_result *answer)
{
    struct lease *lease = lease_of(&c->pool->admission->leases, c->req.session_id);
    uint64_t tokens = answer->ids.n;

    if (lease && count_answers(c) > 1)
        tokens = lease_answered(lease, c->req.call, tokens);
    if (lease)
        lease_grow(lease, prompt_tokens(&c->req) + tokens);
}

struct replica *admission_home(const struct engine_pool *p, struct str session)
{
    const struct lease *lease = p->admission ? lease_of(&p->admission->leases, session) : NULL;

    return lease ? lease->at : NULL;
}

void admission_complete_session(struct engine_pool *p, struct str session)
{
    struct admission *a = p->admission;
    struct lease *lease = lease_of(&a->leases, session);

    if (!lease)
        return;
    lease->over = true;
    if (lease->calls == 0)
        record_size(a, lease_drop(&a->leases, lease));
}

void admission_end_session(struct engine_pool *p, struct str session)
{
    struct admission *a = p->admission;
    struct lease *lease = lease_of(&a->leases, session);
    struct ticket *t = map_get(&a->tickets, session);

    if (lease)
        record_size(a, lease_drop(&a->leases, lease));
    if (t && !is_waiting(t))
        drop_ticket(a, t);
}

void admission_forget(const struct engine_pool *p, const struct replica *r)
{
    if (p->admission)
        leases_forget(&p->admission->leases, r);
}

void admission_open(struct engine_pool *p)
{
    if (p->opt.kv_admission == 0)
        return;
    p->admission = mem_zalloc(sizeof(*p->admission));
    p->admission->pool = p;
}

void admission_done(struct engine_pool *p)
{
    struct admission *a = p->admission;
    struct ticket *t, *next;

    if (!a)
        return;
    loop_timer_stop(p->loop, &a->tick);
    LIST_EACH_SAFE(&a->row, t, next, struct ticket, in_row)
        drop_ticket(a, t);
    publish_held(p);
    map_done(&a->tickets);
    fair_done(&a->held);
    leases_done(&a->leases);
    free(a);
    p->admission = NULL;
}
