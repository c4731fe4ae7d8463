/* A walk that begins at the end of an earlier one (forest_walk_begin_known) has the same result as
 * one from the root. Two sessions get the same requests; only one of them knows what was read
 * before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/store.h"

enum { READINGS = 512, MESSAGES = 64, TEXT = 96 };

/* One request as it was read: its messages, and which request read each message first. */
struct heard {
    char said[MESSAGES][TEXT];
    uint64_t by[MESSAGES];
    uint32_t n;
};

struct rig {
    struct kit knows, walks;
    struct heard heard[READINGS];
    size_t n;
};

static void begin(struct rig *r, const char *options)
{
    kit_init(&r->knows, options);
    kit_init(&r->walks, options);
    r->n = 0;
}

/* Checks that both sessions have the same records. */
static void end(struct rig *r)
{
    cr_assert_eq(r->knows.n_journal, r->walks.n_journal);
    for (size_t i = 0; i < r->knows.n_journal; i++)
        cr_assert(str_eq(buf_str(&r->knows.journal[i]), buf_str(&r->walks.journal[i])), "%zu", i);
    kit_done(&r->knows);
    kit_done(&r->walks);
}

/* Returns the earlier request with the longest common start. The reader continues from it. */
static const struct heard *longest(const struct rig *r, const struct heard *h, uint32_t *ret_same)
{
    const struct heard *best = NULL;

    *ret_same = 0;
    for (size_t i = r->n; i-- > 0;) {
        const struct heard *o = &r->heard[i];
        uint32_t same = 0;

        while (same < o->n && same < h->n && strcmp(o->said[same], h->said[same]) == 0)
            same++;
        if (same > *ret_same) {
            *ret_same = same;
            best = o;
        }
    }
    return best;
}

/* Reads a request: known_body_stretches of the earlier request and of its own messages. */
static void read_heard(struct rig *r, struct heard *h, struct chat_known *ret)
{
    uint32_t same;
    const struct heard *base = longest(r, h, &same);

    for (uint32_t i = 0; i < h->n; i++)
        h->by[i] = i < same ? base->by[i] : r->n + 1;
    *ret = (struct chat_known){0};
    for (uint32_t i = 0; i < h->n; i++) {
        if (i > 0 && h->by[i] == h->by[i - 1]) {
            ret->at[ret->n - 1].end = i + 1;
            continue;
        }
        if (ret->n == CHAT_STRETCHES) {
            ret->from = ret->at[0].end;
            memmove(&ret->at[0], &ret->at[1], --ret->n * sizeof(ret->at[0]));
        }
        ret->at[ret->n++] = (struct chat_stretch){h->by[i], i + 1};
    }
    r->heard[r->n++] = *h;
}

/* Returns the number of messages that the next walk skips. */
static uint32_t left_out(struct kit *k, const char *messages)
{
    const struct json *list = kit_json(k, messages);
    struct env_key key = {0};
    struct prompt_env *g = forest_env(&k->s->forest, &key);
    struct chat_known known = k->known;
    struct walk w = {0};

    known.messages = list;
    if (g)
        forest_walk_begin_known(&k->s->forest, g, list, &known, &w);
    return w.n_matched;
}

/* Sends the request to both sessions, and answers both. Returns the number of skipped messages. */
static uint32_t turn(struct rig *r, struct heard *h, const char *answer)
{
    struct session_plan *one, *two;
    struct buf b = {0};
    uint32_t out;

    read_heard(r, h, &r->knows.known);
    buf_puts(&b, "[");
    for (uint32_t i = 0; i < h->n; i++)
        buf_printf(&b, "%s%s", i ? "," : "", h->said[i]);
    buf_puts(&b, "]");
    buf_add_c(&b, 0);
    out = left_out(&r->knows, b.p);
    one = kit_ask(&r->knows, b.p, NULL);
    two = kit_ask(&r->walks, b.p, NULL);
    buf_done(&b);
    cr_assert_eq(one != NULL, two != NULL, "%s / %s", r->knows.err.text, r->walks.err.text);
    if (!one) {
        cr_assert_str_eq(r->knows.err.text, r->walks.err.text);
        return out;
    }
    cr_assert_eq(one->cause, two->cause);
    cr_assert(str_eq(session_plan_parent(one), session_plan_parent(two)));
    cr_assert(str_eq(one->diff_field, two->diff_field));
    cr_assert_eq(one->prompt.n, two->prompt.n);
    cr_assert_eq(kit_answer(&r->knows, one, answer, false),
                 kit_answer(&r->walks, two, answer, false));
    return out;
}

static void say(struct heard *h, const char *role, const char *text)
{
    cr_assert_lt(h->n, MESSAGES);
    (void)snprintf(h->said[h->n++], TEXT, "{\"role\":\"%s\",\"content\":\"%s\"}", role, text);
}

