#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/journal/files.h"
#include "common/os/loop.h"
#include "costs.h"
#include "journal_kit.h"

static struct journal *open_journal(uint64_t segment_bytes, struct buf *replayed)
{
    return open_as(
        (struct journal_options){.durability = JOURNAL_PROCESS, .segment_bytes = segment_bytes},
        replayed);
}

static long file_size(const char *name)
{
    char path[128];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) ? -1 : (long)st.st_size;
}

TEST_WITH(journal, replays_what_was_appended_in_order, replay)
{
    struct journal *j;

    j = open_journal(0, &f->got);
    check_replayed(&f->got, "");
    append(j, "w0-a", "one");
    append(j, "w0-b", "");
    append(j, "w0-a", "two");
    journal_close(j);
    journal_close(open_journal(0, &f->got));
    check_replayed(&f->got, "w0-a=one;w0-b=;w0-a=two;");
}

/* Cuts the last segment at every length and opens it: whole records before the cut remain. */
TEST_WITH(journal, repairs_a_tail_torn_at_every_byte, replay)
{
    struct journal *j;
    long before;
    long whole;
    char path[128];

    j = open_journal(0, &f->got);
    append(j, "w0-a", "first");
    before = file_size("seg-00000001");
    append(j, "w0-a", "the last record");
    whole = file_size("seg-00000001");
    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/seg-00000001", dir);
    for (long cut = whole - 1; cut >= 0; cut--) {
        struct journal_stats stats;

        cr_assert_eq(truncate(path, cut), 0);
        j = open_journal(0, &f->got);
        check_replayed(&f->got, cut >= before ? "w0-a=first;" : "");
        journal_stats(j, &stats);
        cr_assert_eq(stats.repairs, cut != before && cut != 8, "cut at %ld", cut);
        append(j, "w0-b", "goes on");
        journal_close(j);
        journal_close(open_journal(0, &f->got));
        check_replayed(&f->got, cut >= before ? "w0-a=first;w0-b=goes on;" : "w0-b=goes on;");
        /* restores the whole file for the next cut */
        cr_assert_eq(truncate(path, 8), 0);
        j = open_journal(0, &f->got);
        append(j, "w0-a", "first");
        append(j, "w0-a", "the last record");
        cr_assert_eq(file_size("seg-00000001"), whole);
        journal_close(j);
    }
}

/* A flipped bit in a record loses only that record. */
TEST_WITH(journal, skips_a_damaged_record_and_reads_on, replay)
{
    struct journal *j;
    long from;
    long to;
    char path[128];
    int fd;

    j = open_journal(0, &f->got);
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
        journal_close(open_journal(0, &f->got));
        check_replayed(&f->got, "w0-a=one;w0-a=three;");
        cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    }
    (void)close(fd);
    journal_close(open_journal(0, &f->got));
    check_replayed(&f->got, "w0-a=one;w0-a=the damaged record;w0-a=three;");
}

TEST_WITH(journal, rotates_and_compacts, replay)
{
    struct journal *j;

    j = open_journal(64, &f->got);
    append(j, "w0-keep", "kept one");
    append(j, "w0-gone", "0123456789012345678901234567890123456789");
    append(j, "w0-gone", "0123456789012345678901234567890123456789");
    append(j, "w0-keep", "kept two");
    append(j, "w0-last", "in the open segment");
    cr_assert_gt(file_size("seg-00000003"), 0);
    cr_assert_eq(journal_compact(j, true, &f->e), 0);
    journal_drop_session(j, STR("w0-gone"));
    compact_all(j, true);
    cr_assert_eq(file_size("seg-00000002"), -1);
    append(j, "w0-keep", "kept three");
    journal_close(j);
    journal_close(open_journal(64, &f->got));
    check_replayed(&f->got, "w0-keep=kept one;w0-keep=kept two;w0-last=in the open segment;"
                            "w0-keep=kept three;");
}

/* The session's first record is in a segment that is mostly needed, its last one in a segment that
 * is not. */
