/* Fragments without a commit are dropped from the journal, live and after a replay. Nothing is
 * missing when the session is read back. */
#include "worker/ledger/fragments.h"

#include <stdio.h>
#include <stdlib.h>

#include "../session/kit.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"

#define ID STR("w0-1")

enum { LONG = 3000 };

/* The kit makes records; this ledger journals and applies the same ones. */
struct fixture {
    struct kit kit;
    size_t written; /* number of the kit's records that were written */
    struct loop *loop;
    struct places places;
    struct residency residency;
    struct ledger ledger;
    struct journal *journal;
    struct fragments *replayed;
    char dir[64];
};

static int on_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct fixture *f = ctx;

    if (session_apply(f->residency.store, payload, e) != 0)
        return -1;
    fragments_add(f->replayed, f->journal, id, payload, (uint32_t)journal_records(f->journal, id));
    return 0;
}

/* Opens the journal like a worker: fragments without a commit are dropped after the replay. */
static void open_journal(struct fixture *f)
{
    struct journal_options o = {
        .dir = f->dir, .durability = JOURNAL_PROCESS, .segment_bytes = 8 << 10, .wait_ms = 1000};
    struct session_defaults d;
    struct err e = {0};

    session_defaults_init(&d);
    f->residency = (struct residency){.loop = f->loop, .places = &f->places};
    f->residency.store = session_store_new(NULL, &d);
    f->ledger = (struct ledger){.residency = &f->residency, .fragments = fragments_new()};
    f->replayed = fragments_new();
    f->residency.tasks = tasks_new(f->loop);
    session_store_lazy(f->residency.store, true);
    cr_assert_eq(journal_open(f->loop, &o, on_replayed, f, &f->journal, &e), 0, "%s", e.text);
    session_store_lazy(f->residency.store, false);
    fragments_drop_all(f->replayed, f->journal);
    fragments_free(f->replayed);
    places_add(&f->places, 0, f->journal);
}

static void close_journal(struct fixture *f)
{
    fragments_free(f->ledger.fragments);
    tasks_finish(f->residency.tasks, true);
    residency_done(&f->residency);
    tasks_free(f->residency.tasks);
    places_done(&f->places);
    session_store_free(f->residency.store);
}

/* Writes the kit's new records. */
static void write_all(struct fixture *f)
{
    for (; f->written < f->kit.n_journal; f->written++) {
        struct err e = {0};

        cr_assert_eq(ledger_write(&f->ledger, ID, buf_str(&f->kit.journal[f->written]),
                                  (struct ledger_done){0}, &e),
                     0, "%s", e.text);
    }
}

static void open_all(struct fixture *f, const char *options)
{
    struct err e = {0};

    *f = (struct fixture){.dir = "/tmp/rg_loose_XXXXXX"};
    cr_assert_not_null(mkdtemp(f->dir));
    f->loop = loop_new(&e);
    cr_assert_not_null(f->loop);
    kit_init(&f->kit, options);
    f->kit.part_bytes = 1000;
    open_journal(f);
    write_all(f);
}

static void close_all(struct fixture *f)
{
    char command[96];

    close_journal(f);
    loop_free(f->loop);
    kit_done(&f->kit);
    (void)snprintf(command, sizeof(command), "rm -r '%s'", f->dir);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a folder of our own */
}

