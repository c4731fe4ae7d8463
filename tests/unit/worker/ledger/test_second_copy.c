/* A second copy in a store in memory, whose answers can be held, lost or refused. */
#include "copy_kit.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"

/* --- rules --- */

TEST(second_copy, an_answer_waits_until_the_store_has_the_record)
{
    struct fixture *f = open_all(OUTAGE_MS);

    cr_assert_not(is_served(f), "lengths were not compared yet");
    wait_until(f, is_served, "served");
    f->store.holds = true;
    add(f, "s", "r0");
    append_to_journal(f, STR("t"), STR("q0"));
    append_to_journal(f, STR("s"), STR("r1"));
    poll_for(f, 30);
    cr_assert_not(has_ended(f));
    cr_assert_eq(f->store.appends, 1, "records of one turn are one append");
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, has_ended, "stored");
    cr_assert_eq(f->stored, 1);
    assert_log(f, "s", "0 r0 r1");
    assert_log(f, "t", "0 q0");
    cr_assert(await(f, "s"), "it is there");
    wait_until(f, is_reported_whole, "whole");
    add(f, "s", "r2");
    second_copy_forget(f->copy, f);
    wait_until(f, is_level, "level");
    cr_assert_not(has_ended(f));
    close_all(f);
}

static bool is_reported_empty(struct fixture *f)
{
    return own_place(f).empty_epoch == f->store.epoch;
}

static bool is_dropped(struct fixture *f)
{
    return second_copy_drop_session(f->copy, STR("s"));
}

TEST(second_copy, a_place_without_records_is_reported)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_reported_empty, "empty");
    add_stored(f, "s", "r0");
    poll_for(f, 120);
    cr_assert_not(is_reported_empty(f));
    journal_drop_session(f->journal, STR("s"));
    wait_until(f, is_dropped, "dropped");
    wait_until(f, is_reported_empty, "empty again");
    close_all(f);
}

TEST(second_copy, a_worker_that_ends_before_its_next_look_reports_what_the_store_has)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    end_worker(f);
    cr_assert(is_reported_whole(f) && own_place(f).left_epoch == f->store.epoch);
    start_worker(f);
    close_all(f);
}

TEST(second_copy, a_lost_tail_is_sent_again)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    add_stored(f, "s", "r1");
    add_stored(f, "s", "r2");
    cut_log(find_log(&f->store, STR("s")), 1);
    f->store.holds = true;
    add(f, "s", "r3");
    (void)loop_poll(f->loop, 0);
    append_to_journal(f, STR("s"), STR("r4")); /* is refused, too */
    poll_for(f, 20);
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, has_ended, "stored");
    wait_until(f, is_level, "level");
    assert_log(f, "s", "0 r0 r1 r2 r3 r4");
    close_all(f);
}

TEST(second_copy, other_bytes_lose_the_session_alone)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct err e = {0};
    struct store_record other = {.session = STR("s"), .n = 1, .bytes = STR("x")};

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    cr_assert_eq(append_one(find_log(&f->store, STR("s")), &other), STORE_DONE);
    add(f, "s", "r1");
    wait_until(f, has_ended, "refused");
    cr_assert(f->failed == 1 && f->why == ERR_SESSION_LOST);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("s"), &e), -1);
    cr_assert_eq(e.kind, ERR_SESSION_LOST);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("t"), &e), 0);
    add_stored(f, "t", "q0");
    close_all(f);
}

