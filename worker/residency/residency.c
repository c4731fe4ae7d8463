/* Eviction and reload (residency.h). The way out: when the sessions hold more than the high
 * water, on_evict lets session_evict drop payloads and sessions (session/eviction.c chooses),
 * some at a time, until an eighth of the limit is free. The way back: a request finds that its
 * session is not in memory (residency_ready), a load is queued, on_load reads its records in
 * slices of LOAD_SLICE_US and applies each with session_apply, as a replay does; then the
 * waiters are told. Where a commit with long new messages comes, the load stops before it: a helper
 * makes them ready, and others are read meanwhile. Records that come to a session between slices
 * are in its journal, and read with the rest; what ends it is noted at once (session_load_rests).
 *
 *   residency_watch -> on_evict -> session_evict                    (out)
 *   residency_ready -> read_slice -> on_record -> session_apply     (back; on_load goes on)
 *                                        |
 *                                        '-> stop_for_texts -> helper (text_help.h)
 *                                            on_load (from the same record on) <- on_texts
 *
 * What is read back may push others out (read_slice -> make_room). Finalized sessions leave
 * besides, when nobody has read them for a while (session_leave_late in session/store.c).
 *
 * Payloads of sessions in memory come back at once, within the step that needs them (read_back). */

#include "worker/residency/residency.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/residency/places.h"
#include "worker/residency/text_help.h"
#include "worker/session/session.h"
#include "worker/session/session_texts.h"
#include "worker/session/session_totals.h"

enum { LOAD_SLICE_US = 1000, SPILL_STEP = 64 };

/* What requests may hold without being counted: also below a small limit calls come through. */
enum { REQUESTS_FREE = 16 << 20 };

/* So many helpers have texts at a time: each holds those of a call. Loads that come to long texts
 * then are stopped before them; with so many of both kinds no further one is begun, for no session
 * that is being read can be evicted. */
enum { HELPED_MAX = 4, STOPPED_MAX = 20 };

/* One session that is being read. */
struct residency_load {
    struct residency *residency;
    struct session *s;     /* pinned */
    size_t record;         /* next */
    struct text_help help; /* with the texts of the next record: nothing is read meanwhile */
    bool parked;   /* it would want help: nothing is read before one of the others is done */
    size_t looked; /* records before this number were looked at for their texts */
    bool revived;  /* only its tombstone was left */
    int rc;        /* of the last slice: 1 all is read, 0, -1 and err */
    struct err err;
    struct list_head waiters; /* in the order of their coming */
    struct list_item item;    /* of residency->loads */
};

/* What it does when nobody else has anything to do. */
struct residency_tasks {
    struct residency *of;
    struct loop_task evict, load;
};

static struct residency_tasks *tasks_of(struct residency *r)
{
    if (!r->tasks) {
        r->tasks = mem_zalloc(sizeof(*r->tasks));
        r->tasks->of = r;
    }
    return r->tasks;
}

/* --- reading --- */

/* Counts and logs evictions and loads. */
static void count_moves(struct residency *r)
{
    struct session_totals t;

    session_store_totals(r->store, &t);
    if (t.evictions != r->told.evictions || t.payload_evictions != r->told.payload_evictions)
        log_debug(NULL, "evicted", LOG_U("sessions", t.evictions - r->told.evictions),
                  LOG_U("payloads", t.payload_evictions - r->told.payload_evictions));
    metrics_count(r->page, METRIC_session_evictions, t.evictions - r->told.evictions);
    metrics_count(r->page, METRIC_payload_evictions,
                  t.payload_evictions - r->told.payload_evictions);
    metrics_count(r->page, METRIC_payload_loads, t.payload_loads - r->told.payload_loads);
    r->told.evictions = t.evictions;
    r->told.payload_evictions = t.payload_evictions;
    r->told.payload_loads = t.payload_loads;
}

/* With more_bytes that one is about to hold. */
static uint64_t held_by_requests(const struct residency *r, uint64_t more_bytes)
{
    uint64_t bytes = more_bytes + (r->requests ? r->requests(r->requests_ctx) : 0);

    return bytes > REQUESTS_FREE ? bytes - REQUESTS_FREE : 0;
}