TEST_WITH(journal, in_order_an_end_stays_as_long_as_its_beginning, replay)
{
    static const char many[] = "0123456789012345678901234567890123456789";
    char long_text[251];
    struct journal *j;

    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    j = open_in_order(330, &f->got);
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
    compact_all(j, false);
    journal_close(j);
    j = open_in_order(330, &f->got);
    cr_assert_neq(str_find(buf_str(&f->got), STR("w0-gone=begins;"), 0), SIZE_MAX);
    cr_assert_neq(str_find(buf_str(&f->got), STR("w0-gone=ends;"), 0), SIZE_MAX);
    /* the dead bytes are as many as those of the first segment: it is rewritten, then all dead
     * records are removed */
    journal_drop_session(j, STR("w0-gone"));
    journal_drop_session(j, STR("w0-other"));
    journal_drop_session(j, STR("w0-last"));
    compact_all(j, false);
    journal_close(j);
    journal_close(open_in_order(330, &f->got));
    cr_assert_eq(str_find(buf_str(&f->got), STR("w0-gone"), 0), SIZE_MAX, "%.*s", (int)f->got.len,
                 f->got.p);
    cr_assert_neq(str_find(buf_str(&f->got), STR("w0-keep"), 0), SIZE_MAX);
}

/* The last record of an ended session stays, in any segment. */
TEST_WITH(journal, keeps_the_last_record_of_who_is_over, replay)
{
    static const char many[] = "0123456789012345678901234567890123456789";
    struct journal_stats stats;
    struct journal *j;

    j = open_journal(130, &f->got);
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
    compact_all(j, true);
    journal_stats(j, &stats);
    journal_close(j);
    journal_close(open_journal(130, &f->got));
    check_replayed(&f->got,
                   "w0-keep=kept one;w0-over=its end;w0-over2=its end, too;w0-keep=kept two;"
                   "w0-keep=0123456789012345678901234567890123456789;");
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
}

/* The last segment is closed when most of it is dead, not before. */
TEST_WITH(journal, gives_back_what_lies_in_its_last_segment, replay)
{
    static char much[100 << 10];
    struct journal_stats stats;
    struct journal *j;

    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(64 << 20, &f->got);
    append(j, "w0-keep", "kept");
    append(j, "w0-gone", much);
    journal_drop_earlier(j, STR("w0-gone"));
    append(j, "w0-gone2", much);
    append(j, "w0-gone2", "its end");
    journal_drop_earlier(j, STR("w0-gone2"));
    cr_assert_eq(journal_compact(j, false, &f->e), 0, "it is not worth it");
    append(j, "w0-gone3", much);
    append(j, "w0-gone3", "its end");
    journal_drop_session(j, STR("w0-gone"));
    journal_drop_earlier(j, STR("w0-gone3"));
    compact_all(j, false);
    journal_stats(j, &stats);
    cr_assert_lt(stats.disk_bytes, 1000);
    journal_close(j);
    journal_close(open_journal(64 << 20, &f->got));
    check_replayed(&f->got, "w0-keep=kept;w0-gone2=its end;w0-gone3=its end;");
}

/* The other records of a session keep their numbers, and only their bytes count. */
TEST_WITH(journal, gives_single_records_up, replay)
{
    static char much[100 << 10];
    struct journal_stats stats;
    struct journal *j;

    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(64 << 20, &f->got);
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
    for (int i = 0; i < 100 && journal_compact(j, false, &f->e) == 1; i++)
        ;
    journal_stats(j, &stats);
    cr_assert_lt(stats.disk_bytes, 1000);
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
    journal_close(j);
    j = open_journal(64 << 20, &f->got);
    cr_assert_eq(journal_records(j, STR("w0-a")), 4);
    journal_close(j);
    check_replayed(&f->got,
                   "w0-a=kept;w0-b=other;w0-a=kept;w0-b=other;w0-a=kept;w0-b=other;w0-a=last;");
}