static const char *user(struct fixture *f, char letter)
{
    struct buf b = {0};
    const char *text;

    buf_puts(&b, "[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < LONG; i++)
        buf_add_c(&b, letter);
    buf_puts(&b, "\"}]");
    text = arena_str(&f->kit.arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

static uint64_t bytes(const struct fixture *f)
{
    return journal_session_bytes(f->journal, ID);
}

/* Checks that the session in the journal equals the kit's, and has at most `most` bytes. */
static void assert_whole(struct fixture *f, uint64_t most)
{
    struct buf want = {0}, got = {0};
    struct session_store *st = f->residency.store;
    struct err e = {0};
    bool ended;

    cr_assert_leq(bytes(f), most);
    while (journal_compact(f->journal, true, &e) == 1)
        ;
    while (!residency_ready(&f->residency, ID, false)) /* read back in slices */
        (void)loop_poll(f->loop, 1000);
    cr_assert_eq(session_write_state(f->kit.s, true, &want, &e), 0);
    cr_assert_eq(session_write_state(session_find(st, ID, &ended), true, &got, &e), 0);
    cr_assert(str_eq(buf_str(&want), buf_str(&got)), "%.*s\n%.*s", (int)want.len, want.p,
              (int)got.len, got.p);
    buf_done(&want);
    buf_done(&got);
}

static void reopen(struct fixture *f)
{
    close_journal(f);
    open_journal(f);
}

TEST(fragments, go_when_their_call_fails)
{
    struct fixture f;
    struct session_plan *p, *q;
    uint64_t before, lasting;

    open_all(&f, NULL);
    cr_assert_geq(kit_turn(&f.kit, user(&f, 'a'), "A"), 0);
    write_all(&f);
    before = bytes(&f);
    p = kit_ask(&f.kit, user(&f, 'b'), NULL);
    q = kit_ask(&f.kit, user(&f, 'c'), NULL);
    cr_assert_gt(kit_fragments(&f.kit, p), 2);
    write_all(&f);
    lasting = bytes(&f);
    cr_assert_gt(lasting, before + LONG);
    cr_assert_eq(kit_answer(&f.kit, q, "C", false), 0);
    write_all(&f);
    lasting = bytes(&f) - (lasting - before);
    ledger_release_call(&f.ledger, ID, p->call);
    session_release(f.kit.store, p);
    cr_assert_eq(bytes(&f), lasting);
    ledger_release_call(&f.ledger, ID, 0);
    cr_assert_eq(bytes(&f), lasting, "what is committed stays");
    reopen(&f);
    assert_whole(&f, lasting);
    reopen(&f);
    assert_whole(&f, lasting);
    close_all(&f);
}

/* The worker is killed between fragments or before a compaction, and the number of the call is used
 * again. */
TEST(fragments, go_behind_a_replay)
{
    struct fixture f;
    struct session_plan *p;
    uint64_t before;

    open_all(&f, NULL);
    cr_assert_geq(kit_turn(&f.kit, user(&f, 'a'), "A"), 0);
    write_all(&f);
    before = bytes(&f);
    for (int i = 0; i < 3; i++) {
        p = kit_ask(&f.kit, user(&f, (char)('b' + i)), NULL);
        cr_assert_gt(kit_fragments(&f.kit, p), 2);
        write_all(&f);
        cr_assert_gt(bytes(&f), before + LONG);
        reopen(&f);
        cr_assert_eq(bytes(&f), before);
        session_release_unused(f.kit.store, p);
    }
    p = kit_ask(&f.kit, user(&f, 'e'), NULL);
    cr_assert_eq(kit_answer(&f.kit, p, "E", false), 0);
    write_all(&f);
    cr_assert(bytes(&f) > before + LONG && bytes(&f) < before + 5 * LONG + 1000);
    before = bytes(&f);
    reopen(&f);
    cr_assert_eq(bytes(&f), before, "those of the call that came last are its commit's");
    assert_whole(&f, before);
    close_all(&f);
}

TEST(ledger_room, is_what_the_sessions_records_leave)
{
    struct fixture f;
    struct session_plan *p;
    struct err e = {0};

    open_all(&f, NULL);
    cr_assert_geq(kit_turn(&f.kit, user(&f, 'a'), "A"), 0);
    write_all(&f);
    cr_assert_eq(ledger_room(&f.ledger, ID, UINT64_MAX / 2, &e), 0, "no limit");
    f.ledger.session_bytes = bytes(&f) + LONG;
    cr_assert_eq(ledger_room(&f.ledger, ID, LONG, &e), 0);
    cr_assert_eq(ledger_room(&f.ledger, ID, LONG + 1, &e), -1);
    cr_assert_eq(e.kind, ERR_BUDGET);
    cr_assert_str_eq(e.param, "max_session_recorded_bytes");
    cr_assert_not_null(strstr(e.text, "--max-session-recorded-bytes"));
    cr_assert_eq(ledger_room(&f.ledger, STR("w0-2"), LONG + 1, &e), 0, "another's");
    p = kit_ask(&f.kit, user(&f, 'b'), NULL);
    cr_assert_gt(kit_fragments(&f.kit, p), 2);
    for (; f.written < f.kit.n_journal; f.written++)
        if (ledger_write_call(&f.ledger, ID, buf_str(&f.kit.journal[f.written]),
                              (struct ledger_done){0}, &e) != 0)
            break;
    cr_assert_lt(f.written, f.kit.n_journal, "one part is too much");
    cr_assert_leq(bytes(&f), f.ledger.session_bytes);
    cr_assert_eq(ledger_room(&f.ledger, ID, LONG, &e), -1);
    ledger_release_call(&f.ledger, ID, p->call);
    cr_assert_eq(ledger_room(&f.ledger, ID, LONG, &e), 0);
    f.written = f.kit.n_journal;
    session_release(f.kit.store, p);
    f.ledger.session_bytes = 1;
    cr_assert_eq(kit_end(&f.kit, SESSION_END_FINALIZE), 0);
    write_all(&f);
    close_all(&f);
}
