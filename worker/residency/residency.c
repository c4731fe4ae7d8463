/* Evicts sessions and reads them back (residency.h).
 *
 * Out: when memory exceeds the high water, on_evict calls session_evict (session/store/eviction.c),
 * which drops payloads and sessions in small steps, until an eighth of the limit is free.
 *
 * Back: a request finds that its session is not in memory (residency_ready). A task reads the
 * session's records and applies each with session_apply, as a replay does. Then the waiters are
 * called. Records that are written to the session between two steps are in its journal, and are
 * read with the others. An end of the session is applied at once (session_load_absorb).
 *
 *   residency_watch -> on_evict -> session_evict                    (out)
 *   residency_ready -> load_session -> session_apply -> on_loaded   (back)
 *
 * A session that is read back may cause others to be evicted (make_room). Finalized sessions are
 * also evicted when they were not read for a while (session_leave_late in session/store/store.c).
 *
 * In a fleet only the store may have the records (second_copy.h). Then they are fetched first:
 *
 *   residency_ready -> fetch -> residency_fetched -> residency_ready
 *
 * Payloads of sessions in memory are read at once, within the step that needs them (read_back). */

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

/* Bytes of requests that do not count, so that calls are possible below a small limit. */
enum { REQUESTS_FREE = 16 << 20 };

/* Number of sessions that are read at a time, most of which wait for helpers. It is limited because
 * a session that is being read cannot be evicted. */
enum { READING_MAX = 20 };

/* A session that is being read, or whose records are being fetched. */
struct residency_load {
    struct residency *residency;
    struct session *s;       /* pinned; NULL while its records are fetched */
    char *id;                /* owned; set only while its records are fetched */
    bool ended;              /* fetch: some waiter needs the session even if it has ended */
    struct loop_timer limit; /* time limit of the fetch */
    size_t record;           /* number of the next record */
    bool revived;            /* only its tombstone was left in memory */
    bool reads;              /* a task was started for it */
    bool over;               /* the reading has ended */
    int rc;                  /* result, if over: 1: all was read; -1: failed with err */
    struct err err;
    struct list_head waiters; /* struct residency_waiter, oldest first */
    struct list_item item;    /* in residency->loads or ->fetches */
};

/* Posts of on_evict and on_loaded. */
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
    if (t.evictions != r->counted.evictions || t.payload_evictions != r->counted.payload_evictions)
        log_debug(NULL, "evicted", LOG_U("sessions", t.evictions - r->counted.evictions),
                  LOG_U("payloads", t.payload_evictions - r->counted.payload_evictions));
    metrics_count(r->page, METRIC_session_evictions, t.evictions - r->counted.evictions);
    metrics_count(r->page, METRIC_payload_evictions,
                  t.payload_evictions - r->counted.payload_evictions);
    metrics_count(r->page, METRIC_payload_loads, t.payload_loads - r->counted.payload_loads);
    r->counted.evictions = t.evictions;
    r->counted.payload_evictions = t.payload_evictions;
    r->counted.payload_loads = t.payload_loads;
}

/* Returns the bytes of requests that count, and more_bytes that a request is about to hold. */
static uint64_t held_by_requests(const struct residency *r, uint64_t more_bytes)
{
    uint64_t bytes = more_bytes + (r->requests ? r->requests(r->requests_ctx) : 0);

    return bytes > REQUESTS_FREE ? bytes - REQUESTS_FREE : 0;
}

/* Returns the bytes of sessions and requests, and more_bytes that a request is about to hold. */
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

/* Does up to EVICT_STEP steps of eviction, until sessions and requests leave an eighth of the limit
 * free. Returns the number of steps. */
static size_t evict_some(struct residency *r)
{
    uint64_t room = r->limit - r->limit / 8, others = held_by_requests(r, 0);

    return session_evict(r->store, room > others ? room - others : 0, EVICT_STEP);
}

/* Returns the bytes from which on sessions are evicted: a sixteenth below the limit. */
static uint64_t high_water(const struct residency *r)
{
    return r->limit - r->limit / 16;
}

/* Evicts a few sessions if memory exceeds the high water. */
static void make_room(struct residency *r)
{
    if (!r->limit || held(r) < high_water(r))
        return;
    (void)evict_some(r);
    count_moves(r);
}

