/* journal_read reads the records of a session from several segments, also after compaction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/os/loop.h"
#include "journal_kit.h"

static int collect_payload(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct buf *b = ctx;

    (void)session_id;
    (void)e;
    buf_add_str(b, payload);
    buf_add_c(b, ' ');
    return 0;
}

static int collect_read(void *ctx, size_t record, struct str payload, struct err *e)
{
    (void)record;
    return collect_payload(ctx, (struct str){0}, payload, e);
}

static int read_all(struct journal *j, struct str id, struct buf *b, struct err *e)
{
    struct journal_reader reader = {collect_read, b};
    size_t at = 0;
    int rc = 1;

    while (rc == 1)
        rc = journal_read(j, id, &at, &reader, e);
    return rc;
}

TEST_WITH(journal_read, gives_one_sessions_records_in_order, replay)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_PROCESS, .segment_bytes = 256};
    struct loop *loop;
    struct journal *j;
    struct buf read = {0}, none = {0};

    loop = loop_new(&f->e);
    cr_assert(loop, "%s", f->e.text);
    cr_assert_eq(journal_open(loop, &o, collect_payload, &f->got, &j, &f->e), 0, "%s", f->e.text);
    for (unsigned i = 0; i < 20; i++) {
        char text[16];
        int n = snprintf(text, sizeof(text), "%c%u", i % 2 ? 'b' : 'a', i);

        cr_assert_geq(journal_append(j, i % 2 ? STR("w0-b") : STR("w0-a"), str_of(text, (size_t)n),
                                     NULL, NULL, &f->e),
                      0);
    }
    cr_expect_eq(read_all(j, STR("w0-a"), &read, &f->e), 0, "%s", f->e.text);
    cr_expect(str_eq_c(buf_str(&read), "a0 a2 a4 a6 a8 a10 a12 a14 a16 a18 "), "%.*s",
              (int)read.len, read.p);
    journal_drop_session(j, STR("w0-b"));
    compact_all(j, true);
    buf_clear(&read);
    cr_expect_eq(read_all(j, STR("w0-a"), &read, &f->e), 0, "%s", f->e.text);
    cr_expect(str_eq_c(buf_str(&read), "a0 a2 a4 a6 a8 a10 a12 a14 a16 a18 "), "%.*s",
              (int)read.len, read.p);
    cr_expect_eq(read_all(j, STR("w0-b"), &none, &f->e), 0);
    cr_expect_eq(none.len, 0);
    journal_close(j);
    loop_free(loop);
    buf_done(&read);
    buf_done(&none);
}

/* Collects each record with its number. */
static int collect_numbered(void *ctx, size_t record, struct str payload, struct err *e)
{
    struct buf *b = ctx;

    (void)e;
    buf_printf(b, "%zu:%.*s ", record, (int)payload.len, payload.p);
    return 0;
}

/* Reads all records, and some by their numbers in the list. */
static void check_read(struct journal *j, const char *all, const char *some)
{
    static const uint32_t records[] = {0, 4, 5, 2, 7};
    struct buf got = {0};
    struct journal_reader reader = {collect_numbered, &got};
    struct err e = {0};
    size_t at = 0;

    while (journal_read(j, STR("w0-a"), &at, &reader, &e) == 1)
        ;
    cr_expect(str_eq_c(buf_str(&got), all), "%.*s", (int)got.len, got.p);
    buf_clear(&got);
    cr_expect_eq(journal_read_records(j, STR("w0-a"), records, 5, &reader, &e), 0, "%s", e.text);
    cr_expect(str_eq_c(buf_str(&got), some), "%.*s", (int)got.len, got.p);
    buf_done(&got);
}