static uint64_t held_with(const struct residency *r, uint64_t more_bytes)
{
    struct session_totals t;

    session_store_totals(r->store, &t);
    return t.bytes + atomic_load_explicit(&r->texts_bytes, memory_order_relaxed) +
           held_by_requests(r, more_bytes);
}

static uint64_t held(const struct residency *r)
{
    return held_with(r, 0);
}

/* Some of the sessions, until they fit beside the requests. */
static size_t evict_some(struct residency *r)
{
    uint64_t room = r->limit - r->limit / 8, others = held_by_requests(r, 0);

    return session_evict(r->store, room > others ? room - others : 0, SPILL_STEP);
}

/* Begins a sixteenth below the limit and makes room for another. */
static uint64_t high_water(const struct residency *r)
{
    return r->limit - r->limit / 16;
}

/* Some, when there is too much. Returns the steps that took; SPILL_STEP: there may be more. */
static size_t make_room(struct residency *r)
{
    size_t n;

    if (!r->limit || held(r) < high_water(r))
        return 0;
    n = evict_some(r);
    count_moves(r);
    return n;
}

static void on_load(struct loop_task *t);

/* Parked ones go on as soon as a helper is free, to end if their session is gone. */
static bool is_stopped(const struct residency_load *l)
{
    return l->help.job ||
           (l->parked && l->residency->n_helped == HELPED_MAX && !session_unlinked(l->s));
}

/* The first of the queue that waits for no helper; NULL: nothing can be read now. */
static struct residency_load *next_load(const struct residency *r)
{
    struct residency_load *l;
    unsigned stopped = 0;

    LIST_EACH(&r->loads, l, struct residency_load, item) {
        if (!is_stopped(l))
            return l;
        if (++stopped == STOPPED_MAX)
            break;
    }
    return NULL;
}

/* The queue goes on, if any of it can. */
static void go_on(struct residency *r)
{
    if (next_load(r))
        loop_task_post(r->loop, &tasks_of(r)->load, on_load);
}

/* With an error the load ends. */
static void on_texts(struct text_help *h, const struct err *e)
{
    struct residency_load *l = CONTAINER_OF(h, struct residency_load, help);

    l->residency->n_helped--;
    if (e) {
        l->err = *e;
        l->rc = -1;
    }
    go_on(l->residency);
}

/* Whether a helper is to make the record's long new messages ready before it is applied. Each
 * record is looked at once: it is read again behind that. */
static bool stop_for_texts(struct residency_load *l, size_t record, struct str payload)
{
    struct residency *r = l->residency;

    if (!r->helpers || record < l->looked)
        return false;
    if (r->n_helped == HELPED_MAX && session_texts_wait(l->s, payload)) {
        l->looked = record; /* once more, then */
        l->parked = true;
        return true;
    }
    l->looked = record + 1;
    if (!text_help_begin(&l->help, r, l->s, payload))
        return false;
    r->n_helped++;
    return true;
}

/* One record of the session that is being read. -1: a helper comes first. */
static int on_record(void *ctx, size_t record, struct str payload, struct err *e)
{
    struct residency_load *l = ctx;
    struct err bad = {0};

    (void)e;
    if (session_unlinked(l->s))
        return 0;
    if (stop_for_texts(l, record, payload))
        return -1;
    session_load_at(l->s, record);
    /* Damage stood before one that does not fit: a replay skipped it, too, or counted it unread. */
    if (session_apply(l->residency->store, payload, &bad))
        log_error(&(struct log_scope){.session = session_id(l->s)},
                  "journal: record does not apply", LOG_T("error", bad.text));
    session_texts_end(l->s);
    return 0;
}

/* All records were applied. One that has none any more cannot be read, unless only its tombstone
 * was left. */
static int all_read(struct residency_load *l)
{
    if (session_filled(l->s) || session_unlinked(l->s) || l->revived)
        return 1;
    return err_set(&l->err, ERR_IO, "the journal has no records of it");
}