/* Expects the stored messages of the last walk to be the first n of the request. */
static void expect_walked(const struct rig *r, const struct heard *h, uint32_t n)
{
    struct arena a = {0};
    const struct json *all = session_walked_messages(r->knows.s, r->n, &a);
    struct buf b = {0};

    cr_expect_null(session_walked_messages(r->knows.s, r->n + 1, &a));
    cr_assert_eq(all ? all->n : 0, n);
    for (uint32_t i = 0; i < n; i++) {
        b.len = 0;
        json_write(&b, &all->items[i]);
        cr_expect(str_eq(buf_str(&b), str_cstr(h->said[i])), "message %u", i);
    }
    buf_done(&b);
    arena_done(&a);
}

/* --- what is left out --- */

TEST(known_walk, begins_where_the_last_one_ended)
{
    struct rig r;
    struct heard h = {.n = 0};

    begin(&r, NULL);
    for (unsigned i = 0; i < 20; i++) {
        char text[32];

        (void)snprintf(text, sizeof(text), "question %u", i);
        say(&h, "user", text);
        /* all but the last question, its answer, and this question */
        cr_expect_eq(turn(&r, &h, "sure"), i < 2 ? 0 : 2 * i - 2, "turn %u", i);
        expect_walked(&r, &h, 2 * i);
        say(&h, "assistant", "sure");
    }
    end(&r);
}

TEST(known_walk, of_agents_that_take_turns_each_has_its_own)
{
    struct rig r;
    struct heard all[WALK_ENDS] = {{.n = 0}};
    uint32_t out = 0;

    begin(&r, NULL);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned k = 0; k < WALK_ENDS; k++) {
            char text[32];

            (void)snprintf(text, sizeof(text), "agent %u asks %u", k, i);
            say(&all[k], "user", text);
            out = turn(&r, &all[k], "sure");
            say(&all[k], "assistant", "sure");
        }
    cr_expect_eq(out, 8);
    end(&r);
}

/* A sibling with exactly the client's text was sampled meanwhile, so the earlier echo is no longer
 * the match. */
TEST(known_walk, is_begun_anew_when_a_node_gets_another_child)
{
    struct rig r;
    struct heard h = {.n = 0}, first;

    begin(&r, NULL);
    say(&h, "user", "hello");
    first = h;
    cr_expect_eq(turn(&r, &h, " sure "), 0);
    say(&h, "assistant", "sure"); /* trimmed: an echo */
    say(&h, "user", "and?");
    cr_expect_eq(turn(&r, &h, "yes"), 0);
    say(&h, "assistant", "yes");
    say(&h, "user", "more");
    (void)turn(&r, &first, "sure"); /* exactly this text */
    cr_expect_eq(turn(&r, &h, "yes"), 0);
    end(&r);
}

/* A message of a client was sampled meanwhile, and now is the match for others. */
TEST(known_walk, is_begun_anew_when_a_node_becomes_an_answer)
{
    struct rig r;
    struct heard h = {.n = 0}, first, brought;

    begin(&r, NULL);
    say(&h, "user", "hello");
    first = brought = h;
    say(&brought, "assistant", "sure");
    say(&brought, "user", "what?");
    (void)turn(&r, &brought, "well");
    (void)turn(&r, &first, " sure");
    say(&h, "assistant", "sure "); /* an echo of that one, */
    say(&h, "user", "and?");
    (void)turn(&r, &h, "yes");
    say(&h, "assistant", "yes");
    say(&h, "user", "more");
    (void)turn(&r, &first, "sure"); /* and of this one now */
    cr_expect_eq(turn(&r, &h, "yes"), 0);
    end(&r);
}

/* --- whatever is asked --- */

static const char *const answers[] = {"sure", " sure", "sure ", "no", "", "yes\n"};

/* Continues with an answer as it was, as clients send it back, or with a different one; or returns
 * to an earlier request. */
static void go_on(const struct rig *r, struct heard *h)
{
    static const char *const sent[] = {"sure", "no", "yes", " sure", "sure ", "maybe"};
    static const char *const asked[] = {"and?", "why?", "go on"};

    if (r->n > 0 && rand() % 4 == 0)
        *h = r->heard[(size_t)rand() % r->n];
    if (h->n > 40)
        h->n = (uint32_t)(rand() % 6);
    if (h->n > 0 && rand() % 8 > 0)
        say(h, "assistant", sent[(size_t)rand() % ARRAY_LEN(sent)]);
    if (h->n == 0 || rand() % 8 > 0)
        say(h, "user", asked[(size_t)rand() % ARRAY_LEN(asked)]);
}

static void play(const char *options, unsigned seed)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    struct heard h = {.n = 0};
    uint32_t out = 0;

    srand(seed);
    begin(r, options);
    for (unsigned i = 0; i < 250; i++) {
        go_on(r, &h);
        out += turn(r, &h, answers[(size_t)rand() % ARRAY_LEN(answers)]) > 0;
    }
    cr_expect_gt(out, 20, "of 250 walks %u began behind the root", out);
    end(r);
    free(r);
}

TEST(known_walk, comes_to_the_same_whatever_is_asked)
{
    static const char *const options[] = {
        NULL, "{\"history\":\"chains\"}",
        "{\"history\":\"chains\",\"rollback_last_assistant\":true}", "{\"history\":\"timelines\"}"};

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        for (unsigned seed = 1; seed <= 8; seed++)
            play(options[i], seed);
}
