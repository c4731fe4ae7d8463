#include "common/journal/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/journal/files.h"
#include "common/os/loop.h"
#include "costs.h"
#include "testing.h"

static char dir[64];

static void make_dir(void)
{
    (void)snprintf(dir, sizeof(dir), "/tmp/rg-journal-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void drop_dir(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a fixed text */
}

/* Collects replayed records as "id=payload;". */
static int collect(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct buf *out = ctx;

    (void)e;
    buf_printf(out, "%.*s=%.*s;", (int)id.len, id.p, (int)payload.len, payload.p);
    return 0;
}

static struct journal *open_as(const struct journal_options *o, struct buf *replayed)
{
    struct journal *j = NULL;
    struct err e = {0};

    buf_clear(replayed);
    cr_assert_eq(journal_open(NULL, o, collect, replayed, &j, &e), 0, "%s", e.text);
    return j;
}

static struct journal *open_journal(uint64_t segment_bytes, struct buf *replayed)
{
    struct journal_options o = {
        .dir = dir, .durability = JOURNAL_PROCESS, .segment_bytes = segment_bytes};

    return open_as(&o, replayed);
}

/* Opens a journal for an owner that keeps no last records. */
static struct journal *open_in_order(uint64_t segment_bytes, struct buf *replayed)
{
    struct journal_options o = {.dir = dir,
                                .durability = JOURNAL_PROCESS,
                                .segment_bytes = segment_bytes,
                                .in_order = true};

    return open_as(&o, replayed);
}

static void append(struct journal *j, const char *id, const char *payload)
{
    struct err e = {0};

    cr_assert_geq(journal_append(j, str_cstr(id), str_cstr(payload), NULL, NULL, &e), 0, "%s",
                  e.text);
}

static void check_replayed(const struct buf *b, const char *want)
{
    cr_assert(str_eq_c(buf_str(b), want), "got %.*s want %s", (int)b->len, b->p, want);
}

static long file_size(const char *name)
{
    char path[128];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) ? -1 : (long)st.st_size;
}

TEST(journal, replays_what_was_appended_in_order)
{
    struct buf got = {0};
    struct journal *j;

    make_dir();
    j = open_journal(0, &got);
    check_replayed(&got, "");
    append(j, "w0-a", "one");
    append(j, "w0-b", "");
    append(j, "w0-a", "two");
    journal_close(j);
    journal_close(open_journal(0, &got));
    check_replayed(&got, "w0-a=one;w0-b=;w0-a=two;");
    buf_done(&got);
    drop_dir();
}

/* Cuts the last segment at every length and opens it: whole records before the cut remain. */
TEST(journal, repairs_a_tail_torn_at_every_byte)
{
    struct buf got = {0};
    struct journal *j;
    long before;
    long whole;
    char path[128];

    make_dir();
    j = open_journal(0, &got);
    append(j, "w0-a", "first");
    before = file_size("seg-00000001");
    append(j, "w0-a", "the last record");
    whole = file_size("seg-00000001");
    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/seg-00000001", dir);
    for (long cut = whole - 1; cut >= 0; cut--) {
        struct journal_stats stats;

        cr_assert_eq(truncate(path, cut), 0);
        j = open_journal(0, &got);
        check_replayed(&got, cut >= before ? "w0-a=first;" : "");
        journal_stats(j, &stats);
        cr_assert_eq(stats.repairs, cut != before && cut != 8, "cut at %ld", cut);
        append(j, "w0-b", "goes on");
        journal_close(j);
        journal_close(open_journal(0, &got));
        check_replayed(&got, cut >= before ? "w0-a=first;w0-b=goes on;" : "w0-b=goes on;");
        /* restores the whole file for the next cut */
        cr_assert_eq(truncate(path, 8), 0);
        j = open_journal(0, &got);
        append(j, "w0-a", "first");
        append(j, "w0-a", "the last record");
        cr_assert_eq(file_size("seg-00000001"), whole);
        journal_close(j);
    }
    buf_done(&got);
    drop_dir();
}

