#include "common/serve/shared_answer.h"

#include "testing.h"

static struct shared_answer *take(struct shared_answers *all, const char *text)
{
    struct buf b = {0};
    struct shared_answer *a;

    buf_puts(&b, text);
    a = shared_answer_add(all, &b);
    cr_assert(b.p == NULL && b.len == 0, "it was taken over");
    cr_assert(str_eq_c(shared_answer_bytes(a), text));
    return a;
}

TEST(shared_answer, equal_ones_are_one_until_the_last_share_goes)
{
    struct shared_answers all = {0};
    struct shared_answer *a = take(&all, "one answer"), *b = take(&all, "another"),
                         *c = take(&all, "one answer");

    cr_assert(a == c && a != b);
    cr_assert_eq(all.bytes, strlen("one answer") + strlen("another"));
    shared_answer_drop(&all, a);
    cr_assert(str_eq_c(shared_answer_bytes(c), "one answer"));
    shared_answer_drop(&all, c);
    cr_assert_eq(all.bytes, strlen("another"));
    c = take(&all, "one answer");
    shared_answer_drop(&all, b);
    shared_answer_drop(&all, c);
    shared_answer_drop(&all, NULL);
    cr_assert(all.bytes == 0 && all.by_hash.n == 0 && map_bytes(&all.by_hash) == 0);
}
