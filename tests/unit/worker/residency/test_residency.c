/* Sessions with long texts are read back, with helpers that finish in time, late, or never. */
#include "worker/residency/residency.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/os/helpers.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/residency/places.h"
#include "worker/session/kit.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/record/record.h"
#include "worker/session/store/session.h"

enum { SESSIONS_MAX = 20, LIMIT_MS = 60000, LONG = 50 << 10 };

struct fixture {
    char folder[64], journal_dir[128];
    struct loop *loop;
    struct places places;
    struct residency residency;
    struct journal *journal;
    struct helpers *helpers;
    size_t n;
    struct str ids[SESSIONS_MAX];
    struct buf states[SESSIONS_MAX];
    struct residency_waiter waiters[SESSIONS_MAX];
    unsigned told, failed;
    bool away; /* the records of the first session */
    struct kit kits[SESSIONS_MAX];
};

/* --- what helpers do (the linker puts this between) --- */

struct new_messages *__real_new_messages_read(struct record_in texts, uint32_t n,
                                              const struct matcher *mt, atomic_size_t *sum);
struct new_messages *__wrap_new_messages_read(struct record_in texts, uint32_t n,
                                              const struct matcher *mt, atomic_size_t *sum);

static atomic_bool held;   /* helpers wait while it is set, */
static atomic_bool obeys;  /* or, if this is set, until they are cancelled */
static atomic_uint n_made; /* number of started helpers */

struct new_messages *__wrap_new_messages_read(struct record_in texts, uint32_t n,
                                              const struct matcher *mt, atomic_size_t *sum)
{
    (void)atomic_fetch_add(&n_made, 1);
    while (atomic_load(&held) && !(atomic_load(&obeys) && cancel_wanted()))
        (void)usleep(500);
    return __real_new_messages_read(texts, n, mt, sum);
}

/* --- sessions in a journal --- */

static int no_replay(void *ctx, struct str id, struct str payload, struct err *e)
{
    (void)ctx, (void)id, (void)payload, (void)e;
    return 0;
}

static void fixture_open(struct fixture *f)
{
    struct session_defaults d;
    struct err e;

    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/rg_residency_XXXXXX");
    cr_assert_not_null(mkdtemp(f->folder));
    (void)snprintf(f->journal_dir, sizeof(f->journal_dir), "%s/j", f->folder);
    f->loop = loop_new(&e);
    cr_assert_eq(journal_open(f->loop,
                              &(struct journal_options){.dir = f->journal_dir,
                                                        .durability = JOURNAL_PROCESS,
                                                        .segment_bytes = 1 << 20,
                                                        .wait_ms = 1000},
                              no_replay, NULL, &f->journal, &e),
                 0, "%s", e.text);
    places_add(&f->places, 0, f->journal);
    session_defaults_init(&d);
    f->residency.loop = f->loop;
    f->residency.tasks = tasks_new(f->loop);
    tasks_yield_always(f->residency.tasks, false);
    f->residency.places = &f->places;
    f->residency.store = session_store_new(NULL, &d);
    residency_evicts(&f->residency);
}

static void begin_helpers(struct fixture *f, unsigned threads, uint64_t limit_ms)
{
    struct err e;

    cr_assert_eq(helpers_new(f->loop,
                             &(struct helpers_options){.threads = threads, .limit_ms = limit_ms},
                             &f->helpers, &e),
                 0, "%s", e.text);
    tasks_use_helpers(f->residency.tasks, &(struct task_helpers){.h = f->helpers});
}

/* Ends the helpers, as a worker's end does. */
static void end_helpers(struct fixture *f)
{
    unsigned lost;

    tasks_finish(f->residency.tasks, false);
    lost = helpers_free(f->helpers);
    f->helpers = NULL;
    tasks_finish(f->residency.tasks, true);
    cr_assert_eq(lost, 0);
}

static void fixture_close(struct fixture *f)
{
    char command[160];

    if (f->helpers)
        end_helpers(f);
    residency_done(&f->residency);
    tasks_free(f->residency.tasks);
    places_done(&f->places);
    session_store_free(f->residency.store);
    for (size_t i = 0; i < f->n; i++) {
        kit_done(&f->kits[i]);
        buf_done(&f->states[i]);
    }
    loop_free(f->loop);
    (void)snprintf(command, sizeof(command), "rm -r '%s'", f->folder);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a folder of our own */
}

