/* The records of a fork are read one at a time while its session continues. */
#include "worker/session/record/session_fork.h"

#include <string.h>

#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/store.h"

/* A session_source. ctx: the kit. */
static int source(void *ctx, struct str id, const uint32_t *records, size_t n,
                  const struct session_reader *reader, struct err *e)
{
    const struct kit *k = ctx;

    (void)id;
    for (size_t i = 0; i < n; i++) {
        if (records[i] >= k->n_journal)
            return err_set(e, ERR_IO, "no such record");
        if (reader->each(reader->ctx, i, buf_str(&k->journal[records[i]]), e) != 0)
            return -1;
    }
    return 0;
}

static void apply(struct kit *k, struct buf *record)
{
    cr_assert_eq(session_apply(k->store, buf_str(record), &k->err), 0, "%s", k->err.text);
    k->journal[k->n_journal++] = *record;
}

static void reward(struct kit *k)
{
    struct buf record = {0};

    cr_assert_eq(session_reward_record(k->s, kit_json(k, "{\"r\":1}"), (struct str){0}, k->now,
                                       &record, &k->err),
                 0);
    apply(k, &record);
}

/* Makes three calls, each followed by a reward. */
static void init(struct kit *k)
{
    kit_init(k, NULL);
    session_store_source(k->store, source, k);
    cr_assert_geq(kit_turn(k, "[{\"role\":\"user\",\"content\":\"one\"}]", "A"), 0);
    reward(k);
    cr_assert_geq(kit_turn(k, "[{\"role\":\"user\",\"content\":\"two\"}]", "B"), 0);
    reward(k);
    cr_assert_geq(kit_turn(k, "[{\"role\":\"user\",\"content\":\"three\"}]", "C"), 0);
    reward(k);
}

static const struct session_fork ask = {.id = {"w0-fork", 7}, .now_ms = 99};

static size_t look(struct kit *k, struct fork_reader *r)
{
    size_t steps = 1;
    int rc;

    for (; (rc = session_fork_scan(r, &k->err)) == 0; steps++)
        ;
    cr_assert_eq(rc, 1, "%s", k->err.text);
    return steps;
}

TEST(session_fork, the_records_are_counted_then_told)
{
    struct kit k;
    struct fork_reader r;
    struct buf record = {0};
    size_t n = 0, there;
    int rc;

    init(&k);
    there = k.n_journal;
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), 0);
    cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"four\"}]", "D"), 0);
    cr_assert_eq(look(&k, &r), there - 1, "the last reward stands behind the answer");
    do {
        struct record_head h;
        struct record_in in;

        buf_clear(&record);
        rc = session_fork_next(&r, &record, &k.err);
        in = record_in_of(buf_str(&record));
        cr_assert(record_read_head(&in, &h));
        cr_assert(str_eq(h.id, ask.id));
        cr_assert_str_neq(session_record_kind(buf_str(&record)), "reward");
        n++;
    } while (rc == 0);
    cr_assert_eq(rc, 1);
    cr_assert_eq(n, session_fork_records(&r));
    cr_assert_str_eq(session_record_kind(buf_str(&record)), "fork");
    session_fork_done(&r);
    buf_done(&record);
    kit_done(&k);
}

TEST(session_fork, what_the_journal_does_not_have_is_told)
{
    struct kit k;
    struct fork_reader r;
    size_t n;
    int rc;

    init(&k);
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), 0);
    n = k.n_journal;
    k.n_journal = 2;
    while ((rc = session_fork_scan(&r, &k.err)) == 0)
        ;
    cr_assert_eq(rc, -1);
    cr_assert_eq(k.err.kind, ERR_IO);
    k.n_journal = n;
    session_fork_done(&r);
    /* its records have other numbers */
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), 0);
    r.last_call += 100;
    while ((rc = session_fork_scan(&r, &k.err)) == 0)
        ;
    cr_assert_eq(rc, -1);
    cr_assert_eq(k.err.kind, ERR_IO);
    cr_assert_not_null(strstr(k.err.text, "answer's record"), "%s", k.err.text);
    session_fork_done(&r);
    kit_done(&k);
}

/* One prompt was answered several times with the same text: all answers but the newest are hidden.
 */
