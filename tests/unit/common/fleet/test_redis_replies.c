#include "common/fleet/redis_replies.h"

#include "common/base/arena.h"
#include "common/fleet/resp.h"
#include "testing.h"

/* Reads a reply as an answer. Returns false if it has a different form. */
static bool read_answer(struct arena *a, redis_reader reader, const char *text,
                        struct store_answer *ret)
{
    const struct resp *r = resp_read(a, str_cstr(text));

    *ret = (struct store_answer){0};
    return redis_read_verdict(r, ret) && reader(a, r, ret);
}

struct reply {
    struct arena a;
    struct store_answer got;
};

static void reply_open(struct reply *f)
{
    (void)f;
}

static void reply_close(struct reply *f)
{
    arena_done(&f->a);
}

TEST_WITH(redis_replies, refusals_have_a_number_a_verdict_and_the_next_record, reply)
{
    cr_assert(read_answer(&f->a, redis_read_refusals,
                          "*2\r\n$4\r\ndone\r\n*2\r\n*4\r\n:1\r\n$5\r\nshort\r\n:7\r\n$1\r\n0\r\n"
                          "*4\r\n:3\r\n$6\r\nfenced\r\n:0\r\n$2\r\n17\r\n",
                          &f->got));
    cr_assert_eq(f->got.verdict, STORE_DONE);
    cr_assert_eq(f->got.n_refused, 2);
    cr_assert_eq(f->got.refused[0].i, 1);
    cr_assert_eq(f->got.refused[0].verdict, STORE_SHORT);
    cr_assert_eq(f->got.refused[0].next, 7);
    cr_assert_eq(f->got.refused[1].verdict, STORE_FENCED);
    cr_assert_eq(f->got.refused[1].base, 17);
    cr_assert(
        read_answer(&f->a, redis_read_refusals, "*2\r\n$6\r\nfenced\r\n$2\r\n18\r\n", &f->got));
    cr_assert_eq(f->got.base, 18);
}

TEST_WITH(redis_replies, a_renewal_has_the_beats_of_all_nodes, reply)
{
    cr_assert(read_answer(&f->a, redis_read_renewal,
                          "*5\r\n$4\r\ndone\r\n*0\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n$2\r\n17\r\n"
                          "$16\r\nfedcba9876543210\r\n",
                          &f->got));
    cr_assert(f->got.edition == 7 && f->got.n_beats == 1 && str_eq_c(f->got.beats[0].node, "a") &&
              f->got.beats[0].beat == 17 && f->got.server == 0xfedcba9876543210);
    cr_assert_not(read_answer(&f->a, redis_read_renewal,
                              "*5\r\n$4\r\ndone\r\n*0\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n$0\r\n\r\n",
                              &f->got));
    cr_assert_not(read_answer(&f->a, redis_read_renewal, "*2\r\n$4\r\ndone\r\n*0\r\n", &f->got));
}

TEST_WITH(redis_replies, a_claim_has_nine_items, reply)
{
    static const char text[] = "*9\r\n$4\r\ndone\r\n$1\r\na\r\n$2\r\n12\r\n$1\r\n3\r\n"
                               "$1\r\n0\r\n$2\r\n11\r\n$1\r\n7\r\n:4\r\n$2\r\n99\r\n";

    cr_assert(read_answer(&f->a, redis_read_claim, text, &f->got));
    cr_assert(str_eq_c(f->got.owner, "a") && f->got.epoch == 12 && f->got.beat == 3 &&
              !f->got.whole);
    cr_assert(f->got.base == 11 && f->got.version == 7 && f->got.n_logs == 4 &&
              f->got.doubt_ms == 99);
    cr_assert_not(read_answer(&f->a, redis_read_claim,
                              "*5\r\n$4\r\ndone\r\n$1\r\na\r\n$2\r\n12\r\n$1\r\n3\r\n$1\r\n0\r\n",
                              &f->got));
}