/* Records of a session, copied out of the journal. */
struct record_batch {
    VEC(size_t) numbers, ends; /* numbers of the records; their ends in bytes */
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

/* Applies a record, after a pause for other tasks. Returns -1 with l->err if the task is
 * cancelled. */
MAY_PAUSE static int apply_record(struct residency_load *l, size_t record, struct str payload)
{
    struct err bad = {0};

    session_load_absorb(l->s);
    if (task_pause(&l->err) ||
        session_texts_make(l->s, payload, &l->residency->texts_bytes, &l->err))
        return -1;
    if (!session_unlinked(l->s)) { /* otherwise it has ended while it was read */
        task_atomic(1);
        session_load_at(l->s, record);
        /* a record does not fit if one before it is damaged; a replay skips it, too */
        if (session_apply(l->residency->store, payload, &bad))
            log_error(&(struct log_scope){.session = session_id(l->s)},
                      "journal: record does not apply", LOG_T("error", bad.text));
        session_load_at(l->s, record + 1);
        session_load_absorb(l->s);
        task_atomic(-1);
    }
    session_texts_end(l->s);
    return 0;
}

/* Reads and applies the next records. Returns 1 if more may follow, 0 if there are none, -1 with
 * l->err. */
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
    session_load_absorb(l->s);
    /* of a large session, payloads that were read first may have to be evicted again */
    make_room(l->residency);
    return rc;
}

/* Checks, after all records were applied, that there were some. Returns 1, or -1 with l->err. A
 * session of which only the tombstone was left may have none. */
static int check_read(struct residency_load *l)
{
    if (session_filled(l->s) || session_unlinked(l->s) || l->revived)
        return 1;
    return err_set(&l->err, ERR_IO, "the journal has no records of it");
}

/* Ends loads in the loop, because waiters must not be called on a task's stack. */
static void on_loaded(struct loop_task *t);

/* Ends the reading, with l->err if rc is -1. The load ends in on_loaded. */
static void read_end(struct residency_load *l, int rc)
{
    l->rc = rc;
    l->over = true;
    l->residency->n_reading--;
    loop_task_post(l->residency->loop, &posts_of(l->residency)->loaded, on_loaded);
}

/* Handles a hung helper thread, which may still read the session's texts. */
static void on_lost(void *ctx)
{
    struct residency_load *l = ctx;

    session_texts_lost(l->s);
    read_end(l, err_set(&l->err, ERR_INTERNAL, "a helper is stuck in its messages"));
}

/* A task: reads all records of a session. */
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

/* Starts tasks for waiting loads, while fewer than READING_MAX run. */
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
        (void)task_start(r->tasks, STR("read back"), load_session, l);
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
    /* from the start each time, because w->fn may end other waits */
    while ((w = LIST_FIRST_OF(&l->waiters, struct residency_waiter, item))) {
        w->load = NULL;
        list_remove(&w->item);
        w->fn(w->ctx, l->rc < 0 ? &l->err : NULL);
    }
    free(l);
    residency_watch(r);
}

/* Returns a load whose reading has ended, or NULL. */
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

/* Returns the load that reads this session, or NULL. */
static struct residency_load *load_of(struct residency *r, const struct session *s)
{
    struct residency_load *l;

    LIST_EACH(&r->loads, l, struct residency_load, item)
        if (l->s == s)
            break;
    return l;
}

/* Makes a load of the session, which is pinned until load_end. */
static struct residency_load *load_begin(struct residency *r, struct session *s)
{
    struct residency_load *l = mem_zalloc(sizeof(*l));

    l->residency = r;
    l->s = s;
    session_load_begin(s);
    session_load_absorb(s);
    list_append(&r->loads, &l->item);
    return l;
}

/* --- records that come from the fleet's store --- */

/* Returns the load that waits for the session's records from the store, or NULL. */
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

/* Fails a fetch that has exceeded fetch_ms. */
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

/* Returns true if the session waits for records of the fleet's store, which it then requests. */
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

/* Reads a short session at once: its task may end within begin_some. */
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

void residency_add_waiter(struct residency *r, struct str session_id, struct residency_waiter *w)
{
    bool gone;
    const struct session *s = session_find_any(r->store, session_id, &gone);

    w->load = fetch_of(r, session_id);
    if (!w->load)
        w->load = load_of(r, s);
    CHECK(w->load);
    list_append(&w->load->waiters, &w->item);
}

/* Begins to read the session, whose records are now in the journal. Its waiters wait for that, or
 * are called if there is no need. */
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
            residency_add_waiter(r, session_id, w);
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

/* A session_source: reads records from the session's journal. Reads them without a pause, because a
 * path is at most as long as a context. */
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

/* --- eviction --- */

/* Does the next steps of eviction. Posts itself again if more are needed, so that other work runs
 * in between. */
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

/* Posts on_evict if memory exceeds the high water, unless it is posted already. */
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

/* Reports whether `all` bytes without `own` exceed the limit by an eighth. */
static bool overflows(const struct residency *r, uint64_t all, uint64_t own)
{
    return all - MIN_OF(all, own) >= r->limit + r->limit / 8;
}

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
