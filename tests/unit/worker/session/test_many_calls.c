/* Answers with very many tool calls: a helper prepares them for their record, and compares equal
 * ones. */

#include "ahead_kit.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/store/store.h"

enum { PART = 16 << 10, IDS = 100 };

static const char *const ASK = "[{\"role\":\"user\",\"content\":\"a\"}]";

/* Makes n answers with `calls` calls each. Every second answer has equal calls, except for their
 * ids. */
static struct session_answer *calls_of(struct kit *k, uint32_t n, unsigned calls)
{
    struct session_answer *all = arena_calloc(&k->arena, n, sizeof(*all));

    for (uint32_t i = 0; i < n; i++) {
        struct buf b = {0};

        buf_puts(&b, "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[");
        for (unsigned c = 0; c < calls; c++)
            buf_printf(
                &b,
                "%s{\"id\":\"call_%u_%u\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                "\"arguments\":\"{\\\"a\\\":%u}\"}}",
                c ? "," : "", i, c, c == calls - 1 && i % 2 ? i : c);
        buf_puts(&b, "]}");
        all[i] = ahead_answer(k, i, IDS, 1);
        all[i].message = kit_json(k, arena_str(&k->arena, buf_str(&b)).p);
        buf_done(&b);
    }
    return all;
}

/* Makes an answer's message with this number of bytes of text. */
static const struct json *text_of(struct kit *k, size_t bytes)
{
    struct buf b = {0};
    const struct json *ret;

    buf_puts(&b, "{\"role\":\"assistant\",\"content\":\"");
    for (size_t i = 0; i < bytes; i++)
        buf_puts(&b, "a");
    buf_puts(&b, "\"}");
    ret = kit_json(k, arena_str(&k->arena, buf_str(&b)).p);
    buf_done(&b);
    return ret;
}

/* With the same length of text, only answers with calls go to a helper. */
TEST(many_calls, many_calls_are_long)
{
    enum { ROOM = 128 << 10 };

    struct session_answer *calls, plain[8];
    struct kit k;

    ahead_init(&k, NULL);
    calls = calls_of(&k, 8, 40);
    for (uint32_t i = 0; i < ARRAY_LEN(plain); i++) {
        plain[i] = ahead_answer(&k, i, IDS, 1);
        plain[i].message = text_of(&k, json_text_bytes(calls[i].message, SIZE_MAX));
    }
    cr_assert_eq(session_long_messages(plain, ARRAY_LEN(plain), ROOM), 0);
    cr_assert_gt(session_long_messages(calls, 8, ROOM), 0, "of all answers together");
    cr_assert_eq(session_long_messages(calls, 1, ROOM), 0);
    kit_done(&k);
}

/* A helper finds the earlier equal answer. Both have one node, however they were made, and the
 * state is the same. */
TEST(many_calls, equal_calls_of_one_call_are_compared_once)
{
    enum { N = 6 };

    struct buf states[2] = {{0}, {0}};

    for (int made = 0; made < 2; made++) {
        struct session_answer *answers;
        struct session_plan *p;
        struct kit k;

        ahead_init(&k, NULL);
        answers = calls_of(&k, N, 50);
        p = kit_ask(&k, ASK, NULL);
        if (made) {
            const struct ready_answers *all;

            session_make_messages(p, answers, N);
            all = CONTAINER_OF(p, struct plan, pub)->made.answers;
            for (uint32_t i = 0; i < N; i++)
                cr_assert_eq(all->at[i]->nodes[0]->recent,
                             i > 0 && i % 2 == 0 ? all->at[0]->nodes[0] : NULL);
        }
        (void)ahead_parts(&k, p, answers, N, PART);
        k.now = 5000;
        ahead_commit(&k, p, answers, N);
        for (uint32_t i = 0; i < N; i++) {
            struct checkpoint *const *at = k.s->forest.checkpoints.at;

            cr_assert_eq(at[i]->node == at[0]->node, i % 2 == 0);
            cr_assert(json_equal(at[i]->message, answers[i].message));
        }
        ahead_state(k.s, &states[made]);
        ahead_replays(&k);
        kit_done(&k);
    }
    cr_assert(str_eq(buf_str(&states[0]), buf_str(&states[1])));
    buf_done(&states[0]);
    buf_done(&states[1]);
}
