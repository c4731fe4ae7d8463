#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"
#define S(t) "{\"role\":\"system\",\"content\":\"" t "\"}"
#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"ls\"}}]"

TEST_WITH(tree, causes_say_why_a_call_stands_where_it_stands, kit)
{
    struct session_plan *p;

    cr_expect_eq(kit_turn(f, "[" S("s") "," U("q") "]", "a"), CAUSE_NEW_ROOT);
    cr_expect_eq(kit_turn(f, "[" S("s") "," U("q") "," A("a") "," U("r") "]", "b"), CAUSE_EXTENDED);
    cr_expect_eq(kit_turn(f, "[" S("other") "," U("q") "]", "c"), CAUSE_NEW_ROOT);
    cr_expect_eq(kit_turn(f, "[" S("s") "," U("q") "," A("a") "," U("x") "]", "d"),
                 CAUSE_HISTORY_REWRITTEN);
    cr_expect_eq(kit_turn(f, "[" S("s") "," U("q") "]", "e"), CAUSE_RESAMPLED);
    p = kit_ask(f, "[" S("s") "," U("q") "," A("no") "," U("r") "]", NULL);
    cr_assert(p);
    cr_expect_eq(p->cause, CAUSE_ASSISTANT_REWRITTEN);
    cr_expect_eq(p->diff_message, 2);
    cr_expect(str_eq_c(p->diff_field, "content"));
    cr_expect(str_eq_c(p->diff_request, "no"));
    session_release(f->store, p);
    p = kit_ask(f, "[" S("s") "," U("q") "," A("a") "," U("r") "]", TOOLS);
    cr_assert(p);
    cr_expect_eq(p->cause, CAUSE_TOOLS_CHANGED);
    cr_expect_eq(p->reused, 0);
    session_release(f->store, p);
    cr_expect_eq(kit_turn(f, "[" S("s") "," U("q") "]", "a"), CAUSE_RESAMPLED);
    cr_expect_eq(kit_count(f, "refreshed"), 1);
    cr_expect_eq(kit_count(f, "num_branches"), 4);
    cr_expect_eq(kit_count(f, "num_inflight_generations"), 0);
}

TEST_WITH(tree, tools_that_come_and_go_are_named_with_their_difference, kit)
{
    struct session_plan *p;

    cr_expect_geq(kit_turn(f, "[" U("q") "]", "a"), 0);
    p = kit_ask(f, "[" U("q") "," A("a") "," U("r") "]", TOOLS);
    cr_assert(p);
    cr_expect_eq(p->cause, CAUSE_TOOLS_CHANGED);
    cr_expect(str_eq_c(p->diff_field, "tools"));
    cr_expect(str_eq_c(p->diff_stored, ""));
    cr_expect(str_starts(p->diff_request, STR("[{\"type\"")));
    cr_expect_eq(kit_answer(f, p, "b", false), 0);
    /* Without tools again: the call attaches to the first answer. The second was given with tools.
     */
    p = kit_ask(f, "[" U("q") "," A("a") "," U("r") "," A("b") "," U("s") "]", NULL);
    cr_assert(p);
    cr_expect_eq(p->cause, CAUSE_TOOLS_CHANGED);
    cr_expect_gt(p->reused, 0);
    cr_expect_eq(p->diff_message, 2);
    cr_expect_eq(kit_answer(f, p, "c", false), 0);
    p = kit_ask(f, "[" U("q") "," A("a") "," U("r") "," A("b") "," U("s") "," A("c") "," U("t") "]",
                NULL);
    cr_assert(p);
    cr_expect_eq(p->cause, CAUSE_EXTENDED);
    session_release(f->store, p);
}

TEST(tree, the_same_answer_is_refreshed_unless_built_upon)
{
    for (int used = 0; used < 2; used++) {
        struct kit k;
        const struct json *nodes;

        kit_init(&k, NULL);
        cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
        if (used)
            cr_expect_geq(kit_turn(&k, "[" U("q") "," A("a") "," U("r") "]", "b"), 0);
        cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
        cr_expect_eq(kit_count(&k, "num_branches"), 1);
        cr_expect_eq(kit_count(&k, "num_calls"), used ? 3 : 2);
        nodes = json_get(json_get(kit_state(&k), "tree"), "nodes");
        cr_expect_eq(nodes->n, used ? 4 : 2);
        kit_done(&k);
    }
}