/* A flipped bit in a record loses only that record. */
TEST(journal, skips_a_damaged_record_and_reads_on)
{
    struct buf got = {0};
    struct journal *j;
    long from;
    long to;
    char path[128];
    int fd;

    make_dir();
    j = open_journal(0, &got);
    append(j, "w0-a", "one");
    from = file_size("seg-00000001");
    append(j, "w0-a", "the damaged record");
    to = file_size("seg-00000001");
    append(j, "w0-a", "three");
    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/seg-00000001", dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    for (long at = from; at < to; at++) {
        unsigned char byte;
        unsigned char flipped;

        cr_assert_eq(pread(fd, &byte, 1, at), 1);
        flipped = byte ^ (unsigned char)(1u << (at % 8));
        cr_assert_eq(pwrite(fd, &flipped, 1, at), 1);
        journal_close(open_journal(0, &got));
        check_replayed(&got, "w0-a=one;w0-a=three;");
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    }
    (void)close(fd);
    journal_close(open_journal(0, &got));
    check_replayed(&got, "w0-a=one;w0-a=the damaged record;w0-a=three;");
    buf_done(&got);
    drop_dir();
}

TEST(journal, rotates_and_compacts)
{
    struct buf got = {0};
    struct journal *j;
    struct err e = {0};
    int rc;

    make_dir();
    j = open_journal(64, &got);
    append(j, "w0-keep", "kept one");
    append(j, "w0-gone", "0123456789012345678901234567890123456789");
    append(j, "w0-gone", "0123456789012345678901234567890123456789");
    append(j, "w0-keep", "kept two");
    append(j, "w0-last", "in the open segment");
    cr_assert_gt(file_size("seg-00000003"), 0);
    cr_assert_eq(journal_compact(j, true, &e), 0);
    journal_drop_session(j, STR("w0-gone"));
    while ((rc = journal_compact(j, true, &e)) == 1)
        ;
    cr_assert_eq(rc, 0, "%s", e.text);
    cr_assert_eq(file_size("seg-00000002"), -1);
    append(j, "w0-keep", "kept three");
    journal_close(j);
    journal_close(open_journal(64, &got));
    check_replayed(&got, "w0-keep=kept one;w0-keep=kept two;w0-last=in the open segment;"
                         "w0-keep=kept three;");
    buf_done(&got);
    drop_dir();
}

/* The session's first record is in a segment that is mostly needed, its last one in a segment that
 * is not. */
TEST(journal, in_order_an_end_stays_as_long_as_its_beginning)
{
    static const char many[] = "0123456789012345678901234567890123456789";
    char long_text[251];
    struct buf got = {0};
    struct journal *j;
    struct err e = {0};
    int rc = 1;

    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    make_dir();
    j = open_in_order(330, &got);
    for (int i = 0; i < 5; i++)
        append(j, "w0-keep", many);
    append(j, "w0-gone", "begins");
    append(j, "w0-other", many);
    append(j, "w0-other", many);
    append(j, "w0-gone", "ends");
    append(j, "w0-last", long_text);
    cr_assert_gt(file_size("seg-00000003"), 0);
    journal_drop_session(j, STR("w0-gone"));
    journal_drop_session(j, STR("w0-other"));
    while (rc == 1)
        rc = journal_compact(j, false, &e);
    cr_assert_eq(rc, 0, "%s", e.text);
    journal_close(j);
    j = open_in_order(330, &got);
    cr_assert_neq(str_find(buf_str(&got), STR("w0-gone=begins;"), 0), SIZE_MAX);
    cr_assert_neq(str_find(buf_str(&got), STR("w0-gone=ends;"), 0), SIZE_MAX);
    /* the dead bytes are as many as those of the first segment: it is rewritten, then all dead
     * records are removed */
    journal_drop_session(j, STR("w0-gone"));
    journal_drop_session(j, STR("w0-other"));
    journal_drop_session(j, STR("w0-last"));
    for (rc = 1; rc == 1;)
        rc = journal_compact(j, false, &e);
    cr_assert_eq(rc, 0, "%s", e.text);
    journal_close(j);
    journal_close(open_in_order(330, &got));
    cr_assert_eq(str_find(buf_str(&got), STR("w0-gone"), 0), SIZE_MAX, "%.*s", (int)got.len, got.p);
    cr_assert_neq(str_find(buf_str(&got), STR("w0-keep"), 0), SIZE_MAX);
    buf_done(&got);
    drop_dir();
}