static const char *messages(struct kit *k, unsigned n, size_t bytes)
{
    struct buf b = {0};
    const char *text;

    for (unsigned i = 0; i < n; i++) {
        buf_printf(&b, "%s{\"role\":\"user\",\"content\":\"%u ", i ? "," : "[", i);
        for (size_t at = 0; at < bytes; at++)
            buf_add_c(&b, (char)('a' + (at * 7 + at / 26 + i) % 26));
        buf_puts(&b, "\"}");
    }
    buf_add_c(&b, ']');
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

/* Adds a session of two calls to the journal, but not to memory. With 0 bytes of text no helper
 * reads it, even in debug builds, which give every second text to a helper. The kit's store makes
 * its records. */
static void add(struct fixture *f, size_t bytes)
{
    struct kit *k = &f->kits[f->n];
    struct buf id = {0};
    struct err e;

    kit_init(k, NULL);
    k->part_bytes = 64 << 10;
    cr_assert_geq(kit_turn(k, messages(k, 2, bytes), "A"), 0);
    if (bytes > 0)
        cr_assert_geq(kit_turn(k, messages(k, 5, bytes), "B"), 0);
    cr_assert_eq(session_write_state(k->s, true, &f->states[f->n], &e), 0);
    buf_printf(&id, "w0-%c", (char)('a' + f->n));
    f->ids[f->n] = arena_str(&k->arena, buf_str(&id));
    buf_done(&id);
    session_store_lazy(f->residency.store, true);
    for (size_t i = 0; i < k->n_journal; i++) {
        char *record = mem_strndup(k->journal[i].p, k->journal[i].len);

        record[3 + 3] = f->ids[f->n].p[3]; /* type, version, length of the id, "w0-1" */
        cr_assert_geq(journal_append(f->journal, f->ids[f->n], str_of(record, k->journal[i].len),
                                     NULL, NULL, &e),
                      0);
        cr_assert_eq(session_apply(f->residency.store, str_of(record, k->journal[i].len), &e), 0,
                     "%s", e.text);
        free(record);
    }
    session_store_lazy(f->residency.store, false);
    f->n++;
}

static struct session *session_at(struct fixture *f, size_t i)
{
    bool ended;

    return session_find(f->residency.store, f->ids[i], &ended);
}

static struct session *any_session_at(struct fixture *f, size_t i)
{
    bool gone;

    return session_find_any(f->residency.store, f->ids[i], &gone);
}

static void assert_back(struct fixture *f, size_t i)
{
    struct buf state = {0};
    struct err e;

    cr_assert(session_resident(session_at(f, i)));
    cr_assert_eq(session_write_state(session_at(f, i), true, &state, &e), 0);
    /* the session's id is different there */
    for (char *at = state.p; (at = memmem(at, state.len - (size_t)(at - state.p), f->ids[i].p, 4));)
        at[3] = '1';
    cr_assert(str_eq(buf_str(&state), buf_str(&f->states[i])), "%.*s", (int)state.len, state.p);
    buf_done(&state);
}

static void on_back(void *ctx, const struct err *e)
{
    struct fixture *f = ctx;

    f->told++;
    f->failed += e != NULL;
}

/* Requests the session. Returns false if it is being read, with a waiter. */
static bool ask(struct fixture *f, size_t i)
{
    if (residency_ready(&f->residency, f->ids[i], false))
        return true;
    if (!f->waiters[i].load) {
        f->waiters[i] = (struct residency_waiter){.fn = on_back, .ctx = f};
        residency_add_waiter(&f->residency, f->ids[i], &f->waiters[i]);
    }
    return false;
}

static void until_told(struct fixture *f, unsigned n)
{
    uint64_t end_ms = clock_ms() + LIMIT_MS;

    while (f->told < n && clock_ms() < end_ms)
        (void)loop_poll(f->loop, 50);
    cr_assert_eq(f->told, n);
}

static void until_made(struct fixture *f, unsigned n)
{
    uint64_t end_ms = clock_ms() + LIMIT_MS;

    while (atomic_load(&n_made) < n && clock_ms() < end_ms)
        (void)loop_poll(f->loop, 1);
    cr_assert_geq(atomic_load(&n_made), n);
}

TEST_WITH(residency, long_texts_are_read_by_a_helper, fixture)
{
    add(f, LONG);
    begin_helpers(f, 1, 0);
    cr_assert_not(ask(f, 0));
    cr_assert_not(ask(f, 0), "others wait, too");
    until_told(f, 1);
    cr_assert_eq(f->failed, 0);
    assert_back(f, 0);
    cr_assert_eq(atomic_load(&f->residency.texts_bytes), 0);
}

/* Sessions with short texts are read while helpers work on long ones, for any number of sessions.
 */
TEST_WITH(residency, others_are_read_while_helpers_work, fixture)
{
    size_t at_once;

    for (size_t i = 0; i < SESSIONS_MAX; i++)
        add(f, i == 3 || i == SESSIONS_MAX - 1 ? 0 : LONG);
    begin_helpers(f, 8, 0);
    atomic_store(&held, true);
    for (size_t i = 0; i < 3; i++)
        cr_assert_not(ask(f, i));
    until_made(f, 3);
    at_once = ask(f, 3);
    for (size_t i = 4; i < SESSIONS_MAX - 1; i++)
        cr_assert_not(ask(f, i));
    until_made(f, 8);
    at_once += ask(f, SESSIONS_MAX - 1);
    until_told(f, 2 - (unsigned)at_once);
    atomic_store(&held, false);
    until_told(f, SESSIONS_MAX - at_once);
    cr_assert_eq(f->failed, 0);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        assert_back(f, i);
}

static bool is_wanted(void *ctx, struct str id)
{
    struct fixture *f = ctx;

    return f->away && str_eq(id, f->ids[0]);
}

/* What must come from a fleet's store first is waited for, then read like any other. */
TEST_WITH(residency, a_session_of_the_store_comes_first_from_there, fixture)
{
    struct err e = {0};

    add(f, LONG);
    add(f, 0);
    begin_helpers(f, 1, 0);
    f->residency.fetch = is_wanted;
    f->residency.fetch_ctx = f;
    f->residency.fetch_ms = LIMIT_MS;
    f->away = true;
    cr_assert_not(ask(f, 0));
    cr_assert_not(ask(f, 0));
    if (!ask(f, 1))
        until_told(f, 1);
    f->told = 0;
    (void)err_set(&e, ERR_SESSION_LOST, "it is lost");
    residency_fetched(&f->residency, f->ids[0], &e);
    cr_assert(f->told == 1 && f->failed == 1);
    f->residency.fetch_ms = 20;
    cr_assert_not(ask(f, 0));
    until_told(f, 2);
    cr_assert_eq(f->failed, 2, "its time was over");
    f->residency.fetch_ms = LIMIT_MS;
    cr_assert_not(ask(f, 0));
    f->away = false;
    residency_fetched(&f->residency, f->ids[0], NULL);
    until_told(f, 3);
    cr_assert_eq(f->failed, 2);
    assert_back(f, 0);
    f->away = true;
    cr_assert_not(ask(f, 0)); /* a waiter is left at the end */
}

static uint64_t asked_bytes;

static uint64_t bytes_of_requests(void *ctx)
{
    (void)ctx;
    return asked_bytes;
}

/* If uncounted memory alone is an eighth above the limit, no eviction can free enough: this is
 * reported at once, without an eviction. Memory that a request is about to use counts, memory that
 * it has does not. */
TEST_WITH(residency, requests_alone_leave_no_room, fixture)
{
    const uint64_t mib = 1 << 20, most = (16 + 64 + 8) * mib;
    const struct session *s;
    struct err e = {0};

    add(f, 0);
    if (!ask(f, 0))
        until_told(f, 1);
    s = session_at(f, 0);
    f->residency.requests = bytes_of_requests;
    asked_bytes = most;
    cr_expect_eq(residency_room(&f->residency, s, 0, &e), 0, "there is no limit");
    f->residency.limit = 64 * mib;
    cr_expect_eq(residency_room(&f->residency, s, 0, &e), -1);
    cr_expect_eq(e.kind, ERR_MEMORY_FULL);
    cr_expect_eq(residency_room(&f->residency, NULL, 0, &e), -1);
    cr_expect_eq(residency_room(&f->residency, s, 1, &e), 0);
    asked_bytes = most - mib;
    cr_expect_eq(residency_room(&f->residency, s, 0, &e), 0);
    cr_expect_eq(residency_room_more(&f->residency, s, 0, mib - 1, &e), 0);
    cr_expect_eq(residency_room_more(&f->residency, s, 0, mib, &e), -1);
    cr_expect_eq(residency_room_more(&f->residency, s, 1, mib, &e), 0);
}

TEST_WITH(residency, without_helpers_the_loop_reads_them, fixture)
{
    add(f, LONG);
    if (!ask(f, 0))
        until_told(f, 1);
    assert_back(f, 0);
}

/* The memory of a stuck helper is lost, so leaks are not checked. The next request reads the
 * session. */
TEST_TIMED(residency, a_session_whose_helper_is_stuck_comes_back_another_time)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    fixture_open(f);
    add(f, LONG);
    begin_helpers(f, 1, 10);
    atomic_store(&held, true);
    cr_assert_not(ask(f, 0));
    until_told(f, 1);
    cr_assert_eq(f->failed, 1);
    cr_assert_not(session_resident(session_at(f, 0)));
    helpers_lengthen(f->helpers, LIMIT_MS);
    atomic_store(&held, false);
    cr_assert_not(ask(f, 0));
    until_told(f, 2);
    cr_assert_eq(f->failed, 1);
    assert_back(f, 0);
    fixture_close(f);
    free(f);
}

