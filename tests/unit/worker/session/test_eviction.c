/* Sessions that are evicted and read back: what must not change. */
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/stop.h"
#include "worker/session/store/store.h"

enum { HOUR = 3600 * 1000 };

static void give_up(struct kit *k)
{
    session_store_evicts(k->store, true);
    cr_assert_eq(session_evict(k->store, 0, 10), 1);
    cr_assert(!session_resident(k->s));
}

static void apply_all(struct kit *k, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(session_apply(k->store, buf_str(&k->journal[i]), &k->err), 0, "%s",
                     k->err.text);
}

static void come_back(struct kit *k)
{
    session_load_begin(k->s);
    apply_all(k, k->n_journal);
    cr_assert_eq(session_load_end(k->s, true, k->now), 0);
    cr_assert(session_resident(k->s));
}

/* Restarts the kit, as a worker's start does. */
static void restart(struct kit *k)
{
    struct session_defaults d;
    bool ended;

    session_store_free(k->store);
    session_defaults_init(&d);
    k->store = session_store_new(NULL, &d);
    session_store_lazy(k->store, true);
    apply_all(k, k->n_journal);
    session_store_lazy(k->store, false);
    k->s = session_find(k->store, STR("w0-1"), &ended);
}

static void two_turns(struct kit *k, const char *options)
{
    kit_init(k, options);
    cr_assert_geq(kit_turn(k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    cr_assert_geq(kit_turn(k,
                           "[{\"role\":\"user\",\"content\":\"a\"},"
                           "{\"role\":\"assistant\",\"content\":\"A\"},"
                           "{\"role\":\"user\",\"content\":\"b\"}]",
                           "B"),
                  0);
}

TEST(evict, a_session_idles_from_its_last_call_on)
{
    struct kit k;

    kit_init(&k, "{\"ttl_s\":3600}");
    k.now += 5 * HOUR; /* it is old */
    cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    restart(&k); /* as in a worker that adopts it */
    cr_assert(!session_expired(k.s, k.now + HOUR / 2));
    cr_assert(session_expired(k.s, k.now + HOUR));
    kit_done(&k);
}

TEST(evict, coming_back_is_no_step_back_in_time)
{
    struct kit k;

    two_turns(&k, "{\"ttl_s\":3600}");
    restart(&k);
    k.now += 9 * HOUR; /* no worker served it */
    session_store_woken(k.store, k.now);
    come_back(&k);
    cr_assert(!session_expired(k.s, k.now + HOUR / 2));
    cr_assert(session_expired(k.s, k.now + HOUR));
    kit_done(&k);
}

/* Applying a record reads nothing, so no disk error can prevent it. A record that would copy
 * context from other payloads is refused. */
TEST_WITH(evict, a_record_shares_context_over_a_bounded_number_of_runs, kit)
{
    for (const char *last = "abc"; *last; last++) {
        struct buf b = {0};
        char *text;

        buf_puts(&b, "[{\"role\":\"user\",\"content\":\"");
        for (int i = 0; i < 200; i++)
            buf_puts(&b, "long ");
        buf_printf(&b, "\"},{\"role\":\"user\",\"content\":\"%c\"}]", *last);
        text = buf_take(&b);
        cr_assert_geq(kit_turn(f, text, "A"), 0);
        free(text);
    }
    cr_assert_not_null(f->s->forest.checkpoints.at[2]->context.base);
    session_store_evicts(f->store, true);
    session_rest(f->s);
    session_load_begin(f->s);
    apply_all(f, f->n_journal - 1);
    for (size_t i = 0; i < f->s->forest.checkpoints.n; i++)
        f->s->forest.checkpoints.at[i]->context.depth = 16;
    cr_assert_eq(session_apply(f->store, buf_str(&f->journal[f->n_journal - 1]), &f->err), -1);
    cr_expect_not_null(strstr(f->err.text, "over too many others"), "%s", f->err.text);
    (void)session_load_end(f->s, false, f->now);
}

/* The budget's name is in the evicted content. */
TEST(evict, the_budget_that_stopped_it_is_read_anew)
{
    enum session_stop by;
    const char *reason;
    struct kit k;

    two_turns(&k, "{\"max_turns\":2}");
    session_budget_record(k.s, STR("max_turns"), k.now, &k.journal[k.n_journal++]);
    cr_assert_eq(session_apply(k.store, buf_str(&k.journal[k.n_journal - 1]), &k.err), 0);
    give_up(&k);
    cr_assert(!session_stopped(k.s, &by, &reason));
    come_back(&k);
    cr_assert(session_stopped(k.s, &by, &reason));
    cr_assert_eq(by, SESSION_STOP_BUDGET);
    cr_assert_eq(strcmp(reason, "max_turns"), 0);
    kit_done(&k);
}

/* Its end would be decided with half of its records. */
TEST(evict, nothing_expires_while_it_is_read)
{
    struct kit k;

    two_turns(&k, "{\"ttl_s\":3600,\"history\":\"linear\"}");
    give_up(&k);
    session_load_begin(k.s);
    cr_assert(!session_expired(k.s, k.now + 9 * HOUR));
    apply_all(&k, 2);
    cr_assert(!session_expired(k.s, k.now + 9 * HOUR));
    session_load_end(k.s, false, k.now);
    cr_assert(session_expired(k.s, k.now + 9 * HOUR));
    kit_done(&k);
}

static bool is_zero(const struct session_store *st)
{
    struct session_totals t;

    session_store_totals(st, &t);
    return !t.sessions && !t.nodes && !t.tokens && !t.bytes && !t.evicted && !t.evicted_bytes;
}

static void check_back(struct kit *k, const struct session_totals *want)
{
    struct session_totals t;

    session_store_totals(k->store, &t);
    cr_assert_eq(t.sessions, want->sessions);
    cr_assert_eq(t.nodes, want->nodes);
    cr_assert_eq(t.tokens, want->tokens);
    cr_assert_eq(t.evicted, 0);
    cr_assert_eq(t.evicted_bytes, 0);
}

TEST(evict, sums_do_not_drift)
{
    static const enum session_end ends[] = {SESSION_END_DELETE, SESSION_END_ABORT,
                                            SESSION_END_FINALIZE, SESSION_END_EXPIRE};
    struct session_totals want;
    struct kit k;

    for (size_t way = 0; way < 4 * ARRAY_LEN(ends); way++) {
        two_turns(&k, NULL);
        session_store_totals(k.store, &want);
        for (int round = 0; round < 3; round++) {
            give_up(&k);
            session_load_begin(k.s); /* without effect */
            apply_all(&k, (size_t)round);
            cr_assert_eq(session_load_end(k.s, false, k.now), -1);
            come_back(&k);
            check_back(&k, &want);
        }
        if (way % 4 == 1)
            restart(&k);
        else if (way % 4 == 2)
            give_up(&k);
        cr_assert_eq(kit_end(&k, ends[way / 4]), 0);
        session_sweep(k.store, k.now + 200 * (uint64_t)HOUR);
        cr_assert(is_zero(k.store), "way %zu", way);
        kit_done(&k);
    }
}

/* Its time may pass while it is read. Then it is gone, and its reader is notified. */
TEST(evict, a_revived_session_may_end_while_it_is_read)
{
    struct session_defaults d;
    struct kit k;

    session_defaults_init(&d);
    d.export_retention_ms = HOUR;
    kit_defaults(&k, &d, NULL);
    cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    cr_assert_eq(kit_end(&k, SESSION_END_FINALIZE), 0);
    (void)session_make_room(k.store, 1000);
    cr_assert(is_zero(k.store));
    k.s = session_revive(k.store, STR("w0-1"), k.now + 10);
    cr_assert(k.s);
    session_load_begin(k.s);
    apply_all(&k, 1);
    session_sweep(k.store, k.now + 2 * HOUR);
    cr_assert(session_unlinked(k.s));
    session_load_end(k.s, true, k.now);
    cr_assert(is_zero(k.store));
    kit_done(&k);
}

/* A session that a sink waits for stays beyond its time, while there are sinks. */
TEST(evict, what_is_owed_stays)
{
    for (int sinks = 0; sinks < 2; sinks++) {
        struct session_defaults d;
        struct buf due = {0};
        struct kit k;
        bool ended;

        session_defaults_init(&d);
        d.keeps_due = sinks;
        kit_defaults(&k, &d, NULL);
        session_sink_record(k.s, SESSION_SINK_DUE, STR("{}"), ++k.now, &due);
        cr_assert_eq(session_apply(k.store, buf_str(&due), &k.err), 0);
        cr_assert_eq(kit_end(&k, SESSION_END_FINALIZE), 0);
        session_sweep(k.store, k.now + 200 * (uint64_t)HOUR);
        (void)session_make_room(k.store, 1000);
        cr_assert_eq(session_find_any(k.store, STR("w0-1"), &ended) != NULL, sinks);
        buf_done(&due);
        kit_done(&k);
    }
}
