/* Logs that are longer than the journal: of a place that was adopted. */
#include "copy_kit.h"

/* Puts records n, n + 1 ... into the store's log. */
static void put_log(struct fixture *f, const char *id, uint64_t n, const char *const *texts)
{
    struct store_record r = {.session = str_cstr(id), .first = n, .n = n};

    for (; *texts; texts++, r.n++) {
        r.bytes = str_cstr(*texts);
        cr_assert_eq(append_one(find_log(&f->store, r.session), &r), STORE_DONE);
    }
}

/* A place of another node: the journal is empty. */
static struct fixture *adopt(const char *const *ids, const char *const *texts)
{
    struct fixture *f = open_all(OUTAGE_MS);

    end_worker(f);
    for (; *ids; ids++)
        put_log(f, *ids, 0, texts);
    own(f, 5);
    f->store.holds = true;
    start_worker(f);
    return f;
}

static bool is_asked(struct fixture *f)
{
    return f->store.answers.n > 0;
}

static bool has_read_all(struct fixture *f)
{
    return is_served(f) && second_copy_unread(f->copy) == 0;
}

TEST(copy_read, an_adopted_place_reads_first_what_is_asked_for)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f", NULL};
    static const char *const texts[] = {"r0", "r1", "r2", NULL};
    struct fixture *f = adopt(ids, texts);
    struct err e = {0};
    unsigned appends;

    wait_until(f, is_asked, "lengths");
    answer_first(&f->store);
    cr_assert(is_served(f), "all ids are known");
    cr_assert_eq(second_copy_unread(f->copy), 6);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("a"), &e), -1);
    cr_assert_eq(e.kind, ERR_STORAGE_UNAVAILABLE);
    cr_assert_not(second_copy_drop_session(f->copy, STR("a")));
    cr_assert(second_copy_fetch(f->copy, STR("a"))); /* the store reports the last ids first */
    cr_assert_not(second_copy_fetch(f->copy, STR("x")));
    append_to_journal(f, STR("x"), STR("q0"));
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, is_read, "read");
    cr_assert(str_eq_c(buf_str(&f->read), "f e d c a b "), "%s", f->read.p);
    for (const char *const *id = ids; *id; id++) {
        cr_assert_eq(journal_records(f->journal, str_cstr(*id)), 3);
        cr_assert_eq(second_copy_check(f->copy, PLACE, str_cstr(*id), &e), 0);
    }
    wait_until(f, is_level, "level");
    wait_until(f, has_read_all, "all logs are read");
    wait_until(f, is_reported_whole, "whole");
    appends = f->store.appends;
    cr_assert_leq(appends, 3, "%u: the records are not sent again", appends);
    add_stored(f, "f", "r3");
    assert_log(f, "f", "0 r0 r1 r2 r3");
    assert_log(f, "x", "0 q0");
    end_worker(f); /* a restart has all */
    start_worker(f);
    wait_until(f, is_served, "served");
    cr_assert_eq(second_copy_unread(f->copy), 0);
    close_all(f);
}

TEST(copy_read, an_adopted_place_is_read_on_after_losses)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e", NULL};
    static const char *const texts[] = {"r0", "r1", "r2", "r3", "r4", NULL};
    struct fixture *f = adopt(ids, texts);

    wait_until(f, is_asked, "lengths");
    answer_first(&f->store);
    answer_first(&f->store); /* two records of a log */
    f->store.loses = true;
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    poll_for(f, 150);
    cr_assert_eq(second_copy_unread(f->copy), 5);
    cr_assert(second_copy_fetch(f->copy, STR("e")));
    end_worker(f); /* and the worker dies */
    f->store.loses = false;
    f->store.holds = true;
    start_worker(f);
    wait_until(f, is_asked, "lengths");
    answer_first(&f->store);
    answer_first(&f->store);
    own(f, 0); /* another node has it */
    poll_for(f, 120);
    cr_assert(str_ends(buf_str(&f->read), STR("! ")), "%s", f->read.p);
    buf_clear(&f->read);
    f->store.epoch = 6;
    own(f, 6);
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, is_read, "read");
    wait_until(f, is_level, "level");
    for (const char *const *id = ids; *id; id++) {
        cr_assert_eq(journal_records(f->journal, str_cstr(*id)), 5);
        assert_log(f, *id, "0 r0 r1 r2 r3 r4");
    }
    close_all(f);
}

static bool is_refused(struct fixture *f)
{
    return f->read.p && strstr(f->read.p, "a! ");
}