TEST_WITH(journal_read, passes_over_what_was_given_up, replay)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_PROCESS, .segment_bytes = 64};
    struct journal *j;

    cr_assert_eq(journal_open(NULL, &o, NULL, NULL, &j, &f->e), 0, "%s", f->e.text);
    for (unsigned i = 0; i < 8; i++) {
        char text[16];
        int n = snprintf(text, sizeof(text), "a%u", i);

        cr_assert_geq(journal_append(j, STR("w0-a"), str_of(text, (size_t)n), NULL, NULL, &f->e),
                      0);
    }
    for (uint32_t i = 4; i < 8; i++)
        journal_release(j, STR("w0-a"), i);
    journal_release(j, STR("w0-a"), 0);
    check_read(j, "1:a1 2:a2 3:a3 ", "3:a2 ");
    cr_assert_geq(journal_append(j, STR("w0-a"), STR("a8"), NULL, NULL, &f->e), 0);
    compact_all(j, true);
    check_read(j, "1:a1 2:a2 3:a3 8:a8 ", "3:a2 ");
    journal_close(j);
}

static int collect_some(void *ctx, size_t record, struct str payload, struct err *e)
{
    struct str *got = ctx;

    (void)e;
    cr_assert_null(got[record].p);
    got[record] = str_of(strndup(payload.p, payload.len), payload.len);
    return 0;
}

/* Reads every `step`-th record of the session in descending order. Returns the number of reads. */
static uint64_t read_some(struct journal *j, unsigned n, unsigned step)
{
    struct journal_stats before, after;
    struct str got[64] = {0};
    uint32_t records[64];
    unsigned n_records = 0;
    struct err e = {0};
    struct journal_reader reader = {collect_some, got};

    for (unsigned i = n; i > 0; i -= step)
        records[n_records++] = i - 1;
    journal_stats(j, &before);
    cr_assert_eq(journal_read_records(j, STR("w0-a"), records, n_records, &reader, &e), 0, "%s",
                 e.text);
    journal_stats(j, &after);
    for (unsigned i = 0; i < n_records; i++) {
        char want[16];

        (void)snprintf(want, sizeof(want), "a%u", records[i]);
        cr_expect(got[i].len == 500 && memcmp(got[i].p, want, strlen(want) + 1) == 0);
        free((char *)(uintptr_t)got[i].p);
    }
    return after.reads - before.reads;
}

static void append_sized(struct journal *j, struct str id, char letter, unsigned i, size_t size)
{
    char text[20000];
    struct err e = {0};

    memset(text, '.', sizeof(text));
    (void)snprintf(text, sizeof(text), "%c%u", letter, i);
    cr_assert_geq(journal_append(j, id, str_of(text, size), NULL, NULL, &e), 0);
}

TEST_WITH(journal_read, adjacent_records_are_one_read, replay)
{
    struct journal_options o = {.dir = dir, .durability = JOURNAL_PROCESS};
    struct loop *loop;
    struct journal *j;
    uint32_t none = 1000;
    struct journal_reader reader = {collect_some, NULL};

    loop = loop_new(&f->e);
    cr_assert(loop, "%s", f->e.text);
    cr_assert_eq(journal_open(loop, &o, NULL, NULL, &j, &f->e), 0, "%s", f->e.text);
    for (unsigned i = 0; i < 60; i++)
        append_sized(j, STR("w0-a"), 'a', i, 500);
    cr_expect_eq(read_some(j, 60, 1), 1);
    cr_expect_eq(read_some(j, 60, 10), 1); /* with small gaps */
    append_sized(j, STR("w0-b"), 'b', 0, 20000);
    append_sized(j, STR("w0-a"), 'a', 60, 500);
    cr_expect_eq(read_some(j, 61, 1), 2);
    journal_drop_session(j, STR("w0-b"));
    o.segment_bytes = 1;
    compact_all(j, true);
    cr_expect_leq(read_some(j, 61, 1), 2);
    cr_expect_eq(journal_read_records(j, STR("w0-a"), &none, 1, &reader, &f->e), -1);
    journal_close(j);
    loop_free(loop);
}