TEST(second_copy, a_fenced_place_waits_for_the_keeper)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct err e = {0};

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    f->store.epoch = 6; /* it lost the claim, and the keeper claims again */
    cut_log(find_log(&f->store, STR("s")), 0);
    add(f, "s", "r1");
    wait_until(f, is_reported_fenced, "fenced");
    poll_for(f, 100);
    cr_assert_not(has_ended(f));
    own(f, 6);
    wait_until(f, has_ended, "stored");
    cr_assert_eq(f->stored, 1);
    assert_log(f, "s", "0 r0 r1");
    f->store.epoch = 7; /* a different node */
    add(f, "s", "r2");
    poll_for(f, 30);
    own(f, 0);
    wait_until(f, has_ended, "closed");
    cr_assert(f->failed == 1 && f->why == ERR_OWNER_CHANGED);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("s"), &e), -1);
    cr_assert_eq(e.kind, ERR_OWNER_CHANGED);
    cr_assert_eq(second_copy_behind(f->copy), 0);
    assert_log(f, "s", "0 r0 r1");
    close_all(f);
}

TEST(second_copy, a_server_that_refuses_a_renewed_epoch_is_left)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    f->store.epoch = 4; /* the old server */
    add(f, "s", "r1");
    wait_until(f, is_reported_fenced, "fenced");
    poll_for(f, 100);
    cr_assert_eq(f->reconnected, 0);
    f->store.epoch = 5;
    place_table_set_renewed(f->table, PLACE, clock_boot_ms());
    wait_until(f, has_ended, "stored");
    cr_assert(f->stored == 1 && f->reconnected == 1);
    cr_assert_not(is_reported_fenced(f));
    assert_log(f, "s", "0 r0 r1");
    close_all(f);
}

TEST(second_copy, after_lost_calls_lengths_are_compared)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    for (int done = 0; done < 2; done++) {
        f->store.loses = done;
        f->store.is_away = !done;
        add(f, "s", done ? "r2" : "r1");
        poll_for(f, 150);
        cr_assert_not(has_ended(f));
        f->store.loses = f->store.is_away = false;
        wait_until(f, has_ended, "stored");
        cr_assert_eq(f->stored, 1);
    }
    assert_log(f, "s", "0 r0 r1 r2");
    cut_log(find_log(&f->store, STR("s")), 1); /* a failover, noticed without a record */
    f->store.loses = true;
    append_to_journal(f, STR("t"), STR("q0"));
    poll_for(f, 20);
    f->store.loses = false;
    poll_for(f, 150);
    wait_until(f, is_level, "level");
    assert_log(f, "s", "0 r0 r1 r2");
    assert_log(f, "t", "0 q0");
    close_all(f);
}

TEST(second_copy, a_record_is_stored_when_an_append_under_the_epoch_says_so)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    f->store.loses = true;
    add(f, "s", "r1");
    poll_for(f, 20);
    f->store.epoch = 6; /* a different node */
    f->store.loses = false;
    wait_until(f, is_reported_fenced, "fenced");
    assert_log(f, "s", "0 r0 r1");
    cr_assert_not(has_ended(f));
    own(f, 0);
    wait_until(f, has_ended, "closed");
    cr_assert(f->failed == 1 && f->why == ERR_OWNER_CHANGED);
    close_all(f);
}

TEST(second_copy, waits_end_after_an_outage_and_when_the_store_is_full)
{
    struct fixture *f = open_all(200);

    wait_until(f, is_served, "served");
    f->store.is_away = true;
    add(f, "s", "r0");
    wait_until(f, has_ended, "outage");
    cr_assert(f->failed == 1 && f->why == ERR_STORAGE_UNAVAILABLE);
    f->store.is_away = false;
    wait_until(f, is_level, "level");
    f->store.is_full = true;
    add(f, "s", "r1");
    wait_until(f, has_ended, "full");
    cr_assert(f->failed == 1 && f->why == ERR_STORAGE_FULL);
    f->store.is_full = false;
    wait_until(f, is_level, "level again");
    assert_log(f, "s", "0 r0 r1");
    add_stored(f, "s", "r2");
    close_all(f);
}

