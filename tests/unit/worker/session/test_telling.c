#include <stdio.h>

#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/session.h"
#include "worker/session/telling.h"

enum { ANSWERS = 600, REWARDS = 100, STEP_BYTES = 64 << 10 };

/* A session of so many branches, some of them with a reward. */
static void many(struct kit *k)
{
    char messages[80], text[16];

    kit_init(k, NULL);
    for (int i = 0; i < ANSWERS; i++) {
        (void)snprintf(messages, sizeof(messages), "[{\"role\":\"user\",\"content\":\"q%d\"}]", i);
        (void)snprintf(text, sizeof(text), "a%d", i);
        cr_assert_geq(kit_turn(k, messages, text), 0);
    }
    for (int i = 0; i < REWARDS; i++) {
        struct buf record = {0};

        (void)snprintf(text, sizeof(text), "r%d", i);
        cr_assert_eq(session_reward_record(k->s, kit_json(k, "{\"reward\":1}"), str_cstr(text), 5,
                                           &record, &k->err),
                     0, "%s", k->err.text);
        cr_assert_eq(session_apply(k->store, buf_str(&record), &k->err), 0);
        buf_done(&record);
    }
}

static void whole(struct kit *k, bool records, struct buf *ret)
{
    cr_assert_eq(session_write_state(k->s, records, ret, &k->err), 0);
}

/* Tells it, with `meanwhile` between two steps. How many steps that takes. */
static size_t tell(struct kit *k, bool records, void (*meanwhile)(struct kit *k, size_t step),
                   struct buf *ret)
{
    struct session_telling t = {.session = k->s, .records = records, .out = json_out_to(ret)};
    size_t n = 0, had = 0;
    int rc;

    do {
        had = ret->len;
        rc = session_tell(&t, &k->err);
        cr_assert_leq(ret->len - had, STEP_BYTES, "step %zu", n);
        if (meanwhile && rc == 0)
            meanwhile(k, n);
        n++;
    } while (rc == 0);
    cr_assert_eq(rc, 1);
    session_tell_done(&t);
    return n;
}

TEST(telling, a_session_of_many_branches_is_told_in_short_steps)
{
    struct kit k;

    many(&k);
    for (int records = 0; records < 2; records++) {
        struct buf at_once = {0}, in_steps = {0};
        size_t n;

        whole(&k, records, &at_once);
        n = tell(&k, records, NULL, &in_steps);
        cr_assert(str_eq(buf_str(&at_once), buf_str(&in_steps)));
        cr_assert_geq(n, at_once.len / STEP_BYTES + 20, "%zu", n);
        buf_done(&at_once);
        buf_done(&in_steps);
    }
    kit_done(&k);
}

static void another_turn(struct kit *k, size_t step)
{
    char messages[80];

    (void)snprintf(messages, sizeof(messages), "[{\"role\":\"user\",\"content\":\"later %zu\"}]",
                   step);
    if (step % 8 == 0)
        cr_assert_geq(kit_turn(k, messages, "b"), 0);
}

TEST(telling, what_comes_meanwhile_is_not_told)
{
    struct buf was = {0}, told = {0};
    struct kit k;

    many(&k);
    whole(&k, true, &was);
    (void)tell(&k, true, another_turn, &told);
    cr_assert(str_eq(buf_str(&was), buf_str(&told)));
    buf_done(&was);
    buf_done(&told);
    kit_done(&k);
}

TEST(telling, may_end_before_it_is_through)
{
    struct kit k;

    many(&k);
    for (size_t steps = 0; steps < 60; steps += 3) {
        struct buf out = {0};
        struct session_telling t = {.session = k.s, .out = json_out_to(&out)};

        for (size_t i = 0; i < steps; i++)
            cr_assert_eq(session_tell(&t, &k.err), 0);
        session_tell_done(&t);
        buf_done(&out);
    }
    kit_done(&k);
}
