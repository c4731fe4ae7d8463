/* After a compaction the positions of many records are updated in steps. The journal works normally
 * between them. */
#include <stdio.h>
#include <stdlib.h>

#include "common/os/loop.h"
#include "journal_kit.h"

enum { RECORDS = 10000, BIG = 1400 << 10 };

/* Counts the records of each session. ctx: counters by the first letter of the id. */
static int count(void *ctx, struct str id, struct str payload, struct err *e)
{
    (void)payload;
    (void)e;
    ((unsigned *)ctx)[(unsigned char)id.p[0]]++;
    return 0;
}

static struct journal *open_counted(struct loop *loop, unsigned counts[256])
{
    struct journal_options o = {
        .durability = JOURNAL_PROCESS, .segment_bytes = 2 << 20, .dir = dir};
    struct journal *j = NULL;
    struct err e = {0};

    cr_assert_eq(journal_open(loop, &o, count, counts, &j, &e), 0, "%s", e.text);
    return j;
}

static void append_number(struct journal *j, const char *id, unsigned i)
{
    struct err e = {0};
    char text[16];
    int n = snprintf(text, sizeof(text), "%s%06u", id, i);

    cr_assert_eq(journal_append(j, str_cstr(id), str_of(text, (size_t)n), NULL, NULL, &e), 1, "%s",
                 e.text);
}

struct reading {
    const char *id;
    unsigned first, n; /* expected payloads: numbers from `first` on */
};

static int check_one(void *ctx, size_t record, struct str payload, struct err *e)
{
    struct reading *r = ctx;
    char want[16];

    (void)e;
    (void)snprintf(want, sizeof(want), "%s%06u", r->id, r->first + (unsigned)record);
    cr_assert(str_eq_c(payload, want), "%.*s is not %s", (int)payload.len, payload.p, want);
    r->n++;
    return 0;
}

/* Checks that record i of the session has the payload first + i, and that n records are read. */
static void check_session(struct journal *j, const char *id, unsigned first, unsigned n)
{
    struct reading r = {.id = id, .first = first};
    struct journal_reader reader = {check_one, &r};
    struct err e = {0};
    size_t at = 0;
    int rc = 1;

    while (rc == 1)
        rc = journal_read(j, str_cstr(id), &at, &reader, &e);
    cr_assert_eq(rc, 0, "%s", e.text);
    cr_assert_eq(r.n, n, "%s: %u", id, r.n);
}

/* Checks that the needed bytes are those of the sessions: no record was lost or counted twice. */
static void check_bytes(const struct journal *j)
{
    struct journal_stats s;
    uint64_t sum = 0;

    for (const char *id = "a\0b\0c\0d\0z\0"; *id; id += 2)
        sum += journal_session_bytes(j, str_cstr(id));
    journal_stats(j, &s);
    cr_assert_eq(s.live_bytes, sum, "%llu of %llu", (unsigned long long)s.live_bytes,
                 (unsigned long long)sum);
}

/* Fills one segment with sessions a, b, c, d and w, of which w is not needed. */
static void fill(struct journal *j)
{
    char *big = calloc(1, BIG);
    struct err e = {0};

    append_number(j, "w", 0);
    for (unsigned i = 0; i < RECORDS; i++)
        for (const char *id = "a\0b\0c\0d\0"; *id; id += 2)
            append_number(j, id, i);
    cr_assert_eq(journal_append(j, STR("z"), str_of(big, BIG), NULL, NULL, &e), 1);
    free(big);
    journal_drop_session(j, STR("w"));
}

/* Compacts until the rewritten segment has replaced the old one. */
static void swap(struct journal *j)
{
    struct journal_stats s;
    struct err e = {0};
    uint64_t bytes;

    journal_stats(j, &s);
    bytes = s.disk_bytes;
    for (int i = 0; i < 100 && s.disk_bytes == bytes; i++) {
        cr_assert_eq(journal_compact(j, true, &e), 1, "%s", e.text);
        journal_stats(j, &s);
    }
    cr_assert_lt(s.disk_bytes, bytes);
}

TEST_WITH(journal_moving, places_change_in_steps_in_which_nothing_is_lost, replay)
{
    unsigned counts[256] = {0};
    struct loop *loop = loop_new(&f->e);
    struct journal *j;
    size_t bytes;

    j = open_counted(loop, counts);
    fill(j);
    swap(j);
    bytes = journal_table_bytes(j);
    check_session(j, "a", 0, RECORDS); /* updated */
    check_session(j, "b", 0, RECORDS); /* partly updated */
    check_session(j, "d", 0, RECORDS); /* not updated yet */
    check_bytes(j);
    journal_release(j, STR("a"), 7);
    journal_release(j, STR("c"), RECORDS - 1);
    journal_drop_session(j, STR("b")); /* the session that is being updated */
    append_number(j, "b", 77);
    append_number(j, "c", RECORDS);
    journal_drop_earlier(j, STR("d"));
    check_bytes(j);
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "a step of its own");
    check_bytes(j);
    check_session(j, "c", 0, RECORDS);
    compact_all(j, true);
    cr_expect_lt(journal_table_bytes(j), bytes, "what was moved is known no longer");
    check_bytes(j);
    check_session(j, "a", 0, RECORDS - 1);
    check_session(j, "b", 77, 1);
    check_session(j, "c", 0, RECORDS);
    check_session(j, "d", RECORDS - 1, 1);
    journal_close(j);
    memset(counts, 0, sizeof(counts));
    j = open_counted(loop, counts);
    cr_expect(counts['a'] == RECORDS - 1 && counts['b'] == 1 && counts['c'] == RECORDS &&
                  counts['d'] == 1 && counts['w'] == 0,
              "%u %u %u %u %u", counts['a'], counts['b'], counts['c'], counts['d'], counts['w']);
    journal_close(j);
    loop_free(loop);
}

/* A journal may be closed during the update. */
TEST_WITH(journal_moving, a_close_between_the_steps_is_none_to_the_next_start, replay)
{
    unsigned counts[256] = {0};
    struct loop *loop = loop_new(&f->e);
    struct journal *j;

    j = open_counted(loop, counts);
    fill(j);
    swap(j);
    cr_assert_eq(journal_compact(j, true, &f->e), 1, "there is no other work");
    journal_close(j);
    j = open_counted(loop, counts);
    cr_expect(counts['a'] == RECORDS && counts['d'] == RECORDS && counts['w'] == 0);
    check_session(j, "d", 0, RECORDS);
    journal_close(j);
    loop_free(loop);
}
