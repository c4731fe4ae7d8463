#include <stdio.h>

#include "ahead_kit.h"
#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

enum { ANSWERS = 600, REWARDS = 100, STEP_BYTES = 64 << 10 };

/* Makes a session of many branches, some with a reward. */
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

/* A reader of a state. */
struct reader {
    struct kit *k;
    void (*meanwhile)(struct kit *k, size_t step); /* called between two pieces */
    struct buf *out;
    size_t n, had, most; /* most: number of pieces after which the reader leaves */
};

static int flow(void *ctx, struct err *e)
{
    struct reader *r = ctx;

    cr_assert_leq(r->out->len - r->had, STEP_BYTES, "step %zu", r->n);
    if (r->n == r->most)
        return err_set(e, ERR_CANCELLED, "enough");
    if (r->meanwhile)
        r->meanwhile(r->k, r->n);
    r->n++;
    r->had = r->out->len;
    return 0;
}

/* Reads the state, with `meanwhile` between two pieces. Returns the number of pieces. */
static size_t tell(struct kit *k, bool records, void (*meanwhile)(struct kit *k, size_t step),
                   struct buf *ret)
{
    struct reader r = {.k = k, .meanwhile = meanwhile, .out = ret, .most = SIZE_MAX};
    struct session_telling t = {
        .session = k->s, .records = records, .out = json_out_to(ret), .flow = flow, .ctx = &r};

    cr_assert_eq(session_tell(&t, &k->err), 0);
    return r.n;
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
    if (step % 64 == 0)
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
        struct reader r = {.k = &k, .out = &out, .most = steps};
        struct session_telling t = {
            .session = k.s, .out = json_out_to(&out), .flow = flow, .ctx = &r};

        cr_assert_eq(session_tell(&t, &k.err), -1);
        cr_expect_eq(r.n, steps);
        buf_done(&out);
    }
    kit_done(&k);
}

/* --- one long call --- */

enum { LONG_PROMPT = 40000, LONG_ANSWER = 20000 };

static void evict_all(struct kit *k, size_t step)
{
    (void)step;
    (void)session_evict(k->store, 0, SIZE_MAX);
}

static char *letters(struct kit *k, size_t n)
{
    char *text = arena_alloc(&k->arena, n + 1);

    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + i % 26);
    text[n] = 0;
    return text;
}

/* Makes two turns with long texts, the second after the first. */
static void long_calls(struct kit *k)
{
    char *ask, *answer;

    ahead_init(k, NULL);
    k->part_bytes = 1 << 20;
    ask = letters(k, LONG_PROMPT);
    answer = letters(k, LONG_ANSWER);
    cr_assert_geq(
        kit_turn(k, arena_printf(&k->arena, "[{\"role\":\"user\",\"content\":\"%s\"}]", ask).p,
                 answer),
        0);
    cr_assert_geq(kit_turn(k,
                           arena_printf(&k->arena,
                                        "[{\"role\":\"user\",\"content\":\"%s\"},"
                                        "{\"role\":\"assistant\",\"content\":\"%s\"},"
                                        "{\"role\":\"user\",\"content\":\"%s\"}]",
                                        ask, answer, ask)
                               .p,
                           "short"),
                  0);
}

static void same_list(const struct json *told, const int32_t *ids, size_t n)
{
    cr_assert_eq(told->n, n);
    for (size_t i = 0; i < n; i++) {
        int64_t id;

        cr_assert_eq(json_to_i64(&told->items[i], &id), 0);
        cr_assert_eq(id, ids[i], "id %zu", i);
    }
}

/* Evicted after each step. Steps are short, and the state is complete. */
TEST(telling, a_long_call_is_told_in_short_steps)
{
    struct kit k;
    struct buf told = {0};
    const struct json *state;
    size_t n;

    long_calls(&k);
    session_pin(k.s);
    n = tell(&k, true, evict_all, &told);
    cr_assert_gt(n, (3 * LONG_PROMPT + 2 * LONG_ANSWER) / 4096);
    state = kit_json(&k, arena_cstr(&k.arena, buf_str(&told)));
    for (size_t i = 0; i < 2; i++) {
        const struct checkpoint *t = k.s->forest.checkpoints.at[i];
        const struct json *record = json_at(json_get(state, "records"), i);
        int32_t *path = arena_calloc(&k.arena, t->total, sizeof(*path));

        cr_assert_eq(ahead_recall(&k, t), 0);
        checkpoint_copy(t, path);
        same_list(json_get(record, "prompt_ids"), path, checkpoint_start(t));
        same_list(json_get(json_at(json_get(record, "answers"), 0), "output_ids"),
                  path + checkpoint_start(t), t->n);
        cr_assert_eq(json_get(json_get(record, "request"), "messages")->n, i == 0 ? 1 : 3);
        for (uint32_t from = 0; from + 7 <= t->total; from += 997) {
            int32_t some[7];

            checkpoint_copy_part(t, from, 7, some);
            cr_assert_arr_eq(some, path + from, sizeof(some));
        }
        if (i == 1)
            same_list(json_get(state, "accumulated_token_ids"), path, t->total);
    }
    session_unpin(k.store, k.s);
    buf_done(&told);
    kit_done(&k);
}
