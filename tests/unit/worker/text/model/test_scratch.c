/*
 * A thread's scratch keeps nothing of long texts, and its memory is counted meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "testing.h"
#include "worker/text/model/suffix_text.h"
#include "worker/text/request/chat.h"

enum { LONG = 5 << 20 };

struct kit {
    struct model *m;
    struct model_scratch *s;
    atomic_size_t sum;
    struct json messages[3], list;
    struct json_member fields[6];
    struct chat chat;
    char *text;
};

static void say(struct kit *k, uint32_t i, const char *role, struct str content)
{
    struct json_member *m = &k->fields[2 * i];

    m[0] = (struct json_member){json_make_string(STR("role")), json_make_string(str_cstr(role))};
    m[1] = (struct json_member){json_make_string(STR("content")), json_make_string(content)};
    k->messages[i] = (struct json){.kind = JSON_OBJECT, .n = 2, .members = m};
}

/* Makes a chat whose last message is long. */
static void kit_init(struct kit *k)
{
    struct model_options o = {0};
    struct err e;

    memset(k, 0, sizeof(*k));
    cr_assert_eq(model_load(&o, &k->m, &e), 0, "%s", e.text);
    k->s = model_scratch_new(k->m);
    model_scratch_count(k->s, &k->sum);
    k->text = mem_alloc(LONG);
    memset(k->text, '!', LONG);
    say(k, 0, "user", STR("hello"));
    say(k, 1, "assistant", STR("hi"));
    say(k, 2, "user", str_of(k->text, LONG));
    k->list = (struct json){.kind = JSON_ARRAY, .n = 3, .items = k->messages};
    k->chat.messages = &k->list;
}

static void expect_at_rest(struct kit *k)
{
    const struct model_scratch *s = k->s;

    cr_expect_eq(atomic_load(&k->sum), 0);
    cr_expect_eq(s->arena.held_bytes, 0);
    cr_expect_eq(s->arena.sum, &k->sum, "the next rendering counts, too");
    cr_expect_leq(s->a.cap, MODEL_SCRATCH_KEEP);
    cr_expect_leq(s->b.cap, MODEL_SCRATCH_KEEP);
    cr_expect_leq(s->full.cap, MODEL_SCRATCH_KEEP);
    cr_expect_leq(s->ids.cap * sizeof(*s->ids.at), MODEL_SCRATCH_KEEP);
}

static void kit_done(struct kit *k)
{
    model_scratch_free(k->s);
    model_free(k->m);
    free(k->text);
}

TEST(scratch, a_long_prompt_leaves_nothing)
{
    struct token_vec ids = {0};
    struct kit k;
    struct err e;

    kit_init(&k);
    cr_assert_eq(model_prompt(k.m, k.s, &k.chat, &ids, &e), 0, "%s", e.text);
    cr_assert_geq(ids.n, LONG / 16);
    expect_at_rest(&k);
    vec_done(&ids);
    kit_done(&k);
}

TEST(scratch, a_prompt_beyond_the_context_leaves_nothing)
{
    struct token_vec ids = {0};
    struct kit k;
    struct err e;

    kit_init(&k);
    model_scratch_limit(k.s, 400);
    cr_assert_eq(model_prompt(k.m, k.s, &k.chat, &ids, &e), -1);
    cr_assert_eq(e.kind, ERR_CONTEXT_LENGTH);
    expect_at_rest(&k);
    kit_done(&k);
}

/* With an audit, which renders the whole chat. */
TEST(scratch, a_long_suffix_leaves_nothing)
{
    struct model_suffix x;
    struct kit k;
    struct err e;

    kit_init(&k);
    model_scratch_audit(k.s, true);
    cr_assert_eq(model_suffix(k.m, k.s, &k.chat, 2, &(struct model_tail){0}, &x, &e), 0, "%s",
                 e.text);
    cr_assert_eq(x.audit, MODEL_AUDIT_SAME);
    expect_at_rest(&k);
    vec_done(&x.ids);
    kit_done(&k);
}

TEST(scratch, a_canonical_text_leaves_nothing)
{
    struct buf text = {0};
    struct kit k;
    struct err e;

    kit_init(&k);
    cr_assert_eq(model_canonical_text(k.m, k.s, &k.chat, &text, &e), 0, "%s", e.text);
    cr_assert_geq(text.len, LONG);
    expect_at_rest(&k);
    buf_done(&text);
    kit_done(&k);
}

TEST(scratch, what_a_rendering_holds_counts)
{
    struct suffix_text x;
    struct kit k;
    struct err e;

    kit_init(&k);
    cr_assert_eq(suffix_text(k.s, &k.chat, 2, (struct suffix_turn){0}, &x, &e), 0, "%s", e.text);
    cr_expect_geq(atomic_load(&k.sum), LONG, "the text behind the answer");
    cr_expect_eq(atomic_load(&k.sum), k.s->arena.held_bytes);
    scratch_release(k.s);
    expect_at_rest(&k);
    kit_done(&k);
}
