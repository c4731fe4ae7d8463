/* The end of a session stays on disk as long as any older record of it. Otherwise a restart would
 * restore the session from these records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal_kit.h"

static const char many[] = "0123456789012345678901234567890123456789";

static void last_word(struct str id, struct buf *payload)
{
    (void)id;
    buf_puts(payload, "last word");
}

static struct journal *reopen(uint64_t segment_bytes, struct buf *replayed)
{
    return open_as((struct journal_options){.durability = JOURNAL_PROCESS,
                                            .segment_bytes = segment_bytes,
                                            .last_word = last_word},
                   replayed);
}

static bool is_there(const struct buf *replayed, const char *text)
{
    return str_find(buf_str(replayed), str_cstr(text), 0) != SIZE_MAX;
}

static bool is_kept(void *ctx, struct str id)
{
    (void)ctx;
    return str_starts(id, STR("w0-keep"));
}

/* Begins w0-gone in a first segment that is mostly needed, and ends it in a second one that is not.
 * Fills a third one. */
static struct journal *begin_three(struct buf *got)
{
    struct journal *j = reopen(330, got);
    char long_text[251];

    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (int i = 0; i < 5; i++)
        append(j, "w0-keep", many);
    append(j, "w0-gone", "begins");
    append(j, "w0-other", many);
    append(j, "w0-other", many);
    append(j, "w0-gone", "ends");
    append(j, "w0-keep", long_text);
    return j;
}

TEST_WITH(journal_ends, who_was_over_stays_so_until_its_beginning_has_left, replay)
{
    struct journal *j = begin_three(&f->got);

    journal_drop_earlier(j, STR("w0-gone"));
    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 2);
    compact_all(j, false);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_assert(is_there(&f->got, "w0-gone=begins;") && is_there(&f->got, "w0-gone=ends;"), "%.*s",
              (int)f->got.len, f->got.p);
    cr_assert_not(is_there(&f->got, "w0-other"));
    journal_drop_earlier(j, STR("w0-gone"));
    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 1);
    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 0, "it has been told already");
    compact_all(j, true);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_assert_not(is_there(&f->got, "w0-gone"), "%.*s", (int)f->got.len, f->got.p);
    journal_close(j);
}

/* The session has no record that marks it as over. */
TEST_WITH(journal_ends, who_is_dropped_gets_a_last_word_where_it_is_in_several_segments, replay)
{
    struct journal *j = begin_three(&f->got);

    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 2);
    compact_all(j, false);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_assert(is_there(&f->got, "w0-gone=begins;") && is_there(&f->got, "w0-gone=last word;"),
              "%.*s", (int)f->got.len, f->got.p);
    cr_assert_not(is_there(&f->got, "w0-gone=ends;"));
    cr_assert_not(is_there(&f->got, "w0-other"), "it was in one segment");
    journal_drop_earlier(j, STR("w0-gone"));
    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 1);
    compact_all(j, true);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_assert_not(is_there(&f->got, "w0-gone=begins;"), "%.*s", (int)f->got.len, f->got.p);
    journal_close(j);
}

/* Its first record is copied before the session is dropped, so the new segment has it. */
TEST_WITH(journal_ends, who_is_dropped_while_it_is_copied_stays_over, replay)
{
    static char much[600 << 10];
    struct journal *j = reopen(2 << 20, &f->got);

    memset(much, 'x', sizeof(much) - 1);
    append(j, "w0-gone", "begins");
    append(j, "w0-keep", much);
    append(j, "w0-other", much);
    append(j, "w0-gone", "ends");
    append(j, "w0-keep", much);
    append(j, "w0-keep", much); /* in the next segment */
    journal_drop_session(j, STR("w0-other"));
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "it begins");
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "the first records are copied");
    journal_drop_earlier(j, STR("w0-gone"));
    cr_assert_eq(journal_drop_absent(j, is_kept, NULL), 1);
    for (int i = 0; i < 4; i++)
        cr_assert_geq(journal_compact(j, false, &f->e), 0);
    journal_close(j);
    j = reopen(2 << 20, &f->got);
    cr_assert(!is_there(&f->got, "w0-gone=begins;") || is_there(&f->got, "w0-gone=ends;"), "%.*s",
              (int)f->got.len, f->got.p);
    journal_close(j);
}

/* The dispatcher works between the steps. A session that is dropped after its first record was
 * copied keeps its last record. */
