/* Records of several logs, in the order of their changes. */
#include "dispatcher/book_replay.h"

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "dispatcher/book_record.h"
#include "testing.h"

/* Adds a group's record: "G" at this time, with the number of its submission. */
static bool add_group(struct book_replay *r, const char *id, uint64_t seq, bool continues,
                      uint64_t at_ms)
{
    struct buf record = {0};
    bool again;

    record_group(str_cstr(id), STR("{}"), (struct record_begin){seq, continues}, at_ms, &record);
    again = book_replay_add(r, str_cstr(id), buf_str(&record));
    buf_done(&record);
    return again;
}

static void add_plain(struct book_replay *r, enum record_kind kind, const char *id, uint64_t at_ms)
{
    struct buf record = {0};

    record_plain(kind, str_cstr(id), at_ms, &record);
    cr_assert_not(book_replay_add(r, str_cstr(id), buf_str(&record)));
    buf_done(&record);
}

/* Notes "a:1000 ". */
static int note_record(void *ctx, struct str group, struct str record, struct err *e)
{
    const struct json *v = NULL;
    struct arena a = {0};

    cr_assert_eq(json_parse(&a, record, &v, e), 0);
    buf_printf(ctx, "%.*s:%llu ", (int)group.len, group.p, (unsigned long long)record_at(v));
    arena_done(&a);
    return str_eq_c(group, "bad") ? err_set(e, ERR_UNSUPPORTED, "bad") : 0;
}

static void assert_order(struct book_replay *r, const char *want)
{
    struct buf got = {0};
    struct err e = {0};

    cr_assert_eq(book_replay_run(r, note_record, &got, &e), 0);
    cr_assert(str_eq_c(buf_str(&got), want), "%.*s instead of %s", (int)got.len, got.p, want);
    buf_done(&got);
}

TEST(book_replay, logs_are_merged_by_time)
{
    struct book_replay *r = book_replay_new();

    (void)add_group(r, "b", 2, false, 1001);
    add_plain(r, RECORD_DEADLINE, "b", 1005);
    (void)add_group(r, "a", 1, false, 1000);
    add_plain(r, RECORD_DEADLINE, "a", 1003);
    add_plain(r, RECORD_ACKED, "a", 1009);
    assert_order(r, "a:1000 b:1001 a:1003 b:1005 a:1009 ");
    assert_order(r, ""); /* all are forgotten */
    book_replay_free(r);
}

TEST(book_replay, groups_of_one_request_keep_their_order)
{
    struct book_replay *r = book_replay_new();

    (void)add_group(r, "c", 3, false, 1000);
    (void)add_group(r, "a", 1, false, 1000);
    (void)add_group(r, "b", 2, false, 1000);
    assert_order(r, "a:1000 b:1000 c:1000 ");
    book_replay_free(r);
}

TEST(book_replay, a_slow_clock_changes_no_order)
{
    struct book_replay *r = book_replay_new();

    (void)add_group(r, "new", 2, false, 500); /* by a dispatcher whose clock is late */
    add_plain(r, RECORD_DEADLINE, "new", 700);
    (void)add_group(r, "old", 1, false, 1000);
    add_plain(r, RECORD_DEADLINE, "old", 600); /* and which ended this one */
    assert_order(r, "old:1000 old:600 new:500 new:700 ");
    book_replay_free(r);
}

TEST(book_replay, an_id_that_is_used_again_begins_a_new_log)
{
    struct book_replay *r = book_replay_new();

    cr_assert_not(add_group(r, "a", 1, false, 1000));
    add_plain(r, RECORD_ACKED, "a", 1001);
    cr_assert(add_group(r, "a", 2, false, 1002)); /* the store has deleted the first one */
    add_plain(r, RECORD_ACKED, "a", 1003);
    cr_assert_not(add_group(r, "a", 3, true, 1004)); /* the store has both */
    assert_order(r, "a:1002 a:1003 a:1004 ");
    book_replay_free(r);
}

TEST(book_replay, forgotten_records_and_failures)
{
    struct book_replay *r = book_replay_new();
    struct buf got = {0};
    struct err e = {0};

    (void)add_group(r, "a", 1, false, 1000);
    book_replay_forget(r, STR("a"));
    book_replay_forget(r, STR("unknown"));
    (void)add_group(r, "bad", 2, false, 1001);
    (void)add_group(r, "c", 3, false, 1002);
    cr_assert_eq(book_replay_run(r, note_record, &got, &e), -1);
    cr_assert_eq(e.kind, ERR_UNSUPPORTED);
    cr_assert(str_eq_c(buf_str(&got), "bad:1001 "));
    assert_order(r, "");
    (void)add_group(r, "d", 4, false, 1003);
    book_replay_free(r);
    buf_done(&got);
}
