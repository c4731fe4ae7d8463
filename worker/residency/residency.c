/* Eviction and reload (residency.h). The way out: when the sessions hold more than the high
 * water, on_evict lets session_evict drop payloads and sessions (session/store/eviction.c chooses),
 * some at a time, until an eighth of the limit is free. The way back: a request finds that its
 * session is not in memory (residency_ready), and a task reads its records and applies each with
 * session_apply, as a replay does; then the waiters are notified. Records that come to a session
 * between two steps are in its journal, and read with the rest; an end of the session is noted at
 * once (session_load_rests).
 *
 *   residency_watch -> on_evict -> session_evict                    (out)
 *   residency_ready -> load_session -> session_apply -> on_loaded   (back)
 *
 * What is read back may push others out (make_room). Finalized sessions also leave, when they were
 * not read for a while (session_leave_late in session/store/store.c).
 *
 * In a fleet the records may be in the store alone (second_copy.h). Then they come first:
 *
 *   residency_ready -> fetch -> residency_fetched -> residency_ready
 *
 * Payloads of sessions in memory come back at once, within the step that needs them (read_back). */

#include "worker/residency/residency.h"

#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "common/proc/metrics.h"
#include "worker/residency/places.h"
#include "worker/session/record/session_texts.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"

enum { EVICT_STEP = 64 };

/* What requests may hold without being counted: also below a small limit calls come through. */
enum { REQUESTS_FREE = 16 << 20 };

/* So many are read at a time, most of them waiting for helpers: no session that is being read can
 * be evicted. */
enum { READING_MAX = 20 };

/* One session that is being read. */
struct residency_load {
    struct residency *residency;
    struct session *s; /* pinned; NULL while its records are fetched */
    char *id;          /* own, then */
    bool ended;        /* some waiter wants it even if it has ended */
    struct loop_timer limit;
    size_t record; /* next */
    bool revived;  /* only its tombstone was left */
    bool reads;    /* a task has it, or had */
    bool over;     /* with rc: 1 all is read, -1 and err */
    int rc;
    struct err err;
    struct list_head waiters; /* in the order of their coming */
    struct list_item item;    /* in residency->loads or ->fetches */
};

/* Work for when the loop has nothing else to do. */
struct residency_posts {
    struct residency *of;
    struct loop_task evict, loaded;
};