TEST(second_copy, after_a_restart_both_sides_get_what_they_lack)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct store_record more = {.session = STR("s"), .n = 3, .bytes = STR("r3")};
    struct store_record fresh = {.session = STR("u"), .n = 0, .bytes = STR("u0")};

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    add_stored(f, "s", "r1");
    add_stored(f, "t", "q0");
    f->store.is_away = true;
    append_to_journal(f, STR("t"), STR("q1"));
    append_to_journal(f, STR("s"), STR("r2"));
    poll_for(f, 20);
    f->store.is_away = false;
    end_worker(f);
    start_worker(f);
    wait_until(f, is_served, "served");
    wait_until(f, is_level, "level");
    assert_log(f, "s", "0 r0 r1 r2");
    assert_log(f, "t", "0 q0 q1");
    end_worker(f);
    /* a power cut lost the end of the journal */
    for (; more.n < 8; more.n++)
        cr_assert_eq(append_one(find_log(&f->store, STR("s")), &more), STORE_DONE);
    cr_assert_eq(append_one(find_log(&f->store, STR("u")), &fresh), STORE_DONE);
    start_worker(f);
    wait_until(f, is_served, "served");
    wait_until(f, is_read, "read");
    cr_assert_eq(journal_records(f->journal, STR("s")), 8);
    cr_assert_eq(journal_records(f->journal, STR("u")), 1);
    add_stored(f, "s", "r8");
    add_stored(f, "u", "u1");
    assert_log(f, "s", "0 r0 r1 r2 r3 r3 r3 r3 r3 r8");
    assert_log(f, "u", "0 u0 u1");
    close_all(f);
}

TEST(second_copy, fragments_whose_commit_is_lost_leave_the_store)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct store_record lost = {.session = STR("s"), .n = 1};
    struct buf fragment = {0};

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    end_worker(f);
    record_begin(&fragment, RECORD_BULK, STR("s"), 1);
    record_put_u(&fragment, 3); /* number of its call */
    record_put_u(&fragment, 0);
    record_put_u(&fragment, 0);
    buf_puts(&fragment, "bytes");
    lost.bytes = buf_str(&fragment);
    cr_assert_eq(append_one(find_log(&f->store, STR("s")), &lost), STORE_DONE);
    start_worker(f);
    wait_until(f, is_served, "served");
    wait_until(f, is_read, "read");
    add_stored(f, "s", "r1");
    assert_log(f, "s", "0 r0 r1");
    cr_assert_eq(f->store.drops, 0, "no acknowledged record leaves the store");
    buf_done(&fragment);
    close_all(f);
}

TEST(second_copy, a_journal_that_differs_is_not_continued)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct err e = {0};

    f->in_use = true;
    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    add_stored(f, "t", "q0");
    end_worker(f);
    for (size_t i = 0; i < 2; i++) { /* a different owner has continued from an earlier record */
        struct memory_log *log = find_log(&f->store, i ? STR("t") : STR("s"));
        struct store_record x = {.session = STR("s"), .bytes = STR("x")};

        cut_log(log, 0);
        for (x.n = 0; x.n <= i; x.n++)
            cr_assert_eq(append_one(log, &x), STORE_DONE);
    }
    start_worker(f);
    wait_until(f, is_level, "compared");
    poll_for(f, 100);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("s"), &e), -1);
    cr_assert_eq(e.kind, ERR_SESSION_LOST);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("t"), &e), -1);
    cr_assert_eq(e.kind, ERR_SESSION_LOST);
    cr_assert_eq(journal_records(f->journal, STR("t")), 1);
    close_all(f);
}