/* The last record of an ended session stays, in any segment. */
TEST(journal, keeps_the_last_record_of_who_is_over)
{
    static const char many[] = "0123456789012345678901234567890123456789";
    struct buf got = {0};
    struct journal_stats stats;
    struct journal *j;
    struct err e = {0};
    int rc;

    make_dir();
    j = open_journal(130, &got);
    append(j, "w0-over", many);
    append(j, "w0-keep", "kept one");
    append(j, "w0-over", many);
    append(j, "w0-over", many);
    append(j, "w0-over", "its end");
    append(j, "w0-over2", many);
    append(j, "w0-over2", "its end, too");
    append(j, "w0-keep", "kept two");
    append(j, "w0-keep", many);
    cr_assert_gt(file_size("seg-00000003"), 0);
    journal_drop_earlier(j, STR("w0-over"));
    journal_drop_earlier(j, STR("w0-over"));
    journal_drop_earlier(j, STR("w0-over2"));
    journal_drop_earlier(j, STR("w0-who"));
    while ((rc = journal_compact(j, true, &e)) == 1)
        ;
    cr_assert_eq(rc, 0, "%s", e.text);
    journal_stats(j, &stats);
    journal_close(j);
    journal_close(open_journal(130, &got));
    check_replayed(&got, "w0-keep=kept one;w0-over=its end;w0-over2=its end, too;w0-keep=kept two;"
                         "w0-keep=0123456789012345678901234567890123456789;");
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
    buf_done(&got);
    drop_dir();
}

/* The last segment is closed when most of it is dead, not before. */
TEST(journal, gives_back_what_lies_in_its_last_segment)
{
    static char much[100 << 10];
    struct buf got = {0};
    struct journal_stats stats;
    struct journal *j;
    struct err e = {0};

    make_dir();
    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(64 << 20, &got);
    append(j, "w0-keep", "kept");
    append(j, "w0-gone", much);
    journal_drop_earlier(j, STR("w0-gone"));
    append(j, "w0-gone2", much);
    append(j, "w0-gone2", "its end");
    journal_drop_earlier(j, STR("w0-gone2"));
    cr_assert_eq(journal_compact(j, false, &e), 0, "it is not worth it");
    append(j, "w0-gone3", much);
    append(j, "w0-gone3", "its end");
    journal_drop_session(j, STR("w0-gone"));
    journal_drop_earlier(j, STR("w0-gone3"));
    while (journal_compact(j, false, &e) == 1)
        ;
    journal_stats(j, &stats);
    cr_assert_lt(stats.disk_bytes, 1000);
    journal_close(j);
    journal_close(open_journal(64 << 20, &got));
    check_replayed(&got, "w0-keep=kept;w0-gone2=its end;w0-gone3=its end;");
    buf_done(&got);
    drop_dir();
}

/* The other records of a session keep their numbers, and only their bytes count. */
TEST(journal, gives_single_records_up)
{
    static char much[100 << 10];
    struct buf got = {0};
    struct journal_stats stats;
    struct journal *j;
    struct err e = {0};

    make_dir();
    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(64 << 20, &got);
    cr_assert_eq(journal_records(j, STR("w0-a")), 0);
    for (int i = 0; i < 3; i++) {
        append(j, "w0-a", "kept");
        append(j, "w0-a", much);
        append(j, "w0-b", "other");
    }
    cr_assert_eq(journal_records(j, STR("w0-a")), 6);
    cr_assert_gt(journal_session_bytes(j, STR("w0-a")), 3 * sizeof(much));
    for (uint32_t i = 1; i < 6; i += 2)
        journal_release(j, STR("w0-a"), i);
    journal_release(j, STR("w0-a"), 1);
    journal_release(j, STR("w0-a"), 6);
    journal_release(j, STR("w0-who"), 0);
    cr_assert_eq(journal_records(j, STR("w0-a")), 6);
    cr_assert_lt(journal_session_bytes(j, STR("w0-a")), 100);
    append(j, "w0-a", "last");
    cr_assert_eq(journal_records(j, STR("w0-a")), 7);
    for (int i = 0; i < 100 && journal_compact(j, false, &e) == 1; i++)
        ;
    journal_stats(j, &stats);
    cr_assert_lt(stats.disk_bytes, 1000);
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
    journal_close(j);
    j = open_journal(64 << 20, &got);
    cr_assert_eq(journal_records(j, STR("w0-a")), 4);
    journal_close(j);
    check_replayed(&got,
                   "w0-a=kept;w0-b=other;w0-a=kept;w0-b=other;w0-a=kept;w0-b=other;w0-a=last;");
    buf_done(&got);
    drop_dir();
}

