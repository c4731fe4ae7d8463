#include <stdio.h>

#include "kit.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"

#define HELLO "[{\"role\":\"user\",\"content\":\"hello\"}]"
#define MORE                                                                                  \
    "[{\"role\":\"user\",\"content\":\"hello\"},{\"role\":\"assistant\",\"content\":\"hi\"}," \
    "{\"role\":\"user\",\"content\":\"more\"}]"

#define OTHER "[{\"role\":\"user\",\"content\":\"good morning\"}]"
#define OTHER_MORE                                            \
    "[{\"role\":\"user\",\"content\":\"good "                 \
    "morning\"},{\"role\":\"assistant\",\"content\":\"hi\"}," \
    "{\"role\":\"user\",\"content\":\"more\"}]"

/* Commits "hi" whose last id before the stop is `id`. */
static void answer_with(struct kit *k, int32_t id)
{
    struct session_plan *p = kit_ask(k, HELLO, NULL);
    int32_t ids[] = {'h', id, 257};
    float lp[] = {0, 0, 0};
    struct session_answer a = {.ids = {ids, 3},
                               .logprobs = lp,
                               .finish_reason = STR("stop"),
                               .message =
                                   kit_json(k, "{\"role\":\"assistant\",\"content\":\"hi\"}"),
                               .response_id = STR("r")};
    struct buf record = {0};

    cr_assert(p);
    cr_assert_eq(session_commit_record(p, &a, 1, ++k->now, &record, &k->err), 0);
    cr_assert_eq(session_apply(k->store, buf_str(&record), &k->err), 0);
    buf_done(&record);
}

TEST(origin, an_id_beyond_the_vocabulary_does_not_leave)
{
    static const int32_t beyond[] = {269, 300, INT32_MAX, -1, INT32_MIN};

    for (size_t i = 0; i < ARRAY_LEN(beyond); i++) {
        struct kit k;
        char text[32];

        kit_init(&k, NULL);
        answer_with(&k, beyond[i]);
        (void)snprintf(text, sizeof(text), " is %d;", beyond[i]);
        cr_assert_null(kit_ask(&k, MORE, NULL));
        cr_expect_eq(k.err.kind, ERR_FOREIGN);
        cr_expect(strstr(k.err.text, text), "%s", k.err.text);
        kit_done(&k);
    }
}

TEST_WITH(origin, the_last_id_of_the_vocabulary_does, kit)
{
    answer_with(f, 268);
    cr_expect_eq(kit_turn(f, MORE, "x"), CAUSE_EXTENDED);
}

/* Ids in other branches do not affect this conversation. */
TEST_WITH(origin, an_id_beyond_the_vocabulary_hurts_its_own_branch_only, kit)
{
    cr_expect_eq(kit_turn(f, OTHER, "hi"), CAUSE_NEW_ROOT);
    answer_with(f, 300);
    cr_expect_eq(kit_turn(f, OTHER_MORE, "x"), CAUSE_EXTENDED);
    cr_assert_null(kit_ask(f, MORE, NULL));
}

/* Reads a first record with a fingerprint, and with a truncated one. */
TEST_WITH(origin, a_beginning_is_read_with_a_whole_fingerprint, kit)
{
    struct buf record = {0};
    bool ended;
    size_t whole, fingerprint = 3 * sizeof(uint64_t);

    for (size_t less = 0; less <= fingerprint; less++) {
        char id[16];
        int rc;

        (void)snprintf(id, sizeof(id), "w0-x%zu", less);
        buf_clear(&record);
        cr_assert_eq(session_create_record(f->store, str_cstr(id), NULL, 1, &record, &f->err), 0);
        whole = record.len;
        rc = session_apply(f->store, str_of(record.p, whole - less), &f->err);
        cr_expect_eq(rc, less == 0 ? 0 : -1, "%zu", less);
        cr_expect_eq(session_find(f->store, str_cstr(id), &ended) != NULL, rc == 0);
    }
    buf_done(&record);
}