TEST(copy_read, a_full_disk_is_waited_for_and_loses_nothing)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e", NULL};
    static const char *const texts[] = {"r0", "r1", "r2", NULL};
    static const char *const end[] = {"end", NULL};
    struct fixture *f = adopt(ids, texts);
    struct err e = {0};

    put_log(f, "ended", 4, end);
    f->full = true;
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, is_served, "served");
    cr_assert(second_copy_fetch(f->copy, STR("a")));
    wait_until(f, is_refused, "a request gets the error");
    cr_assert_eq(second_copy_unread(f->copy), 6);
    cr_assert_eq(second_copy_check(f->copy, PLACE, STR("a"), &e), -1);
    cr_assert_eq(e.kind, ERR_STORAGE_UNAVAILABLE);
    f->full = false;
    wait_until(f, is_read, "read");
    for (const char *const *id = ids; *id; id++)
        cr_assert_eq(journal_records(f->journal, str_cstr(*id)), 3);
    wait_until(f, is_level, "level");
    assert_log(f, "ended", "4 end");
    add_stored(f, "a", "r3");
    assert_log(f, "a", "0 r0 r1 r2 r3");
    close_all(f);
}

/* A record between them was damaged, and is missing: numbers no longer agree. */
TEST(copy_read, a_damaged_journal_is_read_anew)
{
    static const char *const texts[] = {"r0", "r1", "r2", "r3", "r4", NULL};
    struct fixture *f = open_all(OUTAGE_MS);

    end_worker(f);
    start_worker(f);
    wait_until(f, is_served, "served");
    own(f, 0);
    poll_for(f, 120);
    for (size_t i = 0; i < 5; i++)
        if (i != 2)
            append_to_journal(f, STR("s"), str_cstr(texts[i]));
    append_to_journal(f, STR("t"), STR("r1"));
    end_worker(f);
    put_log(f, "s", 0, texts);
    put_log(f, "t", 0, texts);
    f->store.epoch = 6;
    own(f, 6);
    start_worker(f);
    wait_until(f, is_served, "served");
    wait_until(f, is_read, "read");
    cr_assert_null(strchr(f->read.p, '!'), "%s", f->read.p);
    for (const char *const *id = (const char *const[]){"s", "t", NULL}; *id; id++) {
        cr_assert_eq(journal_records(f->journal, str_cstr(*id)), 5);
        assert_log(f, *id, "0 r0 r1 r2 r3 r4");
    }
    add_stored(f, "s", "r5");
    assert_log(f, "s", "0 r0 r1 r2 r3 r4 r5");
    wait_until(f, is_level, "level");
    wait_until(f, is_reported_whole, "whole");
    close_all(f);
}

TEST(copy_read, an_end_is_read_alone_and_a_hole_loses_the_session)
{
    static const char *const ids[] = {"s", NULL};
    static const char *const texts[] = {"r0", "r1", NULL};
    static const char *const end[] = {"end", NULL}, *const ends[] = {"end", "end", NULL},
                             *const rest[] = {"r6", "r7", NULL}, *const one[] = {"r9", NULL};
    struct fixture *f = adopt(ids, texts);
    struct err e = {0};

    put_log(f, "ended", 2, end);
    put_log(f, "twice", 5, ends);
    put_log(f, "hole", 6, rest);
    put_log(f, "late", 9, one);
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, is_served, "served");
    wait_until(f, is_read, "read");
    cr_assert(str_eq_c(buf_str(&f->read), "late! hole! twice ended s "), "%s", f->read.p);
    for (const char *const *id = (const char *const[]){"hole", "late", NULL}; *id; id++) {
        cr_assert_eq(second_copy_check(f->copy, PLACE, str_cstr(*id), &e), -1);
        cr_assert_eq(e.kind, ERR_SESSION_LOST);
        cr_assert_not(second_copy_drop_session(f->copy, str_cstr(*id))); /* a look-over */
    }
    second_copy_end_session(f->copy, STR("ended"));
    second_copy_end_session(f->copy, STR("twice"));
    poll_for(f, 100);
    wait_until(f, is_level, "level");
    assert_log(f, "twice", "6 end");
    assert_log(f, "hole", "6 r6 r7");
    assert_log(f, "late", "9 r9");
    assert_log(f, "ended", "2 end");
    cr_assert_eq(journal_records(f->journal, STR("ended")), 1);
    while (!second_copy_drop_session(f->copy, STR("ended")))
        poll_for(f, 10);
    cr_assert_eq(find_log(&f->store, STR("ended"))->records.n, 0);
    add_stored(f, "s", "r2");
    close_all(f);
}

static bool is_deleted(struct fixture *f)
{
    return find_log(&f->store, STR("a"))->records.n == 0;
}

TEST(copy_read, a_log_that_nobody_needs_is_deleted)
{
    static const char *const ids[] = {"a", NULL}, *const texts[] = {"r0", "r1", NULL};
    struct fixture *f = adopt(ids, texts);

    f->left_over = true;
    f->store.holds = false;
    loop_task_post(f->loop, &f->store.work, on_work);
    wait_until(f, is_deleted, "deleted");
    cr_assert(is_served(f) && is_read(f));
    cr_assert_eq(f->read.len, 0);
    wait_until(f, is_level, "nothing is behind");
    cr_assert(second_copy_is_level(f->copy, PLACE));
    cr_assert_not(second_copy_is_level(f->copy, PLACE + 1));
    close_all(f);
}