/* A record that is released while it is copied is removed by the next compaction. */
TEST(journal, gives_up_what_is_being_copied)
{
    static char much[600 << 10];
    struct buf got = {0};
    struct journal_stats stats;
    struct journal *j;
    struct err e = {0};

    make_dir();
    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(2 << 20, &got);
    for (int i = 0; i < 3; i++)
        append(j, "w0-a", much);
    append(j, "w0-gone", "gone");
    append(j, "w0-a", "kept");
    for (int i = 0; i < 2; i++)
        append(j, "w0-b", much); /* in the next segment */
    journal_drop_session(j, STR("w0-gone"));
    cr_assert_eq(journal_compact(j, true, &e), 1, "it begins");
    cr_assert_eq(journal_compact(j, true, &e), 1, "the first record is copied");
    for (uint32_t i = 0; i < 3; i++)
        journal_release(j, STR("w0-a"), i);
    for (int i = 0; i < 100 && journal_compact(j, true, &e) == 1; i++)
        ;
    journal_stats(j, &stats);
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
    journal_close(j);
    j = open_journal(2 << 20, &got);
    cr_assert_eq(journal_records(j, STR("w0-a")), 1);
    cr_assert_eq(journal_records(j, STR("w0-b")), 2);
    journal_close(j);
    buf_done(&got);
    drop_dir();
}

/* A session that is over has only its last record: old numbers are invalid. */
TEST(journal, gives_nothing_up_of_who_is_over)
{
    struct buf got = {0};
    struct journal *j;

    make_dir();
    j = open_journal(64 << 20, &got);
    append(j, "w0-over", "one");
    append(j, "w0-over", "two");
    append(j, "w0-over", "its end");
    journal_release(j, STR("w0-over"), 1);
    journal_drop_earlier(j, STR("w0-over"));
    for (uint32_t i = 0; i < 3; i++)
        journal_release(j, STR("w0-over"), i);
    cr_assert_gt(journal_session_bytes(j, STR("w0-over")), 0);
    journal_close(j);
    buf_done(&got);
    drop_dir();
}

/* On a full disk the reserve holds the ends of sessions. */
TEST(journal, keeps_room_back_and_gives_it_once)
{
    struct buf got = {0};
    struct err e = {0};
    struct journal *j;

    make_dir();
    j = open_journal(0, &got);
    cr_assert_not(journal_free_reserve(j), "nothing is kept yet");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(journal_compact(j, false, &e), 0);
        cr_assert_geq(file_size("reserve"), 16 << 10);
        cr_assert(journal_free_reserve(j));
        cr_assert_eq(file_size("reserve"), -1);
        cr_assert_not(journal_free_reserve(j));
    }
    cr_assert_eq(journal_compact(j, false, &e), 0);
    journal_close(j);
    j = open_journal(0, &got);
    cr_assert_eq(journal_compact(j, false, &e), 0);
    cr_assert(journal_free_reserve(j), "a restart keeps it");
    journal_close(j);
    buf_done(&got);
    drop_dir();
}

TEST(journal, removes_what_the_manifest_does_not_name)
{
    struct buf got = {0};
    struct journal *j;
    char path[128];
    int fd;

    make_dir();
    j = open_journal(0, &got);
    append(j, "w0-a", "one");
    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/seg-00000009", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    journal_close(open_journal(0, &got));
    check_replayed(&got, "w0-a=one;");
    cr_assert_eq(file_size("seg-00000009"), -1);
    buf_done(&got);
    drop_dir();
}

static void count_durable(void *ctx)
{
    (*(int *)ctx)++;
}

/* The number of durable records when an awaited callback was called. */
struct awaited {
    const int *durable;
    int seen;
};

static void note_durable(void *ctx)
{
    struct awaited *w = ctx;

    w->seen = *w->durable;
}

/* Group commit: all callbacks are called in the loop, and none after journal_forget. An awaited
 * callback follows those of all earlier records. */
TEST(journal, power_tells_when_records_are_on_the_disk)
{
    struct err e = {0};
    struct loop *loop = loop_new(&e);
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct journal *j = NULL;
    int durable = 0;
    int forgotten = 0;
    struct awaited early = {&durable, -1}, late = {&durable, -1};

    make_dir();
    cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &e), 0, "%s", e.text);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable,
                                    i == 7 ? &forgotten : &durable, &e),
                     0);
        if (i == 9)
            cr_assert_eq(journal_await(j, note_durable, &early), 0);
    }
    cr_assert_eq(journal_await(j, note_durable, &late), 0);
    cr_assert_eq(durable, 0);
    journal_forget(j, &forgotten);
    for (int i = 0; i < 1000 && late.seen < 0; i++)
        (void)loop_poll(loop, 100);
    cr_assert_eq(durable, 19);
    cr_assert_eq(forgotten, 0);
    cr_assert_eq(early.seen, 9, "the ten before it, but for the one that was forgotten");
    cr_assert_eq(late.seen, 19);
    journal_close(j);
    loop_free(loop);
    drop_dir();
}