TEST(second_copy, an_ended_session_keeps_its_last_record_until_it_is_dropped)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    add_stored(f, "s", "r1");
    add(f, "s", "end");
    journal_drop_earlier(f->journal, STR("s"));
    second_copy_end_session(f->copy, STR("s"));
    wait_until(f, has_ended, "stored");
    poll_for(f, 100);
    assert_log(f, "s", "2 end");
    /* an emptied store gets only the last record */
    f->store.epoch = 6;
    cut_log(find_log(&f->store, STR("s")), 0);
    own(f, 6);
    poll_for(f, 150);
    wait_until(f, is_level, "level");
    assert_log(f, "s", "2 end");
    /* a restart sends it behind the one that is there, which then goes */
    end_worker(f);
    begin_worker(f);
    journal_drop_earlier(f->journal, STR("s"));
    second_copy_end_session(f->copy, STR("s"));
    second_copy_add_place(f->copy, PLACE, f->journal);
    wait_until(f, is_served, "served");
    wait_until(f, is_level, "level");
    poll_for(f, 100);
    assert_log(f, "s", "3 end");
    cr_assert_eq(f->store.drops, 0, "the store never lacks it");
    cr_assert_not(second_copy_drop_session(f->copy, STR("s")));
    poll_for(f, 50);
    cr_assert(second_copy_drop_session(f->copy, STR("s")));
    cr_assert_eq(find_log(&f->store, STR("s"))->records.n, 0);
    close_all(f);
}

static bool is_trimmed(struct fixture *f)
{
    return find_log(&f->store, STR("s"))->records.n == 1;
}

TEST(second_copy, an_end_that_the_store_lacks_is_sent_after_a_restart)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    add_stored(f, "s", "create");
    f->store.is_away = true;
    append_to_journal(f, STR("s"), STR("end"));
    poll_for(f, 20);
    f->store.is_away = false;
    end_worker(f);
    begin_worker(f);
    journal_drop_earlier(f->journal, STR("s"));
    second_copy_end_session(f->copy, STR("s"));
    second_copy_add_place(f->copy, PLACE, f->journal);
    wait_until(f, is_served, "served");
    wait_until(f, is_level, "level");
    wait_until(f, is_trimmed, "trimmed");
    assert_log(f, "s", "1 end");
    cr_assert_eq(f->store.drops, 0, "the store never lacks all of it");
    close_all(f);
}

TEST(second_copy, a_place_that_the_store_forgot_answers_after_a_lease)
{
    struct fixture *f = open_all(OUTAGE_MS);

    wait_until(f, is_served, "served");
    wait_until(f, is_reported_whole, "whole");
    f->store.epoch = 6;
    cr_assert(place_table_set_own(f->table, PLACE, 6, clock_boot_ms() + 400));
    add(f, "s", "r0");
    poll_for(f, 200);
    assert_log(f, "s", "0 r0");
    cr_assert_not(has_ended(f));
    cr_assert_not(is_reported_whole(f));
    wait_until(f, has_ended, "answered");
    cr_assert_eq(f->stored, 1);
    wait_until(f, is_reported_whole, "whole");
    close_all(f);
}

/* --- faults at random --- */

enum { STEPS = 600, TEXT_MAX = 12 };

struct promised {
    char id[4];
    size_t n;
    char text[TEXT_MAX];
};

struct world {
    struct fixture *f;
    unsigned seed, count;
    size_t written[2];
    VEC(struct promised) promises;
};

struct promise {
    struct world *w;
    struct promised p;
};

static void on_kept(void *ctx)
{
    struct promise *p = ctx;

    *vec_push(&p->w->promises) = p->p;
    free(p);
}

static void on_broken(void *ctx, const struct err *why)
{
    cr_assert_eq(why->kind, ERR_STORAGE_UNAVAILABLE);
    free(ctx);
}

static void add_promise(struct world *w)
{
    size_t s = (unsigned)rand_r(&w->seed) % 2;
    struct promise *p = mem_zalloc(sizeof(*p));

    p->w = w;
    (void)snprintf(p->p.id, sizeof(p->p.id), "s%zu", s);
    (void)snprintf(p->p.text, sizeof(p->p.text), "r%u", w->count++);
    p->p.n = w->written[s]++;
    append_to_journal(w->f, str_cstr(p->p.id), str_cstr(p->p.text));
    cr_assert_not(second_copy_await(w->f->copy, str_cstr(p->p.id),
                                    (struct copy_done){on_kept, p, on_broken}));
}

