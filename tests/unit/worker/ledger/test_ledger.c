/* The only way to change a session: record, append, apply, then answer. */
#include "common/os/loop.h"
#include "worker/ledger/fragments.h"
#include "worker/ledger/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/journal/journal.h"
#include "testing.h"
#include "worker/ledger/delivery.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"

enum { LIMIT_MS = 10000 };

struct fixture {
    struct loop *loop;
    struct places places;
    struct residency residency;
    struct deliveries deliveries;
    struct ledger ledger;
    struct journal *journal;
    char folder[64], journal_dir[128];
    int told;         /* number of `done` calls */
    bool there_first; /* the session existed at each call */
};

static int on_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct fixture *f = ctx;

    (void)id;
    return session_apply(f->residency.store, payload, e);
}

static void open_journal(struct fixture *f, enum journal_durability durability)
{
    struct journal_options o = {
        .dir = f->journal_dir, .durability = durability, .segment_bytes = 1 << 20, .wait_ms = 1000};
    struct session_defaults d;
    struct err e;

    session_defaults_init(&d);
    f->residency.loop = f->loop;
    f->residency.places = &f->places;
    f->residency.store = session_store_new(NULL, &d);
    f->ledger = (struct ledger){
        .residency = &f->residency, .deliveries = &f->deliveries, .fragments = fragments_new()};
    cr_assert_eq(journal_open(f->loop, &o, on_replayed, f, &f->journal, &e), 0, "%s", e.text);
    places_add(&f->places, 0, f->journal);
}

static void open_at(struct fixture *f, enum journal_durability durability)
{
    struct err e;

    *f = (struct fixture){.folder = "/tmp/rg_ledger_XXXXXX", .there_first = true};
    cr_assert_not_null(mkdtemp(f->folder));
    (void)snprintf(f->journal_dir, sizeof(f->journal_dir), "%s/j", f->folder);
    f->loop = loop_new(&e);
    open_journal(f, durability);
}

static void close_journal(struct fixture *f)
{
    fragments_free(f->ledger.fragments);
    residency_done(&f->residency);
    places_done(&f->places); /* closes the journal */
    session_store_free(f->residency.store);
}

static void fixture_open(struct fixture *f)
{
    open_at(f, JOURNAL_PROCESS);
}

static void fixture_close(struct fixture *f)
{
    char command[160];

    close_journal(f);
    deliveries_done(&f->deliveries);
    loop_free(f->loop);
    (void)snprintf(command, sizeof(command), "rm -r '%s'", f->folder);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a folder of our own */
}

static bool is_there(const struct fixture *f, const char *id)
{
    bool ended;

    return session_find(f->residency.store, str_cstr(id), &ended) != NULL;
}

static void on_done(void *ctx)
{
    struct fixture *f = ctx;

    f->told++;
    f->there_first = f->there_first && is_there(f, "w0-1");
}

static void create(struct fixture *f, const char *id)
{
    struct buf record = {0};
    struct err e;

    cr_assert_eq(
        session_create_record(f->residency.store, str_cstr(id), NULL, clock_wall_ms(), &record, &e),
        0, "%s", e.text);
    cr_assert_not(is_there(f, id), "a record changes nothing");
    cr_assert_eq(ledger_write(&f->ledger, str_cstr(id), buf_str(&record),
                              (struct ledger_done){on_done, f, NULL}, &e),
                 0, "%s", e.text);
    buf_done(&record);
}

TEST_WITH(ledger, applies_before_it_tells, fixture)
{
    create(f, "w0-1");
    cr_assert(f->told == 1 && f->there_first,
              "durable once written: told at once, after the change");
}