/* Measures the time to call n waiters. */
static struct cost tell_all(const void *ctx, uint32_t n)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct journal *j = NULL;
    struct err e = {0};
    struct loop *loop = loop_new(&e);
    struct cost ret = {0};
    int durable = 0;
    double start;

    (void)ctx;
    make_dir();
    cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &e), 0, "%s", e.text);
    for (uint32_t i = 0; i < n; i++)
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable, &durable, &e), 0);
    start = cost_now_s();
    while ((uint32_t)durable < n)
        (void)loop_poll(loop, 100);
    ret.seconds = cost_now_s() - start;
    journal_close(j);
    loop_free(loop);
    drop_dir();
    return ret;
}

/* The cost of calling one waiter does not depend on the number of others. */
TEST(journal, power_tells_very_many)
{
    expect_linear("telling who waits for the disk", tell_all, NULL, 5000);
}

/* JOURNAL_POWER: replayed bytes of the last segment are rewritten, and appending continues after
 * them. */
TEST(journal, renews_its_last_segment_for_power)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct buf got = {0};
    struct loop *loop;
    struct journal *j;
    struct err e = {0};

    make_dir();
    loop = loop_new(&e);
    cr_assert(loop);
    j = open_journal(0, &got);
    append(j, "w0-a", "one");
    append(j, "~", "note");
    journal_close(j);
    for (int i = 0; i < 3; i++) {
        buf_clear(&got);
        cr_assert_eq(journal_open(loop, &o, collect, &got, &j, &e), 0, "%s", e.text);
        append(j, "w0-b", "more");
        journal_close(j);
    }
    check_replayed(&got, "w0-a=one;~=note;w0-b=more;w0-b=more;");
    cr_expect_eq(file_size("seg-00000001"), -1);
    journal_close(open_journal(0, &got));
    check_replayed(&got, "w0-a=one;~=note;w0-b=more;w0-b=more;w0-b=more;");
    loop_free(loop);
    buf_done(&got);
    drop_dir();
}

/* Notes belong to no session and stay. A segment full of them is not rewritten again and again. */
TEST(journal, compaction_ends_where_notes_are_many)
{
    struct buf got = {0};
    struct journal *j;
    struct err e = {0};
    int steps = 0;

    make_dir();
    j = open_journal(512, &got);
    append(j, "w0-live", "x");
    for (int i = 0; i < 30; i++) {
        append(j, "~", "noted noted");
        append(j, "w0-gone", "y");
    }
    journal_drop_session(j, STR("w0-gone"));
    for (int thorough = 0; thorough < 2; thorough++)
        while (journal_compact(j, thorough, &e) == 1 && steps < 1000)
            steps++;
    cr_expect_lt(steps, 100);
    journal_close(j);
    journal_close(open_journal(512, &got));
    cr_expect(str_starts(buf_str(&got), STR("w0-live=x;~=noted noted;")));
    buf_done(&got);
    drop_dir();
}

/* journal_append calls no callback itself, because its caller must apply the record first. */
TEST(journal, leaves_telling_to_its_caller_where_nothing_is_waited_for)
{
    struct err e = {0};
    struct loop *loop = loop_new(&e);

    make_dir();
    for (enum journal_durability level = JOURNAL_NONE; level < JOURNAL_POWER; level++) {
        struct journal_options o = {.dir = dir, .durability = level};
        struct journal *j = NULL;
        int durable = 0;

        cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &e), 0, "%s", e.text);
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable, &durable, &e), 1);
        cr_assert_eq(journal_await(j, count_durable, &durable), 1);
        cr_assert_eq(durable, 0);
        journal_close(j);
    }
    loop_free(loop);
    drop_dir();
}

/* The pages of a map are invalid after the file was truncated. */
TEST(journal, a_copied_file_may_be_cut_by_its_writer)
{
    enum { BYTES = 3 * 4096 + 100 };

    char text[BYTES], path[96];
    struct str copy;
    struct err e;
    int fd;

    make_dir();
    (void)snprintf(path, sizeof(path), "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(files_copy(fd, &copy, &e), 0);
    cr_assert_null(copy.p);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (char)('a' + i % 23);
    cr_assert_eq(write(fd, text, BYTES), BYTES);
    cr_assert_eq(files_copy(fd, &copy, &e), 0, "%s", e.text);
    cr_assert_eq(ftruncate(fd, 10), 0);
    cr_assert_eq(copy.len, BYTES);
    cr_assert_eq(memcmp(copy.p, text, BYTES), 0);
    files_unmap(copy);
    cr_assert_eq(files_copy(fd, &copy, &e), 0);
    cr_assert_eq(copy.len, 10);
    files_unmap(copy);
    (void)close(fd);
    (void)unlink(path);
    drop_dir();
}