/* Until the slice is over, a helper comes first, or nothing is left. */
static void read_slice(struct residency_load *l)
{
    struct str id = session_id(l->s);
    struct journal *j = places_find(l->residency->places, id)->journal;
    struct journal_reader reader = {on_record, l};
    uint64_t end_us = clock_us() + LOAD_SLICE_US;
    int rc = 0;

    l->parked = false;
    do {
        if (session_unlinked(l->s)) /* its time was over while it was read */
            break;
        rc = journal_read(j, id, &l->record, &reader, &l->err);
        if (l->help.job || l->parked) { /* of what was read it is the last, and the next */
            l->record = l->parked ? l->looked : l->looked - 1;
            rc = 1;
        }
        make_room(l->residency); /* of a large one, what was read first may have to go again */
    } while (rc == 1 && !l->help.job && !l->parked && clock_us() < end_us);
    session_load_at(l->s, l->record);
    session_load_rests(l->s);
    l->rc = rc == 0 ? all_read(l) : rc == 1 ? 0 : -1;
}

/* It is through: its waiters are told. */
static void load_end(struct residency_load *l)
{
    struct residency *r = l->residency;
    struct residency_waiter *w;

    list_remove(&l->item);
    go_on(r);
    metrics_count(r->page, METRIC_session_loads, 1);
    if (l->rc < 0)
        log_error(&(struct log_scope){.session = session_id(l->s)}, "a session cannot be read back",
                  LOG_T("error", l->err.text));
    (void)session_load_end(l->s, l->rc > 0, clock_wall_ms());
    /* From the start each time: what w->fn does may take back the others. */
    while ((w = LIST_FIRST_OF(&l->waiters, struct residency_waiter, item))) {
        w->load = NULL;
        list_remove(&w->item);
        w->fn(w->ctx, l->rc < 0 ? &l->err : NULL);
    }
    free(l);
    residency_watch(r);
}

/* The first load of the queue that can goes on. */
static void on_load(struct loop_task *t)
{
    struct residency *r = CONTAINER_OF(t, struct residency_tasks, load)->of;
    struct residency_load *l = next_load(r);

    if (!l) /* it ended, or stopped, within residency_ready */
        return;
    if (l->rc == 0)
        read_slice(l);
    if (l->rc == 0)
        go_on(r);
    else
        load_end(l);
}

/* The load that reads this session, or NULL. */
static struct residency_load *load_of(struct residency *r, const struct session *s)
{
    struct residency_load *l;

    LIST_EACH(&r->loads, l, struct residency_load, item)
        if (l->s == s)
            break;
    return l;
}

/* The session is pinned meanwhile. */
static struct residency_load *load_begin(struct residency *r, struct session *s)
{
    struct residency_load *l = mem_zalloc(sizeof(*l));

    l->residency = r;
    l->s = s;
    l->help.done = on_texts;
    session_load_begin(s);
    session_load_rests(s);
    list_append(&r->loads, &l->item);
    return l;
}

/* Returns true if the session is in memory, or unknown. Reads the first slice at once: short
 * sessions need no waiting. */
bool residency_ready(struct residency *r, struct str session_id, bool ended)
{
    struct residency_load *l;
    struct session *s;
    bool gone, revived;

    s = session_find_any(r->store, session_id, &gone);
    revived = !s && ended;
    if (revived)
        s = session_revive(r->store, session_id, clock_wall_ms());
    if (!s || session_resident(s)) {
        if (s)
            session_touch(s);
        return true;
    }
    if (load_of(r, s))
        return false;
    l = load_begin(r, s);
    l->revived = revived;
    if (l == next_load(r))
        read_slice(l);
    if (l->rc == 1) {
        load_end(l);
        return true;
    }
    go_on(r);
    return false;
}

/* Only right after residency_ready was false: the session is being read. */
void residency_wait(struct residency *r, struct str session_id, struct residency_waiter *w)
{
    bool gone;
    const struct session *s = session_find_any(r->store, session_id, &gone);

    w->load = load_of(r, s);
    CHECK(w->load);
    list_append(&w->load->waiters, &w->item);
}

void residency_leave(struct residency_waiter *w)
{
    list_remove(&w->item);
    w->load = NULL;
}