/* The loop reads the text that the helper did not read. */
TEST_WITH(residency, a_helper_that_takes_too_long_fails_no_session, fixture)
{
    add(f, LONG);
    begin_helpers(f, 1, 200);
    atomic_store(&held, true);
    atomic_store(&obeys, true);
    cr_assert_not(ask(f, 0));
    until_told(f, 1);
    cr_assert_eq(f->failed, 0);
    assert_back(f, 0);
    cr_assert_eq(atomic_load(&f->residency.texts_bytes), 0);
}

TEST_WITH(residency, a_worker_that_ends_while_a_helper_works_leaves_nothing, fixture)
{
    for (size_t i = 0; i < 6; i++)
        add(f, 4 * LONG);
    begin_helpers(f, 2, 0);
    atomic_store(&held, true);
    atomic_store(&obeys, true);
    for (size_t i = 0; i < 6; i++)
        (void)ask(f, i);
    until_made(f, 2);
    end_helpers(f);
    cr_assert_eq(f->told, 0);
}

/* Ends a session by a record that is journaled and applied, like an order by labels. */
static void end_one(struct fixture *f, size_t i, enum session_end how)
{
    struct buf record = {0};
    struct err e;

    cr_assert_eq(session_end_record(session_at(f, i), how, NULL, clock_wall_ms(), &record, &e), 0,
                 "%s", e.text);
    cr_assert_geq(journal_append(f->journal, f->ids[i], buf_str(&record), NULL, NULL, &e), 0);
    cr_assert_eq(session_apply(f->residency.store, buf_str(&record), &e), 0, "%s", e.text);
    buf_done(&record);
}