/* A message with trimmed white space is an echo, unless exactly that text was also sampled. A
 * strict session forks. */
TEST(tree, a_trimmed_answer_is_still_the_answer)
{
    for (int strict = 0; strict < 2; strict++) {
        struct kit k;

        kit_init(&k, strict ? "{\"message_matcher\":\"strict\"}" : NULL);
        cr_expect_geq(kit_turn(&k, "[" U("q") "]", " a "), 0);
        cr_expect_eq(kit_turn(&k, "[" U("q") "," A("a") "," U("r") "]", "b"),
                     strict ? CAUSE_ASSISTANT_REWRITTEN : CAUSE_EXTENDED);
        cr_expect_eq(kit_turn(&k, "[" U("q") "," A("a b") "," U("r") "]", "c"),
                     CAUSE_ASSISTANT_REWRITTEN);
        cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
        if (!strict) {
            cr_expect_eq(kit_count(&k, "num_branches"), 3);
            cr_expect_eq(kit_turn(&k, "[" U("q") "," A("a") "," U("s") "]", "d"), CAUSE_EXTENDED);
            cr_expect_eq(kit_turn(&k, "[" U("q") "," A(" a ") "," U("s") "]", "e"),
                         CAUSE_HISTORY_REWRITTEN);
            cr_expect_eq(kit_count(&k, "num_branches"), 4);
        }
        kit_done(&k);
    }
}

TEST_WITH(tree, an_answer_in_flight_keeps_its_ground, kit)
{
    struct session_plan *p;

    cr_expect_geq(kit_turn(f, "[" U("q") "]", "a"), 0);
    p = kit_ask(f, "[" U("q") "," A("a") "," U("r") "]", NULL);
    cr_expect_geq(kit_turn(f, "[" U("q") "]", "a"), 0); /* must not replace p's answer */
    cr_expect_eq(kit_answer(f, p, "b", false), 0);
    cr_expect_eq(kit_count(f, "num_branches"), 1);
}

TEST(tree, a_truncated_answer_can_be_refused)
{
    struct kit k;

    kit_init(&k, "{\"on_truncated\":\"refuse\"}");
    cr_expect_eq(kit_answer(&k, kit_ask(&k, "[" U("q") "]", NULL), "cut", true), 0);
    cr_expect_null(kit_ask(&k, "[" U("q") "," A("cut") "," U("r") "]", NULL));
    cr_expect_eq(k.err.kind, ERR_TRUNCATED);
    cr_expect_not(err_retry(&k.err));
    cr_expect_eq(kit_turn(&k, "[" U("q") "]", "whole"), CAUSE_RESAMPLED);
    cr_expect_eq(kit_count(&k, "num_inflight_generations"), 0);
    kit_done(&k);
}

TEST(tree, limits_are_kept)
{
    struct kit k;
    struct session_plan *p;

    kit_init(&k, "{\"max_nodes\":4,\"prompt_length\":30,\"response_length\":40}");
    k.max_tokens = 500;
    p = kit_ask(&k, "[" U("q") "]", NULL); /* 6 + 2 bytes, two marks, 11 of the generation prompt */
    cr_assert(p);
    cr_expect_eq(p->max_tokens, 70 - p->prompt.n);
    cr_expect_eq(kit_answer(&k, p, "a", false), 0);
    cr_expect_null(kit_ask(&k, "[" U("q") "," A("a") "," U("r") "," U("s") "]", NULL));
    cr_expect_eq(k.err.kind, ERR_MAX_NODES);
    p = kit_ask(&k, "[" U("a question that leaves no room at all for any answer of the model") "]",
                NULL);
    cr_assert(p);
    cr_expect(p->exhausted);
    cr_expect_eq(kit_answer(&k, p, "", false), 0);
    cr_expect_eq(kit_count(&k, "num_calls"), 2);
    cr_expect_eq(kit_count(&k, "num_branches"), 1);
    kit_done(&k);

    kit_init(&k, NULL);
    k.context = 10;
    cr_expect_null(kit_ask(&k, "[" U("too long") "]", NULL));
    cr_expect_eq(k.err.kind, ERR_CONTEXT_LENGTH);
    cr_expect(strstr(k.err.text, "maximum context length is 10 tokens"));
    cr_expect_null(kit_ask(&k, "[]", NULL));
    cr_expect_eq(k.err.kind, ERR_INVALID);
    kit_done(&k);
}