/* A record that is released while it is copied is removed by the next compaction. */
TEST_WITH(journal, gives_up_what_is_being_copied, replay)
{
    static char much[600 << 10];
    struct journal_stats stats;
    struct journal *j;

    memset(much, 'x', sizeof(much) - 1);
    j = open_journal(2 << 20, &f->got);
    for (int i = 0; i < 3; i++)
        append(j, "w0-a", much);
    append(j, "w0-gone", "gone");
    append(j, "w0-a", "kept");
    for (int i = 0; i < 2; i++)
        append(j, "w0-b", much); /* in the next segment */
    journal_drop_session(j, STR("w0-gone"));
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "it begins");
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "the first record is copied");
    for (uint32_t i = 0; i < 3; i++)
        journal_release(j, STR("w0-a"), i);
    for (int i = 0; i < 100 && journal_compact(j, true, &f->e) == 1; i++)
        ;
    journal_stats(j, &stats);
    cr_assert_eq(stats.live_bytes, stats.disk_bytes);
    journal_close(j);
    j = open_journal(2 << 20, &f->got);
    cr_assert_eq(journal_records(j, STR("w0-a")), 1);
    cr_assert_eq(journal_records(j, STR("w0-b")), 2);
    journal_close(j);
}

/* A session that is over has only its last record: old numbers are invalid. */
TEST_WITH(journal, gives_nothing_up_of_who_is_over, replay)
{
    struct journal *j;

    j = open_journal(64 << 20, &f->got);
    append(j, "w0-over", "one");
    append(j, "w0-over", "two");
    append(j, "w0-over", "its end");
    journal_release(j, STR("w0-over"), 1);
    journal_drop_earlier(j, STR("w0-over"));
    for (uint32_t i = 0; i < 3; i++)
        journal_release(j, STR("w0-over"), i);
    cr_assert_gt(journal_session_bytes(j, STR("w0-over")), 0);
    journal_close(j);
}

/* On a full disk the reserve holds the ends of sessions. */
TEST_WITH(journal, keeps_room_back_and_gives_it_once, replay)
{
    struct journal *j;

    j = open_journal(0, &f->got);
    cr_assert_not(journal_free_reserve(j), "nothing is kept yet");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(journal_compact(j, false, &f->e), 0);
        cr_assert_geq(file_size("reserve"), 16 << 10);
        cr_assert(journal_free_reserve(j));
        cr_assert_eq(file_size("reserve"), -1);
        cr_assert_not(journal_free_reserve(j));
    }
    cr_assert_eq(journal_compact(j, false, &f->e), 0);
    journal_close(j);
    j = open_journal(0, &f->got);
    cr_assert_eq(journal_compact(j, false, &f->e), 0);
    cr_assert(journal_free_reserve(j), "a restart keeps it");
    journal_close(j);
}

TEST_WITH(journal, removes_what_the_manifest_does_not_name, replay)
{
    struct journal *j;
    char path[128];
    int fd;

    j = open_journal(0, &f->got);
    append(j, "w0-a", "one");
    journal_close(j);
    (void)snprintf(path, sizeof(path), "%s/seg-00000009", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    journal_close(open_journal(0, &f->got));
    check_replayed(&f->got, "w0-a=one;");
    cr_assert_eq(file_size("seg-00000009"), -1);
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
TEST_WITH(journal, power_tells_when_records_are_on_the_disk, replay)
{
    struct loop *loop = loop_new(&f->e);
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct journal *j = NULL;
    int durable = 0;
    int forgotten = 0;
    struct awaited early = {&durable, -1}, late = {&durable, -1};

    cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &f->e), 0, "%s", f->e.text);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable,
                                    i == 7 ? &forgotten : &durable, &f->e),
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
}

/* Measures the time to call n waiters. */
static struct cost tell_all(const void *ctx, uint32_t n)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct journal *j = NULL;
    struct err e = {0};
    struct loop *loop = loop_new(&e);
    struct cost ret = {0};
    struct replay f = {0};
    int durable = 0;
    double start;

    (void)ctx;
    replay_open(&f);
    cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &e), 0, "%s", e.text);
    for (uint32_t i = 0; i < n; i++)
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable, &durable, &e), 0);
    start = cost_now_s();
    while ((uint32_t)durable < n)
        (void)loop_poll(loop, 100);
    ret.seconds = cost_now_s() - start;
    journal_close(j);
    loop_free(loop);
    replay_close(&f);
    return ret;
}