/* --- calls of sessions in memory --- */

/* A session_source: out of the journal that has the session. A path is as long as a context, so
 * this is read at once. */
static int read_back(void *ctx, struct str session_id, const uint32_t *records, size_t n,
                     const struct session_reader *to, struct err *e)
{
    struct residency *r = ctx;
    uint64_t start_us = clock_us();
    struct journal_reader reader = {to->each, to->ctx};
    struct journal *j = places_find(r->places, session_id)->journal;
    int rc = journal_read_some(j, session_id, records, n, &reader, e);

    if (rc)
        log_error(&(struct log_scope){.session = session_id}, "a call cannot be read back",
                  LOG_T("error", e ? e->text : ""));
    count_moves(r);
    metrics_count(r->page, METRIC_payload_load_us, clock_us() - start_us);
    residency_watch(r);
    return rc;
}

void residency_evicts(struct residency *r)
{
    session_store_evicts(r->store, true);
    session_store_source(r->store, read_back, r);
}

/* --- giving up --- */

/* Some steps, then others get their turn. */
static void on_evict(struct loop_task *t)
{
    struct residency *r = CONTAINER_OF(t, struct residency_tasks, evict)->of;
    size_t n = evict_some(r);

    count_moves(r);
    if (n == SPILL_STEP) {
        loop_task_post(r->loop, t, on_evict);
        return;
    }
    r->watching = false;
    r->full = held(r) >= r->limit;
}

/* Posts the task if there is too much and it is not posted yet. */
void residency_watch(struct residency *r)
{
    if (!r->limit) {
        r->full = false;
        return;
    }
    if (r->watching)
        return;
    if (held(r) < high_water(r)) {
        r->full = false;
        return;
    }
    r->watching = true;
    loop_task_post(r->loop, &tasks_of(r)->evict, on_evict);
}

/* Whether others hold an eighth more than there is room for. */
static bool overflows(const struct residency *r, uint64_t all, uint64_t own)
{
    return all - MIN_OF(all, own) >= r->limit + r->limit / 8;
}

/* Refuses a call while memory is full, or when requests alone fill it, which no eviction helps
 * against. One of a session that is here may go an eighth beyond the limit, not counting what that
 * session itself could give up and what its request holds. */
int residency_room_more(struct residency *r, const struct session *called, uint64_t own_bytes,
                        uint64_t more_bytes, struct err *e)
{
    uint64_t own = own_bytes;

    residency_watch(r);
    if (!r->full && (!r->limit || !overflows(r, held_by_requests(r, more_bytes), own)))
        return 0;
    own += called ? session_evictable(called) : 0;
    if (called && !overflows(r, held_with(r, more_bytes), own))
        return 0;
    metrics_count_at(r->page, METRIC_refusals, METRIC_REFUSAL_MEMORY, 0, 1);
    return err_set(e, ERR_MEMORY_FULL,
                   "sessions and requests of this worker take all of its memory "
                   "(--max-worker-memory)");
}

int residency_room(struct residency *r, const struct session *called, uint64_t own_bytes,
                   struct err *e)
{
    return residency_room_more(r, called, own_bytes, 0, e);
}

void residency_helpers_end(struct residency *r, bool lost)
{
    struct residency_load *l;

    r->helpers = NULL;
    r->n_helped = 0;
    LIST_EACH(&r->loads, l, struct residency_load, item) {
        if (l->help.job)
            l->rc = err_set(&l->err, ERR_INTERNAL, "the worker ends");
    }
    text_helps_end(r, lost);
}

/* Drops the loads that wait; nobody is told. */
void residency_done(struct residency *r)
{
    struct residency_load *l, *next;

    if (r->tasks) {
        loop_task_cancel(r->loop, &r->tasks->evict);
        loop_task_cancel(r->loop, &r->tasks->load);
        free(r->tasks);
        r->tasks = NULL;
    }
    LIST_EACH_SAFE(&r->loads, l, next, struct residency_load, item) {
        list_remove(&l->item);
        (void)session_load_end(l->s, false, 0);
        free(l);
    }
}