TEST_WITH(tree, many_siblings_share_their_prompt, kit)
{
    struct session_totals t;
    char text[9000];

    for (unsigned i = 0; i < 100; i++) {
        char answer[16];

        memset(text, 'x', sizeof(text));
        (void)snprintf(text, 40, "[{\"role\":\"user\",\"content\":\"");
        text[strlen(text)] = 'x';
        (void)snprintf(text + 8000, 40, "\"}]");
        (void)snprintf(answer, sizeof(answer), "a%u", i);
        cr_assert_geq(kit_turn(f, text, answer), 0);
    }
    session_store_totals(f->store, &t);
    cr_expect_lt(t.tokens, 8100 + 100 * 4);
    cr_expect_lt(t.bytes, 400000); /* a hundred separate prompts need twice that */
}

/* Makes a question of n bytes that ends with `last`. */
static char *long_question(size_t n, char last)
{
    const char head[] = "[{\"role\":\"user\",\"content\":\"", tail[] = "\"}]";
    char *text = mem_alloc(sizeof(head) + n + sizeof(tail));

    memcpy(text, head, sizeof(head));
    memset(text + sizeof(head) - 1, 'x', n);
    text[sizeof(head) - 2 + n] = last;
    memcpy(text + sizeof(head) - 1 + n, tail, sizeof(tail));
    return text;
}

/* The search whether other tools are the cause of a branch is limited to a megabyte of texts and
 * 4,096 messages, for all environments together. */
TEST(tree, other_tools_are_looked_for_within_bounds)
{
    static const struct {
        size_t bytes;
        unsigned others; /* number of newer environments in which the question ends differently */
        int cause;
    } rows[] = {
        {1000, 0, CAUSE_TOOLS_CHANGED},      {1000, 12, CAUSE_TOOLS_CHANGED},
        {900 << 10, 0, CAUSE_TOOLS_CHANGED}, {1100 << 10, 0, CAUSE_NEW_ROOT},
        {300 << 10, 2, CAUSE_TOOLS_CHANGED}, {300 << 10, 3, CAUSE_NEW_ROOT},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *known = long_question(rows[i].bytes, 'a'), *other = long_question(rows[i].bytes, 'b');
        struct kit k;
        struct session_plan *p;

        kit_init(&k, NULL);
        k.part_bytes = 1 << 20;
        cr_expect_eq(kit_turn(&k, known, "a"), CAUSE_NEW_ROOT, "row %zu", i);
        for (unsigned n = 0; n < rows[i].others; n++) {
            char tools[64];

            (void)snprintf(tools, sizeof(tools), "[{\"function\":{\"name\":\"f%u\"}}]", n);
            cr_expect_eq(kit_answer(&k, kit_ask(&k, other, tools), "a", false), 0);
        }
        p = kit_ask(&k, known, TOOLS);
        cr_assert(p);
        cr_expect_eq(p->cause, (enum session_cause)rows[i].cause, "row %zu", i);
        session_release(k.store, p);
        kit_done(&k);
        free(known);
        free(other);
    }
}

/* Counts the arena's bytes of a turn with short texts. What few turns have, and texts that repeat,
 * must not add to them. */
TEST_WITH(tree, a_turn_leaves_few_bytes, kit)
{
    enum { TURNS = 20, MOST = 1200 };

    struct buf messages = {0};
    size_t before = 0;

    f->part_bytes = 1 << 20;
    buf_puts(&messages, "[" U("q") "]");
    for (unsigned i = 0; i <= TURNS; i++) {
        f->body_hash = i;
        buf_add_c(&messages, 0);
        cr_assert_neq(kit_turn(f, messages.p, "a"), -1, "%s", f->err.text);
        messages.len -= 2; /* the NUL and the bracket */
        buf_puts(&messages, "," A("a") "," U("q") "]");
        if (i == 0)
            before = f->s->forest.arena.used_bytes;
    }
    cr_expect_leq((f->s->forest.arena.used_bytes - before) / TURNS, MOST, "%zu bytes a turn",
                  (f->s->forest.arena.used_bytes - before) / TURNS);
    buf_done(&messages);
}