TEST_WITH(redis_replies, a_log_that_is_longer_than_it_says_is_refused, reply)
{
    cr_assert(read_answer(&f->a, redis_read_log,
                          "*4\r\n$4\r\ndone\r\n:3\r\n:5\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n", &f->got));
    cr_assert(f->got.first == 3 && f->got.next == 5 && f->got.n_texts == 2);
    cr_assert_not(read_answer(&f->a, redis_read_log,
                              "*4\r\n$4\r\ndone\r\n:4\r\n:5\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n",
                              &f->got));
    cr_assert_not(read_answer(&f->a, redis_read_log,
                              "*4\r\n$4\r\ndone\r\n:3\r\n:5\r\n*1\r\n$-1\r\n", &f->got));
}

TEST_WITH(redis_replies, lengths_come_in_fours, reply)
{
    cr_assert(read_answer(&f->a, redis_read_lengths,
                          "*3\r\n$4\r\ndone\r\n*4\r\n$1\r\ns\r\n$1\r\n3\r\n:5\r\n:1\r\n$1\r\nf\r\n",
                          &f->got));
    cr_assert(f->got.n_texts == 1 && str_eq_c(f->got.texts[0], "s"));
    cr_assert(f->got.logs[0].first == 3 && f->got.logs[0].next == 5 && f->got.logs[0].complete);
    cr_assert_not(read_answer(&f->a, redis_read_lengths,
                              "*3\r\n$4\r\ndone\r\n*3\r\n$1\r\ns\r\n$1\r\n3\r\n:5\r\n$1\r\nf\r\n",
                              &f->got));
    cr_assert_not(read_answer(&f->a, redis_read_lengths,
                              "*3\r\n$4\r\ndone\r\n*4\r\n$1\r\ns\r\n:5\r\n:3\r\n:0\r\n$1\r\nf\r\n",
                              &f->got));
}

TEST_WITH(redis_replies, other_forms_are_refused, reply)
{
    static const char *const texts[] = {"+OK\r\n",
                                        "*0\r\n",
                                        "*1\r\n$5\r\nmaybe\r\n",
                                        "*1\r\n$4\r\ndone\r\n",
                                        "*2\r\n$4\r\ndone\r\n:1\r\n",
                                        "*2\r\n$4\r\ndone\r\n*1\r\n*1\r\n:1\r\n"};
    static const redis_reader readers[] = {redis_read_claim, redis_read_refusals, redis_read_log,
                                           redis_read_renewal};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (size_t k = 0; k < sizeof(readers) / sizeof(readers[0]); k++)
            cr_assert_not(read_answer(&f->a, readers[k], texts[i], &f->got), "%s", texts[i]);
}

TEST_WITH(redis_replies, an_entry_is_a_name_and_a_hash, reply)
{
    struct store_entry entry;

    redis_read_entry(
        &f->a,
        resp_read(&f->a, STR("*2\r\n$9\r\nplace:{7}\r\n*6\r\n$5\r\nowner\r\n$1\r\na\r\n"
                             "$5\r\nwhole\r\n$1\r\n1\r\n$4\r\nbeat\r\n$1\r\n9\r\n")),
        &entry);
    cr_assert(str_eq_c(entry.key, "place:7") && str_eq_c(entry.owner, "a"));
    cr_assert(entry.whole && entry.beat == 9 && entry.epoch == 0 && entry.value.len == 0);
    cr_assert_not(entry.vacant);
    redis_read_entry(
        &f->a,
        resp_read(&f->a, STR("*2\r\n$9\r\nplace:{7}\r\n*4\r\n$5\r\nepoch\r\n$1\r\n8\r\n"
                             "$6\r\nvacant\r\n$1\r\n8\r\n")),
        &entry);
    cr_assert(entry.vacant, "released under this epoch");
    redis_read_entry(&f->a, resp_read(&f->a, STR("*0\r\n")), &entry);
    cr_assert(entry.key.len == 0 && entry.owner.len == 0);
}