TEST(session_fork, equal_answers_stay_behind)
{
    struct kit k;
    struct fork_reader r;
    struct buf record = {0};
    struct session *fork;
    bool ended;
    int rc = 0;

    kit_init(&k, "{\"idempotent_retry\":false}");
    session_store_source(k.store, source, &k);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"one\"}]", "A"), 0);
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), 0);
    (void)look(&k, &r);
    cr_assert_eq(session_create_record(k.store, ask.id,
                                       kit_json(&k, "{\"idempotent_retry\":false}"), 99, &record,
                                       &k.err),
                 0);
    cr_assert_eq(session_apply(k.store, buf_str(&record), &k.err), 0);
    while (rc == 0) {
        buf_clear(&record);
        rc = session_fork_next(&r, &record, &k.err);
        cr_assert_eq(session_apply(k.store, buf_str(&record), &k.err), 0, "%s", k.err.text);
    }
    fork = session_find(k.store, ask.id, &ended);
    cr_assert_eq(fork->forest.checkpoints.n, 5);
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(fork->forest.checkpoints.at[i]->hidden, i != 4, "%zu", i);
    cr_assert_eq(fork->forest.checkpoints.at[4]->node->newest, fork->forest.checkpoints.at[4]);
    cr_assert_null(fork->forest.checkpoints.at[4]->older);
    session_fork_done(&r);
    buf_done(&record);
    kit_done(&k);
}

/* The repeated last commit has a number as if a call were lost. */
TEST(session_fork, a_session_that_lost_records_is_not_copied)
{
    struct kit k;
    struct fork_reader r;
    struct snapshot_writer w;
    struct session_request commit;
    const struct json *warnings;
    struct str id, said;
    size_t i;

    init(&k);
    cr_assert_eq(json_get(kit_state(&k), "warnings")->n, 0u);
    for (i = k.n_journal - 1; !session_record_commits(buf_str(&k.journal[i]), &id, &commit); i--)
        ;
    cr_assert_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), -1);
    cr_expect_not_null(strstr(k.err.text, "one is lost"), "%s", k.err.text);
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), -1);
    cr_expect_eq(k.err.kind, ERR_UNASSEMBLABLE);
    cr_expect_not_null(strstr(k.err.text, "not copied"), "%s", k.err.text);
    cr_assert_eq(snapshot_begin(k.s, &w, &k.err), -1);
    cr_expect_eq(k.err.kind, ERR_UNASSEMBLABLE);
    warnings = json_get(kit_state(&k), "warnings");
    cr_assert_eq(warnings->n, 1u);
    said = json_string(&warnings->items[0]);
    cr_expect_lt(str_find(said, STR("lost 1 or more records"), 0), said.len);
    kit_done(&k);
}

/* A record that the fork adds has the number of the last one. Without the last one all copied
 * answers would be trained, so the loss counts, also when the session is read back. */
TEST(session_fork, a_lost_last_record_of_a_fork_counts)
{
    struct kit k;
    struct fork_reader r;
    struct buf records[8] = {0};
    struct session *fork;
    size_t n = 1;
    bool ended;

    init(&k);
    cr_assert_eq(session_fork_begin(k.s, &ask, &r, &k.err), 0);
    (void)look(&k, &r);
    cr_assert_eq(session_create_record(k.store, ask.id, kit_json(&k, "{\"copies\":4}"), 99,
                                       &records[0], &k.err),
                 0, "%s", k.err.text);
    cr_assert_eq(session_fork_records(&r), 4);
    while (session_fork_next(&r, &records[n], &k.err) == 0)
        n++;
    buf_clear(&records[n]); /* the fork */
    record_begin(&records[n], RECORD_EXPORTED, ask.id, 100);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i <= n; i++)
            cr_assert_eq(session_apply(k.store, buf_str(&records[i]), &k.err), 0, "%s", k.err.text);
        fork = session_find(k.store, ask.id, &ended);
        cr_expect_eq(fork->lost_records, 1, "round %d", round);
        cr_expect_not(session_copying(fork));
        if (round == 0) {
            session_store_evicts(k.store, true);
            session_rest(fork);
            session_load_begin(fork);
        }
    }
    cr_assert_eq(session_load_end(fork, true, 101), 0);
    session_fork_done(&r);
    for (size_t i = 0; i <= n; i++)
        buf_done(&records[i]);
    kit_done(&k);
}