TEST_WITH(journal_ends, in_order_an_end_stays_when_its_beginning_was_copied_in_vain, replay)
{
    enum { LARGE = 200 << 10, SEGMENT = 2 << 20 };

    char *large = malloc(LARGE + 1);
    struct journal *j;

    memset(large, 'x', LARGE);
    large[LARGE] = '\0';
    j = open_in_order(SEGMENT, &f->got);
    append(j, "w0-gone", "begins");
    for (int i = 0; i < 12; i++) /* three steps of copying */
        append(j, i < 7 ? "w0-waste" : "w0-keep", large);
    append(j, "w0-keep", "also in the second segment");
    append(j, "w0-gone", "ends");
    for (int i = 0; i < 10; i++)
        append(j, "w0-last", large);
    journal_drop_session(j, STR("w0-waste"));
    for (int i = 0; i < 2; i++) /* begins, and copies the first record */
        cr_assert_eq(journal_compact(j, false, &f->e), 1);
    journal_drop_session(j, STR("w0-gone"));
    for (int i = 0; i < 3; i++) /* copies the rest of the first segment, and replaces it */
        cr_assert_eq(journal_compact(j, false, &f->e), 1);
    compact_all(j, false);
    journal_close(j);
    j = reopen(SEGMENT, &f->got);
    cr_expect(is_there(&f->got, "w0-gone=begins;"), "it was copied");
    cr_expect(is_there(&f->got, "w0-gone=ends;"));
    cr_expect(is_there(&f->got, "w0-keep=also"));
    cr_expect_not(is_there(&f->got, "w0-waste"));
    free(large);
    journal_close(j);
}

/* Dropped records of an id that is used again do not count as records of the new session. */
TEST_WITH(journal_ends, in_order_an_id_that_is_used_again_is_rewritten_once, replay)
{
    struct journal *j = open_in_order(330, &f->got);
    int steps = 0, rc;

    for (int i = 0; i < 3; i++)
        append(j, "w0-again", many);
    journal_drop_session(j, STR("w0-again"));
    append(j, "w0-again", "anew");
    for (int i = 0; i < 8; i++)
        append(j, "w0-keep", many);
    while ((rc = journal_compact(j, false, &f->e)) == 1 && ++steps < 100)
        ;
    cr_assert_eq(rc, 0, "%d steps: %s", steps, f->e.text);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_expect_not(is_there(&f->got, "w0-again=0"), "%.*s", (int)f->got.len, f->got.p);
    cr_expect(is_there(&f->got, "w0-again=anew;"));
    journal_close(j);
}

/* A reused id does not prevent the compaction of the journal when the second session has ended,
 * too, whose records are all in other segments. */
TEST_WITH(journal_ends, in_order_what_is_newer_goes_though_an_id_was_used_again, replay)
{
    struct journal *j = open_in_order(330, &f->got);
    struct journal_stats stats;

    append(j, "w0-keep", many); /* lives long; fills a segment with the next four */
    for (int i = 0; i < 4; i++)
        append(j, "w0-again", many);
    journal_drop_session(j, STR("w0-again"));
    for (int i = 0; i < 5; i++)
        append(j, "w0-other", many);
    append(j, "w0-again", "anew");
    for (int i = 0; i < 5; i++)
        append(j, "w0-other", many);
    compact_all(j, false);
    journal_drop_session(j, STR("w0-again"));
    journal_drop_session(j, STR("w0-other"));
    for (int i = 0; i < 5; i++)
        append(j, "w0-keep", many);
    compact_all(j, false);
    journal_stats(j, &stats);
    cr_expect_eq(stats.disk_bytes, stats.live_bytes);
    journal_close(j);
    j = reopen(330, &f->got);
    cr_expect_not(is_there(&f->got, "w0-again"), "%.*s", (int)f->got.len, f->got.p);
    cr_expect_not(is_there(&f->got, "w0-other"));
    cr_expect(is_there(&f->got, "w0-keep"));
    journal_close(j);
}

/* Fills a first segment that takes four steps of 600 KB to copy: records of `id`, a long one of
 * w0-keep, the `last` record of `id`, and two more of w0-keep. Then begins a second segment, and
 * runs the first steps: the first records of `id` are copied. */
static struct journal *begin_copying(struct journal *j, const char *id, const char *last)
{
    enum { LARGE = 600 << 10 };

    char *large = malloc(LARGE + 1);
    struct err e = {0};

    memset(large, 'x', LARGE);
    large[LARGE] = '\0';
    for (int i = 0; i < 3; i++)
        append(j, id, "first");
    append(j, "w0-keep", large);
    append(j, id, last);
    append(j, "w0-keep", large);
    append(j, "w0-waste", "waste");
    append(j, "w0-keep", large);
    append(j, "w0-keep", large); /* in the second segment */
    free(large);
    journal_drop_session(j, STR("w0-waste"));
    cr_assert_eq(journal_compact(j, true, &e), 1, "it begins");
    cr_assert_eq(journal_compact(j, true, &e), 1, "the first records are copied");
    return j;
}

/* The compaction has passed several records of the session. The one that remains is still ahead of
 * it. */