TEST_WITH(ledger, what_is_too_large_for_a_record_is_an_error, fixture)
{
    struct err e = {0};

    create(f, "w0-1");
    cr_assert_eq(ledger_write(&f->ledger, STR("w0-1"), str_of("x", JOURNAL_RECORD_MAX + (size_t)1),
                              (struct ledger_done){on_done, f, NULL}, &e),
                 -1);
    cr_assert(e.kind == ERR_ENGINE_INVALID && strstr(e.text, "a record has at most"));
    cr_assert_eq(f->told, 1);
}

TEST(ledger, with_power_it_tells_when_the_disk_has_it)
{
    uint64_t until_ms = clock_ms() + LIMIT_MS;
    struct fixture f;

    open_at(&f, JOURNAL_POWER);
    create(&f, "w0-1");
    cr_assert(is_there(&f, "w0-1"), "the next call of the session finds it");
    cr_assert_eq(f.told, 0, "but nobody is answered yet");
    while (f.told == 0 && clock_ms() < until_ms)
        (void)loop_poll(f.loop, 10);
    cr_assert(f.told == 1 && f.there_first);
    fixture_close(&f);
}

TEST(ledger, who_left_is_not_told)
{
    struct fixture f;

    open_at(&f, JOURNAL_POWER);
    create(&f, "w0-1");
    ledger_forget(&f.ledger, &f);
    create(&f, "w0-2"); /* its end follows that of the other one */
    while (f.told == 0)
        (void)loop_poll(f.loop, 10);
    cr_assert_eq(f.told, 1);
    fixture_close(&f);
}

TEST_WITH(ledger, what_was_told_is_there_after_a_restart, fixture)
{
    create(f, "w0-1");
    close_journal(f);
    open_journal(f, JOURNAL_PROCESS);
    cr_assert(is_there(f, "w0-1"));
    cr_assert_not(is_there(f, "w0-2"));
}

/* As in a fleet, where records are read back for as long as a sweep needs to pass. */
TEST_WITH(ledger, what_follows_a_session_that_has_left_is_read_back, fixture)
{
    struct session_defaults d;
    struct buf record = {0}, exported = {0};
    struct session *s;
    struct err e = {0};
    bool ended;

    session_defaults_init(&d);
    d.evict_after_ms = 1;
    session_store_configure(f->residency.store, &d);
    create(f, "w0-1");
    s = session_find(f->residency.store, STR("w0-1"), &ended);
    cr_assert_eq(session_end_record(s, SESSION_END_FINALIZE, NULL, clock_wall_ms(), &record, &e),
                 0);
    session_exported_record(s, clock_wall_ms(), &exported);
    cr_assert_eq(ledger_add_back(&f->ledger, STR("w0-1"), buf_str(&record), false, &e), 0);
    cr_assert(session_leave_late(s, clock_wall_ms() + 1000));
    cr_assert_eq(ledger_add_back(&f->ledger, STR("w0-1"), buf_str(&exported), false, &e), 0, "%s",
                 e.text);
    cr_assert_eq(journal_records(f->journal, STR("w0-1")), 3);
    cr_assert(session_is_kept(f->residency.store, STR("w0-1")));
    buf_done(&record);
    buf_done(&exported);
}

/* Opens and closes the delivery of a call. */
static void deliver(struct fixture *f, struct str session, uint64_t call)
{
    const uint64_t hash[2] = {1, 2};

    ledger_open_delivery(&f->ledger, session, hash, (struct str){0}, call);
    ledger_close_delivery(&f->ledger, session, hash, call);
}

TEST_WITH(ledger, writes_arrived_answers_before_their_sessions_are_many, fixture)
{
    char id[16];

    f->deliveries.as_records = true;
    for (int i = 0; i < 300; i++) {
        (void)snprintf(id, sizeof(id), "w0-%d", i);
        deliver(f, str_cstr(id), 0);
        cr_expect_lt(f->deliveries.arrived.n, 128);
    }
    cr_expect_eq(f->deliveries.arrived.n, 300 % 128);
    ledger_write_deliveries(&f->ledger);
    cr_expect_eq(f->deliveries.arrived.n, 0);
}