static struct residency_posts *posts_of(struct residency *r)
{
    if (!r->posts) {
        r->posts = mem_zalloc(sizeof(*r->posts));
        r->posts->of = r;
    }
    return r->posts;
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

/* Evicts some sessions, until they fit next to the requests. */
static size_t evict_some(struct residency *r)
{
    uint64_t room = r->limit - r->limit / 8, others = held_by_requests(r, 0);

    return session_evict(r->store, room > others ? room - others : 0, EVICT_STEP);
}

/* Begins a sixteenth below the limit and makes room for another. */
static uint64_t high_water(const struct residency *r)
{
    return r->limit - r->limit / 16;
}

/* Evicts a few sessions if they exceed the limit. Returns the number of steps; EVICT_STEP: there
 * may be more. */
static size_t make_room(struct residency *r)
{
    size_t n;

    if (!r->limit || held(r) < high_water(r))
        return 0;
    n = evict_some(r);
    count_moves(r);
    return n;
}

/* Records of a session, copied out of the journal. */
struct record_batch {
    VEC(size_t) numbers, ends; /* ends: in bytes */
    struct buf bytes;
};

static int keep_record(void *ctx, size_t record, struct str payload, struct err *e)
{
    struct record_batch *b = ctx;

    (void)e;
    buf_add_str(&b->bytes, payload);
    *vec_push(&b->numbers) = record;
    *vec_push(&b->ends) = b->bytes.len;
    return 0;
}

static void batch_done(struct record_batch *b)
{
    vec_done(&b->numbers);
    vec_done(&b->ends);
    buf_done(&b->bytes);
}

/* -1: the task is cancelled. */
MAY_PAUSE static int apply_record(struct residency_load *l, size_t record, struct str payload)
{
    struct err bad = {0};

    session_load_rests(l->s);
    if (task_pause(&l->err) ||
        session_texts_make(l->s, payload, &l->residency->texts_bytes, &l->err))
        return -1;
    if (!session_unlinked(l->s)) { /* its time was over while it was read */
        task_atomic(1);
        session_load_at(l->s, record);
        /* Damage stood before one that does not fit: a replay skipped it, too. */
        if (session_apply(l->residency->store, payload, &bad))
            log_error(&(struct log_scope){.session = session_id(l->s)},
                      "journal: record does not apply", LOG_T("error", bad.text));
        session_load_at(l->s, record + 1);
        session_load_rests(l->s);
        task_atomic(-1);
    }
    session_texts_end(l->s);
    return 0;
}

/* Reads and applies some records. 1: there may be others; 0: no; -1. */
MAY_PAUSE static int read_some(struct residency_load *l, struct record_batch *b)
{
    struct str id = session_id(l->s);
    struct journal *j = places_find(l->residency->places, id)->journal;
    struct journal_reader reader = {keep_record, b};
    int rc = journal_read(j, id, &l->record, &reader, &l->err);
    size_t from = 0;

    for (size_t i = 0; rc >= 0 && i < b->numbers.n; from = b->ends.at[i++])
        if (apply_record(l, b->numbers.at[i], str_of(b->bytes.p + from, b->ends.at[i] - from)))
            rc = -1;
    session_load_at(l->s, l->record);
    session_load_rests(l->s);
    make_room(
        l->residency); /* in a large session, payloads that were read first may have to go again */
    return rc;
}

/* All records were applied. One that has none any more cannot be read, unless only its tombstone
 * was left. */
static int check_read(struct residency_load *l)
{
    if (session_filled(l->s) || session_unlinked(l->s) || l->revived)
        return 1;
    return err_set(&l->err, ERR_IO, "the journal has no records of it");
}

/* Ends a load in the loop: waiters must not be called on a task's stack. */
static void on_loaded(struct loop_task *t);

static void read_end(struct residency_load *l, int rc)
{
    l->rc = rc;
    l->over = true;
    l->residency->n_reading--;
    loop_task_post(l->residency->loop, &posts_of(l->residency)->loaded, on_loaded);
}

/* The thread may still read what the session has of texts. */
static void on_lost(void *ctx)
{
    struct residency_load *l = ctx;

    session_texts_lost(l->s);
    read_end(l, err_set(&l->err, ERR_INTERNAL, "a helper is stuck in its messages"));
}

/* Loads a session, as a task. */
static void load_session(void *ctx)
{
    struct residency_load *l = ctx;
    int rc = 1;

    task_on_lost(on_lost, l);
    while (rc == 1 && !session_unlinked(l->s)) {
        struct record_batch b = {0};

        rc = read_some(l, &b);
        batch_done(&b);
    }
    read_end(l, rc < 0 ? -1 : check_read(l));
}

/* Begins the loads that may run now. */
static void begin_some(struct residency *r)
{
    struct residency_load *l;

    LIST_EACH(&r->loads, l, struct residency_load, item) {
        if (r->n_reading == READING_MAX)
            return;
        if (l->reads)
            continue;
        l->reads = true;
        r->n_reading++;
        (void)task_start(r->tasks, STR("reload"), load_session, l);
    }
}

/* Ends the load and notifies its waiters. */
static void load_end(struct residency_load *l)
{
    struct residency *r = l->residency;
    struct residency_waiter *w;

    list_remove(&l->item);
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

static struct residency_load *first_over(const struct residency *r)
{
    struct residency_load *l;

    LIST_EACH(&r->loads, l, struct residency_load, item)
        if (l->over)
            break;
    return l;
}

static void on_loaded(struct loop_task *t)
{
    struct residency *r = CONTAINER_OF(t, struct residency_posts, loaded)->of;
    struct residency_load *l;

    while ((l = first_over(r)))
        load_end(l);
    begin_some(r);
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
    session_load_begin(s);
    session_load_rests(s);
    list_append(&r->loads, &l->item);
    return l;
}

/* --- records that come from the fleet's store --- */

static struct residency_load *fetch_of(const struct residency *r, struct str session_id)
{
    struct residency_load *l;

    LIST_EACH(&r->fetches, l, struct residency_load, item)
        if (str_eq_c(session_id, l->id))
            break;
    return l;
}

static void fetch_free(struct residency_load *l)
{
    loop_timer_stop(l->residency->loop, &l->limit);
    list_remove(&l->item);
    free(l->id);
    free(l);
}

static void on_fetch_late(struct loop_timer *t)
{
    struct residency_load *l = CONTAINER_OF(t, struct residency_load, limit);
    struct err e = {0};

    (void)err_set(&e, ERR_STORAGE_UNAVAILABLE,
                  "the session's records were not read from the fleet's store within %u ms "
                  "(--fleet-hold): repeat the request",
                  (unsigned)l->residency->fetch_ms);
    residency_fetched(l->residency, str_cstr(l->id), &e);
}

/* Returns true if the session waits for the fleet's store. */
static bool fetch_begin(struct residency *r, struct str session_id, bool ended)
{
    struct residency_load *l;

    if (!r->fetch || !r->fetch(r->fetch_ctx, session_id))
        return false;
    l = fetch_of(r, session_id);
    if (!l) {
        l = mem_zalloc(sizeof(*l));
        l->residency = r;
        l->id = mem_strndup(session_id.p, session_id.len);
        list_append(&r->fetches, &l->item);
        loop_timer_set(r->loop, &l->limit, r->fetch_ms, on_fetch_late);
    }
    l->ended = l->ended || ended;
    return true;
}

/* Returns true if the session is in memory, or unknown. A short one is read at once, without a
 * wait. */
bool residency_ready(struct residency *r, struct str session_id, bool ended)
{
    struct residency_load *l;
    struct session *s;
    bool gone, revived;

    if (fetch_begin(r, session_id, ended))
        return false;
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
    begin_some(r);
    if (!l->over || l->rc < 0)
        return false;
    load_end(l);
    return true;
}

/* Only right after residency_ready was false: the session is being read. */
void residency_wait(struct residency *r, struct str session_id, struct residency_waiter *w)
{
    bool gone;
    const struct session *s = session_find_any(r->store, session_id, &gone);

    w->load = fetch_of(r, session_id);
    if (!w->load)
        w->load = load_of(r, s);
    CHECK(w->load);
    list_append(&w->load->waiters, &w->item);
}

/* What came is in the journal, but not in memory: the waiters go on waiting for that. */
void residency_fetched(struct residency *r, struct str session_id, const struct err *e)
{
    struct residency_load *l = fetch_of(r, session_id);
    struct residency_waiter *w;
    bool reads;

    if (!l)
        return;
    list_remove(&l->item);
    reads = !e && !residency_ready(r, session_id, l->ended);
    while ((w = LIST_FIRST_OF(&l->waiters, struct residency_waiter, item))) {
        list_remove(&w->item);
        w->load = NULL;
        if (reads)
            residency_wait(r, session_id, w);
        else
            w->fn(w->ctx, e);
    }
    fetch_free(l);
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
    int rc = journal_read_records(j, session_id, records, n, &reader, e);

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

/* Evicts some, then lets others have their turn. */
static void on_evict(struct loop_task *t)
{
    struct residency *r = CONTAINER_OF(t, struct residency_posts, evict)->of;
    size_t n = evict_some(r);

    count_moves(r);
    if (n == EVICT_STEP) {
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
    loop_task_post(r->loop, &posts_of(r)->evict, on_evict);
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

/* Drops the waiting loads without calling their waiters. */
void residency_done(struct residency *r)
{
    struct residency_load *l, *next;

    if (r->posts) {
        loop_task_cancel(r->loop, &r->posts->evict);
        loop_task_cancel(r->loop, &r->posts->loaded);
        free(r->posts);
        r->posts = NULL;
    }
    LIST_EACH_SAFE(&r->fetches, l, next, struct residency_load, item)
        fetch_free(l);
    LIST_EACH_SAFE(&r->loads, l, next, struct residency_load, item) {
        list_remove(&l->item);
        if (!l->over) /* a thread hangs, and its task waits for it */
            session_texts_lost(l->s);
        (void)session_load_end(l->s, false, 0);
        free(l);
    }
}
