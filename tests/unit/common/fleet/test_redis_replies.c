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

TEST(redis_replies, refusals_have_a_number_a_verdict_and_the_next_record)
{
    struct arena a = {0};
    struct store_answer got;

    cr_assert(read_answer(&a, redis_read_refusals,
                          "*2\r\n$4\r\ndone\r\n*2\r\n*4\r\n:1\r\n$5\r\nshort\r\n:7\r\n$1\r\n0\r\n"
                          "*4\r\n:3\r\n$6\r\nfenced\r\n:0\r\n$2\r\n17\r\n",
                          &got));
    cr_assert_eq(got.verdict, STORE_DONE);
    cr_assert_eq(got.n_refused, 2);
    cr_assert_eq(got.refused[0].i, 1);
    cr_assert_eq(got.refused[0].verdict, STORE_SHORT);
    cr_assert_eq(got.refused[0].next, 7);
    cr_assert_eq(got.refused[1].verdict, STORE_FENCED);
    cr_assert_eq(got.refused[1].base, 17);
    cr_assert(read_answer(&a, redis_read_refusals, "*2\r\n$6\r\nfenced\r\n$2\r\n18\r\n", &got));
    cr_assert_eq(got.base, 18);
    arena_done(&a);
}

TEST(redis_replies, a_renewal_has_the_beats_of_all_nodes)
{
    struct arena a = {0};
    struct store_answer got;

    cr_assert(read_answer(&a, redis_read_renewal,
                          "*5\r\n$4\r\ndone\r\n*0\r\n$1\r\n7\r\n*2\r\n$1\r\na\r\n$2\r\n17\r\n"
                          "$16\r\nfedcba9876543210\r\n",
                          &got));
    cr_assert(got.edition == 7 && got.n_beats == 1 && str_eq_c(got.beats[0].node, "a") &&
              got.beats[0].beat == 17 && got.server == 0xfedcba9876543210);
    cr_assert_not(read_answer(&a, redis_read_renewal,
                              "*5\r\n$4\r\ndone\r\n*0\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n$0\r\n\r\n",
                              &got));
    cr_assert_not(read_answer(&a, redis_read_renewal, "*2\r\n$4\r\ndone\r\n*0\r\n", &got));
    arena_done(&a);
}

TEST(redis_replies, a_claim_has_nine_items)
{
    static const char text[] = "*9\r\n$4\r\ndone\r\n$1\r\na\r\n$2\r\n12\r\n$1\r\n3\r\n"
                               "$1\r\n0\r\n$2\r\n11\r\n$1\r\n7\r\n:4\r\n$2\r\n99\r\n";
    struct arena a = {0};
    struct store_answer got;

    cr_assert(read_answer(&a, redis_read_claim, text, &got));
    cr_assert(str_eq_c(got.owner, "a") && got.epoch == 12 && got.beat == 3 && !got.whole);
    cr_assert(got.base == 11 && got.version == 7 && got.n_logs == 4 && got.doubt_ms == 99);
    cr_assert_not(read_answer(&a, redis_read_claim,
                              "*5\r\n$4\r\ndone\r\n$1\r\na\r\n$2\r\n12\r\n$1\r\n3\r\n$1\r\n0\r\n",
                              &got));
    arena_done(&a);
}

TEST(redis_replies, a_log_that_is_longer_than_it_says_is_refused)
{
    struct arena a = {0};
    struct store_answer got;

    cr_assert(read_answer(&a, redis_read_log,
                          "*4\r\n$4\r\ndone\r\n:3\r\n:5\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n", &got));
    cr_assert(got.first == 3 && got.next == 5 && got.n_texts == 2);
    cr_assert_not(read_answer(
        &a, redis_read_log, "*4\r\n$4\r\ndone\r\n:4\r\n:5\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n", &got));
    cr_assert_not(
        read_answer(&a, redis_read_log, "*4\r\n$4\r\ndone\r\n:3\r\n:5\r\n*1\r\n$-1\r\n", &got));
    arena_done(&a);
}

TEST(redis_replies, lengths_come_in_fours)
{
    struct arena a = {0};
    struct store_answer got;

    cr_assert(read_answer(&a, redis_read_lengths,
                          "*3\r\n$4\r\ndone\r\n*4\r\n$1\r\ns\r\n$1\r\n3\r\n:5\r\n:1\r\n$1\r\nf\r\n",
                          &got));
    cr_assert(got.n_texts == 1 && str_eq_c(got.texts[0], "s"));
    cr_assert(got.logs[0].first == 3 && got.logs[0].next == 5 && got.logs[0].complete);
    cr_assert_not(read_answer(&a, redis_read_lengths,
                              "*3\r\n$4\r\ndone\r\n*3\r\n$1\r\ns\r\n$1\r\n3\r\n:5\r\n$1\r\nf\r\n",
                              &got));
    cr_assert_not(read_answer(&a, redis_read_lengths,
                              "*3\r\n$4\r\ndone\r\n*4\r\n$1\r\ns\r\n:5\r\n:3\r\n:0\r\n$1\r\nf\r\n",
                              &got));
    arena_done(&a);
}

TEST(redis_replies, other_forms_are_refused)
{
    static const char *const texts[] = {"+OK\r\n",
                                        "*0\r\n",
                                        "*1\r\n$5\r\nmaybe\r\n",
                                        "*1\r\n$4\r\ndone\r\n",
                                        "*2\r\n$4\r\ndone\r\n:1\r\n",
                                        "*2\r\n$4\r\ndone\r\n*1\r\n*1\r\n:1\r\n"};
    static const redis_reader readers[] = {redis_read_claim, redis_read_refusals, redis_read_log,
                                           redis_read_renewal};
    struct arena a = {0};
    struct store_answer got;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (size_t k = 0; k < sizeof(readers) / sizeof(readers[0]); k++)
            cr_assert_not(read_answer(&a, readers[k], texts[i], &got), "%s", texts[i]);
    arena_done(&a);
}

TEST(redis_replies, an_entry_is_a_name_and_a_hash)
{
    struct arena a = {0};
    struct store_entry entry;

    redis_read_entry(&a,
                     resp_read(&a, STR("*2\r\n$9\r\nplace:{7}\r\n*6\r\n$5\r\nowner\r\n$1\r\na\r\n"
                                       "$5\r\nwhole\r\n$1\r\n1\r\n$4\r\nbeat\r\n$1\r\n9\r\n")),
                     &entry);
    cr_assert(str_eq_c(entry.key, "place:7") && str_eq_c(entry.owner, "a"));
    cr_assert(entry.whole && entry.beat == 9 && entry.epoch == 0 && entry.value.len == 0);
    cr_assert_not(entry.vacant);
    redis_read_entry(&a,
                     resp_read(&a, STR("*2\r\n$9\r\nplace:{7}\r\n*4\r\n$5\r\nepoch\r\n$1\r\n8\r\n"
                                       "$6\r\nvacant\r\n$1\r\n8\r\n")),
                     &entry);
    cr_assert(entry.vacant, "released under this epoch");
    redis_read_entry(&a, resp_read(&a, STR("*0\r\n")), &entry);
    cr_assert(entry.key.len == 0 && entry.owner.len == 0);
    arena_done(&a);
}