TEST_WITH(journal_ends, who_ends_while_it_is_copied_keeps_its_last_record, replay)
{
    struct journal *j = reopen(2 << 20, &f->got);

    j = begin_copying(j, "w0-gone", "ends");
    journal_drop_earlier(j, STR("w0-gone"));
    compact_all(j, true);
    journal_close(j);
    j = reopen(2 << 20, &f->got);
    cr_expect_not(is_there(&f->got, "w0-gone=first;"), "%.*s", (int)f->got.len, f->got.p);
    cr_expect(is_there(&f->got, "w0-gone=ends;"));
    cr_expect_not(is_there(&f->got, "w0-waste"));
    journal_close(j);
}

/* The compaction finds records of the former session while the new one exists. */
TEST_WITH(journal_ends, in_order_an_id_may_be_used_again_while_it_is_copied, replay)
{
    struct journal *j = open_in_order(2 << 20, &f->got);
    struct journal_stats stats;

    j = begin_copying(j, "w0-again", "ends");
    journal_drop_session(j, STR("w0-again"));
    append(j, "w0-again", "anew");
    compact_all(j, true);
    journal_stats(j, &stats);
    cr_expect_eq(stats.disk_bytes, stats.live_bytes);
    journal_close(j);
    j = reopen(2 << 20, &f->got);
    cr_expect_not(is_there(&f->got, "w0-again=first;"), "%.*s", (int)f->got.len, f->got.p);
    cr_expect_not(is_there(&f->got, "w0-again=ends;"));
    cr_expect(is_there(&f->got, "w0-again=anew;"));
    journal_close(j);
}

/* The sessions that a pass in steps has checked. */
struct asked {
    size_t n;
    char last[64];
};

/* Keeps sessions whose last digit is divisible by three. */
static bool is_third(void *ctx, struct str id)
{
    struct asked *a = ctx;

    a->n++;
    (void)snprintf(a->last, sizeof(a->last), "%.*s", (int)id.len, id.p);
    return id.len > 3 && (id.p[id.len - 1] - '0') % 3 == 0;
}

TEST_WITH(journal_ends, a_look_over_in_parts_looks_at_so_many_places_each, replay)
{
    enum { SESSIONS = 5000, PLACES = 64, KEPT = 4 * (SESSIONS / 10) }; /* ends in 0, 3, 6, 9 */

    struct journal *j = reopen(1 << 20, &f->got);
    struct journal_look l = {0};
    struct asked asked = {0};
    size_t parts = 0, dropped = 0;
    char id[32];
    bool more;

    for (int i = 0; i < SESSIONS; i++) {
        (void)snprintf(id, sizeof(id), "w0-%d", i);
        append(j, id, "begins");
    }
    do {
        size_t before = asked.n;

        more = journal_drop_batch(j, &l, is_third, &asked, PLACES);
        cr_assert_leq(asked.n - before, (size_t)PLACES);
        if (parts++ == 20) { /* sessions are added and dropped meanwhile */
            (void)snprintf(id, sizeof(id), "w0-new-3");
            append(j, id, "begins");
            journal_drop_session(j, STR("w0-0"));
        }
    } while (more);
    cr_assert_geq(parts, SESSIONS / PLACES, "%zu parts", parts);
    dropped = l.dropped;
    cr_assert_geq(dropped, (size_t)(SESSIONS - KEPT) * 9 / 10, "%zu", dropped);
    cr_assert_leq(dropped, (size_t)(SESSIONS - KEPT));
    /* a session that has moved past the position is dropped in the next pass */
    cr_assert_eq(dropped + journal_drop_absent(j, is_third, &asked), (size_t)(SESSIONS - KEPT));
    asked.n = 0;
    cr_assert_eq(journal_drop_absent(j, is_third, &asked), 0);
    cr_assert_eq(asked.n, (size_t)KEPT, "w0-0 has gone, one has come: %zu", asked.n);
    journal_close(j);
}

TEST_WITH(journal_ends, a_look_over_in_parts_writes_as_many_last_words_as_one, replay)
{
    enum { ENDED = JOURNAL_LAST_WORDS + 100 };

    struct journal *j = reopen(4096, &f->got); /* each session is in several segments */
    struct journal_look l = {0};
    char id[32];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < ENDED; i++) {
            (void)snprintf(id, sizeof(id), "w0-%d", i);
            append(j, id, many);
        }
    }
    while (journal_drop_batch(j, &l, is_kept, NULL, 64))
        ;
    cr_assert_eq(l.words, (unsigned)JOURNAL_LAST_WORDS);
    cr_assert_eq(l.dropped, (size_t)JOURNAL_LAST_WORDS);
    cr_assert_eq(l.dropped + journal_drop_absent(j, is_kept, NULL), (size_t)ENDED);
    journal_close(j);
}