static void step(struct world *w)
{
    struct fixture *f = w->f;
    struct memory_log *log = &f->store.logs[(unsigned)rand_r(&w->seed) % LOGS];
    unsigned what = (unsigned)rand_r(&w->seed) % 40;

    if (what < 20)
        add_promise(w);
    else if (what < 24)
        f->store.loses = !f->store.loses;
    else if (what < 26)
        f->store.is_away = !f->store.is_away;
    else if (what < 28)
        f->store.holds = !f->store.holds;
    else if (what == 28 && log->records.n > 0)
        cut_log(log, log->records.n - 1 - (unsigned)rand_r(&w->seed) % log->records.n);
    else if (what == 29)
        own(f, ++f->store.epoch);
    else if (what < 32)
        (void)loop_poll(f->loop, 0);
    else
        poll_for(f, 3);
    loop_task_post(f->loop, &f->store.work, on_work);
}

TEST(second_copy, what_was_answered_is_in_the_store_whatever_fails)
{
    for (unsigned seed = 1; seed <= 3; seed++) {
        struct world w = {.f = open_all(OUTAGE_MS), .seed = seed};

        wait_until(w.f, is_served, "served");
        for (int i = 0; i < STEPS; i++)
            step(&w);
        w.f->store.loses = w.f->store.is_away = w.f->store.holds = false;
        own(w.f, ++w.f->store.epoch);
        poll_for(w.f, 200);
        wait_until(w.f, is_level, "level");
        poll_for(w.f, 100);
        cr_assert_gt(w.promises.n, 100);
        for (size_t i = 0; i < w.promises.n; i++) {
            const struct promised *p = &w.promises.at[i];
            const struct memory_log *log = find_log(&w.f->store, str_cstr(p->id));

            cr_assert(log->first == 0 && log->records.n > p->n);
            cr_assert(str_eq_c(buf_str(&log->records.at[p->n]), p->text), "%s %zu", p->id, p->n);
        }
        cr_assert_eq(w.promises.n, w.count, "every wait has ended");
        vec_done(&w.promises);
        close_all(w.f);
    }
}

TEST(second_copy, sessions_of_a_place_in_doubt_are_marked_before_it_is_whole)
{
    struct fixture *f = open_all(OUTAGE_MS);
    struct store_record other = {.session = STR("t"), .bytes = STR("t0")};

    wait_until(f, is_served, "served");
    add_stored(f, "s", "r0");
    cr_assert_eq(append_one(find_log(&f->store, STR("t")), &other), STORE_DONE);
    f->unmarkable = true;
    place_table_set_doubt(f->table, PLACE, 77);
    own(f, ++f->store.epoch);
    wait_until(f, is_served, "served again");
    wait_until(f, is_read, "read");
    poll_for(f, 200);
    cr_assert(!is_reported_whole(f) && f->marked == 0);
    f->unmarkable = false;
    append_to_journal(f, STR("u"), STR("r0"));
    wait_until(f, is_reported_whole, "whole");
    assert_log(f, "s", "0 r0 mark");
    assert_log(f, "t", "0 t0 mark");
    assert_log(f, "u", "0 r0");
    cr_assert_eq(f->marked, 2);
    close_all(f);
}

static bool is_found_at_8(struct fixture *f)
{
    return own_place(f).server == 8;
}

TEST(second_copy, a_server_that_is_replaced_is_compared)
{
    struct fixture *f = open_all(OUTAGE_MS);

    f->store.server = 3;
    wait_until(f, is_reported_whole, "whole");
    cr_assert_eq(own_place(f).server, 3);
    add_stored(f, "s", "r0");
    cut_log(find_log(&f->store, STR("s")), 0);
    f->store.server = 8;
    place_table_set_server(f->table, 8);
    poll_for(f, 150);
    cr_assert_eq(own_place(f).server, 3, "no renewal has reached it yet");
    place_table_set_reached(f->table, clock_boot_ms());
    wait_until(f, is_found_at_8, "compared");
    assert_log(f, "s", "0 r0");
    close_all(f);
}
