/* A history of very many messages is processed in steps, between which the session continues. */
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

enum { MESSAGES = 5001 };

/* Writes alternating messages of users and assistants, the last a user's, then `more`. */
static void write_history(struct buf *b, const char *more)
{
    buf_clear(b);
    buf_puts(b, "[");
    for (int i = 0; i < MESSAGES; i++)
        buf_printf(b, "%s{\"role\":\"%s\",\"content\":\"%d\"}", i ? "," : "",
                   i % 2 ? "assistant" : "user", i);
    buf_printf(b, "%s]", more);
    buf_add_c(b, 0);
}

static struct session_call_input input_of(struct kit *k, struct chat *chat, const char *messages)
{
    *chat = (struct chat){.messages = kit_json(k, messages)};
    return (struct session_call_input){
        .chat = chat, .now_ms = ++k->now, .context_length = k->context, .body_hash = {1, 7}};
}

struct rig {
    struct kit k;
    struct buf history;
    struct chat chat;
    struct session_call_input in;
    struct kit_prepare q;
};

/* Leaves a call within its walk. */
static void rig_init(struct rig *r, const char *options)
{
    *r = (struct rig){0};
    kit_init(&r->k, options);
    r->k.context = 1 << 20;
    r->k.part_bytes = 64 << 10;
    write_history(&r->history, "");
    cr_assert_geq(kit_turn(&r->k, r->history.p, "A"), 0, "%s", r->k.err.text);
    write_history(&r->history, ",{\"role\":\"assistant\",\"content\":\"A\"},"
                               "{\"role\":\"user\",\"content\":\"more\"}");
    r->in = input_of(&r->k, &r->chat, r->history.p);
    cr_assert_eq(kit_prepare(&r->q, &r->k, &r->in), 1);
    cr_assert(r->q.p);
}

static void rig_done(struct rig *r)
{
    buf_done(&r->history);
    kit_done(&r->k);
}

TEST(long_walk, goes_on_where_it_was)
{
    struct rig r;
    int steps = 1;

    rig_init(&r, NULL);
    cr_assert_geq(kit_turn(&r.k, "[{\"role\":\"user\",\"content\":\"another\"}]", "B"), 0);
    for (; kit_prepare_step(&r.q) == 1; steps++) {
    }
    cr_assert_eq(r.q.rc, 0, "%s", r.k.err.text);
    cr_expect_geq(steps, MESSAGES / 2048);
    cr_expect_eq(r.q.p->cause, CAUSE_EXTENDED);
    cr_expect(str_eq_c(session_plan_parent(r.q.p), "r0"));
    session_release(r.k.store, r.q.p);
    rig_done(&r);
}

TEST(long_walk, ends_with_its_session)
{
    struct rig r;

    rig_init(&r, NULL);
    cr_assert_eq(kit_end(&r.k, SESSION_END_DELETE), 0);
    cr_expect_eq(kit_prepare_step(&r.q), -1);
    cr_expect_eq(r.k.err.kind, ERR_SESSION_ENDED);
    cr_expect_null(r.q.p);
    rig_done(&r);
}

TEST(long_walk, is_given_up_in_the_middle)
{
    struct rig r;

    rig_init(&r, NULL);
    kit_prepare_cancel(&r.q);
    cr_expect_null(r.q.p);
    cr_expect_eq(session_inflight(r.k.s), 0);
    rig_done(&r);
}

/* The state at its beginning is not read again: its own turn counts by then. */
TEST(long_walk, has_its_turn_from_its_beginning_on)
{
    struct rig r;

    rig_init(&r, "{\"max_turns\":2,\"after_complete\":\"refuse\"}");
    cr_assert_eq(kit_end(&r.k, SESSION_END_COMPLETE), 0);
    while (kit_prepare_step(&r.q) == 1)
        ;
    cr_expect_eq(r.q.rc, 0, "%s", r.k.err.text);
    session_release(r.k.store, r.q.p);
    rig_done(&r);
}

/* A message that is longer than a step's share is one step. */
TEST(long_walk, passes_messages_of_any_length)
{
    enum { LONG = 3 << 20 };

    struct rig r = {0};
    char *text = calloc(LONG + 1, 1);

    memset(text, 'x', LONG);
    kit_init(&r.k, NULL);
    r.k.context = 16 << 20;
    r.k.part_bytes = 64 << 20;
    buf_printf(&r.history,
               "[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\",\"content\":\"b\"},"
               "{\"role\":\"user\",\"content\":\"%s\"}]",
               text, text);
    buf_add_c(&r.history, 0);
    cr_assert_geq(kit_turn(&r.k, r.history.p, "A"), 0, "%s", r.k.err.text);
    r.in = input_of(&r.k, &r.chat, r.history.p);
    cr_assert_eq(kit_prepare(&r.q, &r.k, &r.in), 1);
    for (int steps = 1; r.q.rc == 1 && steps < 10; steps++)
        (void)kit_prepare_step(&r.q);
    cr_assert_eq(r.q.rc, 0);
    cr_expect_eq(r.q.p->cause, CAUSE_RESAMPLED);
    session_release(r.k.store, r.q.p);
    free(text);
    rig_done(&r);
}

/* Returns the steps of a walk of n answers with one call each, and text next to the call. */
static int steps_of(const char *args, const char *const say[2], int n)
{
    struct rig r = {0};
    int steps = 1;

    kit_init(&r.k, NULL);
    r.k.context = 16 << 20;
    r.k.part_bytes = 64 << 20;
    for (int again = 0; again < 2; again++) {
        buf_clear(&r.history);
        buf_puts(&r.history, "[{\"role\":\"user\",\"content\":\"a\"}");
        for (int i = 0; i < n; i++)
            buf_printf(
                &r.history,
                ",{\"role\":\"assistant\",\"content\":\"%s\",\"tool_calls\":[{\"id\":\"c%d\","
                "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"%s{}\"}}]},"
                "{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"%d\"}",
                say[again], i, again ? args : "", i, i);
        buf_puts(&r.history, "]");
        buf_add_c(&r.history, 0);
        if (again == 0)
            cr_assert_geq(kit_turn(&r.k, r.history.p, "A"), 0, "%s", r.k.err.text);
    }
    r.in = input_of(&r.k, &r.chat, r.history.p);
    (void)kit_prepare(&r.q, &r.k, &r.in);
    for (; r.q.rc == 1 && steps < 1000; steps++)
        (void)kit_prepare_step(&r.q);
    cr_assert_eq(r.q.rc, 0);
    cr_expect_eq(r.q.p->cause, CAUSE_RESAMPLED, "it is the same history");
    session_release(r.k.store, r.q.p);
    rig_done(&r);
    return steps;
}

/* Blanks next to calls are read, so they count for the step. */
TEST(long_walk, counts_blanks_and_arguments_that_are_read)
{
    enum { LONG = 60 << 10, ANSWERS = 100 };

    char *blanks = mem_zalloc(LONG + 1);

    memset(blanks, ' ', LONG);
    cr_expect_eq(steps_of("", (const char *[]){"", ""}, ANSWERS), 1);
    cr_expect_gt(steps_of("", (const char *[]){"", blanks}, ANSWERS), 2);
    cr_expect_gt(steps_of(blanks, (const char *[]){"", ""}, ANSWERS), ANSWERS / 2);
    free(blanks);
}
