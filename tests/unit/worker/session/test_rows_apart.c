/* Blocks of rows in records of their own (--fleet-rows off): the second copy of a session lacks
 * them, however short they are, and nothing else. */
#include <string.h>

#include "ahead_kit.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/session.h"
#include "worker/session/store/store.h"

enum { ANSWERS = 2, IDS = 50, LONG = 20000 };

/* Plays a turn whose answers have rows of both kinds. */
static void play_turn(struct kit *k, const char *rows, size_t bytes, struct session_answer *ret)
{
    struct session_plan *p = kit_ask(k, "[{\"role\":\"user\",\"content\":\"q\"}]", NULL);

    for (uint32_t i = 0; i < ANSWERS; i++) {
        ret[i] = ahead_answer(k, i, IDS, 1);
        ret[i].rows[ROWS_EXPERTS] = (struct token_rows){str_of(rows, bytes), 0, 2, 1, 1};
        ret[i].rows[ROWS_INDEXER] = (struct token_rows){str_of(rows, bytes / 2 + i), 0, 1, 1, 1};
    }
    session_make_messages(p, ret, ANSWERS);
    (void)ahead_parts(k, p, ret, ANSWERS, LONG);
    ahead_commit(k, p, ret, ANSWERS);
}

/* Applies the records again, without rows. */
static struct session *replay_without_rows(struct kit *k, struct session_store **ret_store)
{
    struct session_defaults d;
    size_t left_out = 0;
    bool ended;

    session_defaults_init(&d);
    *ret_store = session_store_new(NULL, &d);
    for (size_t i = 0; i < k->n_journal; i++)
        if (session_record_is_rows(buf_str(&k->journal[i])))
            left_out++;
        else
            cr_assert_eq(session_apply(*ret_store, buf_str(&k->journal[i]), &k->err), 0, "%s",
                         k->err.text);
    cr_assert_eq(left_out, 2 * ANSWERS);
    return session_find(*ret_store, STR("w0-1"), &ended);
}

TEST(rows_apart, may_be_absent)
{
    static const size_t sizes[] = {40, LONG};
    static char rows[LONG];

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct session_answer answers[ANSWERS];
        struct session_store *again;
        struct buf state = {0};
        struct session *s;
        struct kit k;

        memset(rows, 'r', sizeof(rows));
        ahead_init(&k, NULL);
        k.store->defaults.rows_apart = true;
        play_turn(&k, rows, sizes[i], answers);
        ahead_same(k.s, answers, ANSWERS, 0);
        ahead_replays(&k);

        s = replay_without_rows(&k, &again);
        for (uint32_t j = 0; j < ANSWERS; j++) {
            memset(answers[j].rows, 0, sizeof(answers[j].rows));
            cr_assert(s->forest.checkpoints.at[j]->rows[ROWS_EXPERTS].lost);
            cr_assert(s->forest.checkpoints.at[j]->rows[ROWS_INDEXER].lost);
        }
        ahead_same(s, answers, ANSWERS, 0);
        cr_assert_eq(s->lost_records, 0);
        ahead_state(s, &state);
        cr_assert_neq(str_find(buf_str(&state), STR("(--fleet-rows off)"), 0), SIZE_MAX);
        buf_done(&state);
        session_store_free(again);
        kit_done(&k);
    }
}