/* The cost of calling one waiter does not depend on the number of others. */
TEST(journal, power_tells_very_many)
{
    expect_linear("telling who waits for the disk", tell_all, NULL, 5000);
}

/* JOURNAL_POWER: replayed bytes of the last segment are rewritten, and appending continues after
 * them. */
TEST_WITH(journal, renews_its_last_segment_for_power, replay)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_POWER, .segment_bytes = 0};
    struct loop *loop;
    struct journal *j;

    loop = loop_new(&f->e);
    cr_assert(loop);
    j = open_journal(0, &f->got);
    append(j, "w0-a", "one");
    append(j, "~", "note");
    journal_close(j);
    for (int i = 0; i < 3; i++) {
        buf_clear(&f->got);
        cr_assert_eq(journal_open(loop, &o, collect, &f->got, &j, &f->e), 0, "%s", f->e.text);
        append(j, "w0-b", "more");
        journal_close(j);
    }
    check_replayed(&f->got, "w0-a=one;~=note;w0-b=more;w0-b=more;");
    cr_expect_eq(file_size("seg-00000001"), -1);
    journal_close(open_journal(0, &f->got));
    check_replayed(&f->got, "w0-a=one;~=note;w0-b=more;w0-b=more;w0-b=more;");
    loop_free(loop);
}

/* Notes belong to no session and stay. A segment full of them is not rewritten again and again. */
TEST_WITH(journal, compaction_ends_where_notes_are_many, replay)
{
    struct journal *j;
    int steps = 0;

    j = open_journal(512, &f->got);
    append(j, "w0-live", "x");
    for (int i = 0; i < 30; i++) {
        append(j, "~", "noted noted");
        append(j, "w0-gone", "y");
    }
    journal_drop_session(j, STR("w0-gone"));
    for (int thorough = 0; thorough < 2; thorough++)
        while (journal_compact(j, thorough, &f->e) == 1 && steps < 1000)
            steps++;
    cr_expect_lt(steps, 100);
    journal_close(j);
    journal_close(open_journal(512, &f->got));
    cr_expect(str_starts(buf_str(&f->got), STR("w0-live=x;~=noted noted;")));
}

/* journal_append calls no callback itself, because its caller must apply the record first. */
TEST_WITH(journal, leaves_telling_to_its_caller_where_nothing_is_waited_for, replay)
{
    struct loop *loop = loop_new(&f->e);

    for (enum journal_durability level = JOURNAL_NONE; level < JOURNAL_POWER; level++) {
        struct journal_options o = {.dir = dir, .durability = level};
        struct journal *j = NULL;
        int durable = 0;

        cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &f->e), 0, "%s", f->e.text);
        cr_assert_eq(journal_append(j, STR("w0-a"), STR("x"), count_durable, &durable, &f->e), 1);
        cr_assert_eq(journal_await(j, count_durable, &durable), 1);
        cr_assert_eq(durable, 0);
        journal_close(j);
    }
    loop_free(loop);
}

/* The pages of a map are invalid after the file was truncated. */
TEST_WITH(journal, a_copied_file_may_be_cut_by_its_writer, replay)
{
    enum { BYTES = 3 * 4096 + 100 };

    char text[BYTES], path[96];
    struct str copy;
    int fd;

    (void)snprintf(path, sizeof(path), "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(files_copy(fd, &copy, &f->e), 0);
    cr_assert_null(copy.p);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (char)('a' + i % 23);
    cr_assert_eq(write(fd, text, BYTES), BYTES);
    cr_assert_eq(files_copy(fd, &copy, &f->e), 0, "%s", f->e.text);
    cr_assert_eq(ftruncate(fd, 10), 0);
    cr_assert_eq(copy.len, BYTES);
    cr_assert_eq(memcmp(copy.p, text, BYTES), 0);
    files_unmap(copy);
    cr_assert_eq(files_copy(fd, &copy, &f->e), 0);
    cr_assert_eq(copy.len, 10);
    files_unmap(copy);
    (void)close(fd);
    (void)unlink(path);
}
