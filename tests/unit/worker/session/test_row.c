/* A row of a list has the number of the session's branches, and reads no answer. */
#include <stdlib.h>

#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"
#include "worker/session/store/store.h"

enum { TURNS = 400, DEEPEST = 6 };

/* Makes the row while the answers are unreadable. */
static const struct json *row_of(struct kit *k)
{
    struct checkpoint **at = k->s->forest.checkpoints.at;
    const struct json *row;
    struct buf text = {0};

    k->s->forest.checkpoints.at = NULL;
    session_write_row(k->s, &text);
    k->s->forest.checkpoints.at = at;
    buf_add_c(&text, '\0');
    row = kit_json(k, text.p);
    buf_done(&text);
    return row;
}

/* Compares with a count of all answers. */
static void check(struct kit *k, int turn)
{
    const struct json *row = row_of(k), *drift = json_get(row, "drift");
    int64_t branches = 0, audited = 0, differ = 0, told;

    for (size_t i = 0; i < k->s->forest.checkpoints.n; i++) {
        const struct checkpoint *t = k->s->forest.checkpoints.at[i];

        if (t->children > 0 || t->hidden || !session_keeps_pool(k->s, t))
            continue;
        branches++;
        audited += t->audit.done && t->audit.audited;
        differ += t->audit.count;
    }
    cr_assert_eq(json_to_i64(json_get(row, "branches"), &told), 0);
    cr_assert_eq(told, branches, "turn %d", turn);
    cr_assert_eq(json_is(drift, JSON_NULL), audited == 0, "turn %d", turn);
    if (audited > 0) {
        cr_assert_eq(json_to_i64(drift, &told), 0);
        cr_assert_eq(told, differ, "turn %d", turn);
    }
}

/* Plays a random turn with few different words, so that questions and answers repeat. A linear
 * session is continued, or asked its last question again. */
static void turn(struct kit *k)
{
    static const char *const said[] = {"A", "B"};
    bool linear = k->s->options.policy == &policy_linear;
    int words = linear ? 1 : 2, deep = rand() % DEEPEST;
    struct buf messages = {0};

    if (linear && k->s->head)
        deep = (int)k->s->head->depth - rand() % 2;
    else if (linear)
        deep = 0;
    buf_puts(&messages, "[{\"role\":\"user\",\"content\":\"q\"}");
    for (int i = 0; i < deep; i++)
        buf_printf(
            &messages,
            ",{\"role\":\"assistant\",\"content\":\"%s\"},{\"role\":\"user\",\"content\":\"q\"}",
            said[rand() % words]);
    buf_puts(&messages, "]");
    buf_add_c(&messages, '\0');
    cr_assert_geq(kit_turn(k, messages.p, said[rand() % words]), 0, "%s", k->err.text);
    buf_done(&messages);
}

static void audit(struct kit *k)
{
    struct checkpoint_audit found = {
        .done = true, .audited = rand() % 4 > 0, .count = (uint32_t)(rand() % 3)};
    size_t i = (size_t)rand() % k->s->forest.checkpoints.n;

    session_record_audit(k->s, k->s->forest.checkpoints.at[i], &found);
}

static void play(const char *options, int turns)
{
    struct kit k;

    kit_init(&k, options);
    for (int i = 0; i < turns; i++) {
        turn(&k);
        check(&k, i);
        if (i % 3 == 0)
            audit(&k);
        check(&k, i);
    }
    cr_assert(options || k.s->refreshed > 0, "the same answers came again");
    kit_done(&k);
}

TEST_WITH(row, says_that_answers_may_be_missing, kit)
{
    struct buf record = {0};

    cr_assert_null(json_get(row_of(f), "warnings"));
    session_doubt_record(session_id(f->s), 1000, 2000, ++f->now, &record);
    cr_assert_eq(session_apply(f->store, buf_str(&record), &f->err), 0, "%s", f->err.text);
    cr_assert_neq(str_find(json_string(json_at(json_get(row_of(f), "warnings"), 0)),
                           STR("may be missing"), 0),
                  SIZE_MAX);
    buf_done(&record);
}

TEST(row, counts_of_a_tree)
{
    srand(1);
    play(NULL, TURNS);
}

TEST(row, counts_of_a_linear_session)
{
    srand(2);
    play("{\"history\":\"linear\"}", TURNS / 4);
}

TEST(row, counts_of_chains)
{
    srand(3);
    play("{\"history\":\"chains\"}", TURNS);
}