/* Sessions that wait for a free helper continue even if the first waiting ones are gone. */
TEST_WITH(residency, sessions_that_end_before_their_turn_hold_nobody_up, fixture)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        add(f, LONG);
    begin_helpers(f, 8, 0);
    atomic_store(&held, true);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        cr_assert_not(ask(f, i));
    until_made(f, 8);
    for (int i = 0; i < 50; i++)
        (void)loop_poll(f->loop, 1);
    for (size_t i = 8; i < SESSIONS_MAX - 1; i++)
        end_one(f, i, SESSION_END_ABORT);
    atomic_store(&held, false);
    until_told(f, SESSIONS_MAX);
    for (size_t i = 0; i < 8; i++)
        assert_back(f, i);
    assert_back(f, SESSIONS_MAX - 1);
    cr_assert_eq(f->residency.n_reading, 0);
}

/* Records of a session that is being read are in its journal, and are read with the others. */
static void end_meanwhile(enum session_end how, bool stays)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    struct session *s;

    fixture_open(f);
    add(f, LONG);
    begin_helpers(f, 1, 0);
    atomic_store(&held, true);
    cr_assert_not(ask(f, 0));
    until_made(f, 1);
    end_one(f, 0, how);
    atomic_store(&held, false);
    until_told(f, 1);
    cr_assert_eq(f->failed, 0);
    s = any_session_at(f, 0);
    cr_assert_eq(s != NULL, stays);
    if (s) {
        cr_assert(session_resident(s));
        cr_assert_eq(session_phase(s),
                     how == SESSION_END_COMPLETE ? SESSION_COMPLETED : SESSION_FINALIZED);
    }
    fixture_close(f);
    free(f);
}

TEST(residency, ends_that_come_while_a_helper_works)
{
    end_meanwhile(SESSION_END_COMPLETE, true);
    atomic_store(&n_made, 0);
    end_meanwhile(SESSION_END_FINALIZE, true);
    atomic_store(&n_made, 0);
    end_meanwhile(SESSION_END_ABORT, false);
}

/* Only waiters are notified of it. */
TEST_WITH(residency, a_session_that_is_removed_while_a_helper_works_is_gone, fixture)
{
    add(f, 4 * LONG);
    begin_helpers(f, 1, 0);
    end_one(f, 0, SESSION_END_FINALIZE);
    atomic_store(&held, true);
    cr_assert_not(ask(f, 0));
    until_made(f, 1);
    session_sweep(f->residency.store, clock_wall_ms() + (UINT64_C(1) << 40)); /* expires */
    cr_assert_null(any_session_at(f, 0));
    atomic_store(&held, false);
    until_told(f, 1);
    cr_assert_eq(f->failed, 0);
    cr_assert_eq(atomic_load(&f->residency.texts_bytes), 0);
}
