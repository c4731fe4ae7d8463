#include "worker/dialect/known_body.h"

#include <string.h>

#include "common/base/block_hash.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/writers.h"

/* --- where a known body ends for the next one --- */

enum { SAID = 24, SAID_MAX = 64 };

/* A body and its known beginning. */
struct said {
    struct buf body;
    size_t ends[SAID_MAX]; /* of its items */
    size_t n;
    struct known_body *known;
};

/* Appends messages of different lengths, up to item `n`, and closes the body. */
static void say_more(struct said *s, size_t n)
{
    s->body.len = s->n ? s->ends[s->n - 1] : 0;
    if (s->n == 0)
        buf_puts(&s->body, "{\"model\":\"m\",\"messages\":[");
    for (; s->n < n; s->n++) {
        buf_printf(&s->body, "%s{\"role\":\"user\",\"content\":\"%zu\\n", s->n ? "," : "", s->n);
        for (size_t k = 0; k < s->n * 37 % 400; k++)
            buf_add_c(&s->body, (char)('a' + k % 26));
        buf_puts(&s->body, "\"}");
        s->ends[s->n] = s->body.len;
    }
    buf_puts(&s->body, "],\"stream\":true}");
}

/* Makes the body known, as the reading of that number, with what was known before. */
static void learn(struct said *s, uint64_t number)
{
    static atomic_size_t sum;
    struct known_reader by = {&dialect_chat, &sum, number};
    struct json_trace trace = {.key = STR("messages")};
    struct arena a = {0};
    size_t n = s->known ? known_body_match(s->known, &dialect_chat, buf_str(&s->body)) : 0;
    struct known_part part = {0};
    struct known_kept kept;
    const struct json *v;
    struct err e;

    if (n)
        known_body_state(s->known, n, &part);
    cr_assert_eq(json_parse_traced(&a, str_sub(buf_str(&s->body), part.state.bytes, SIZE_MAX),
                                   n ? &part.state : NULL, &trace, &v, &e),
                 0);
    kept = known_body_keep(s->known, n, &by, buf_str(&s->body), &trace);
    cr_assert_not_null(kept.body);
    known_body_release(s->known);
    s->known = kept.body;
    json_trace_done(&trace);
    arena_done(&a);
}

static void done_said(struct said *s)
{
    known_body_release(s->known);
    buf_done(&s->body);
}

/* Returns how many items end in the blocks before the byte `at`. */
static size_t items_before_block_of(const struct said *s, size_t at)
{
    size_t n = 0;

    while (n < s->n && s->ends[n] <= at / BLOCK_BYTES * BLOCK_BYTES)
        n++;
    return n;
}

static void edits_end_the_known_part(struct said *s)
{
    size_t known = s->ends[s->n - 1];

    cr_expect_eq(known_body_match(s->known, &dialect_chat, buf_str(&s->body)), s->n);
    for (size_t at = 0; at < s->body.len; at++) {
        size_t n;

        s->body.p[at] ^= 1;
        n = known_body_match(s->known, &dialect_chat, buf_str(&s->body));
        s->body.p[at] ^= 1;
        cr_assert_eq(n, at < known ? items_before_block_of(s, at) : s->n, "byte %zu", at);
    }
    for (size_t len = 0; len <= known; len++)
        cr_assert_eq(known_body_match(s->known, &dialect_chat, str_of(s->body.p, len)),
                     len < known ? items_before_block_of(s, len) : s->n, "%zu bytes", len);
    cr_expect_eq(known_body_match(s->known, &dialect_messages, buf_str(&s->body)), 0);
}

TEST(known_body, an_edit_ends_the_known_part_before_its_block)
{
    static const size_t counts[] = {1, 2, SAID, SAID + 1, SAID + 2, SAID_MAX};
    struct said s = {.n = 0};

    for (size_t i = 0; i < ARRAY_LEN(counts); i++) { /* the first is shorter than a block */
        say_more(&s, counts[i]);
        learn(&s, i + 1);
        edits_end_the_known_part(&s);
    }
    done_said(&s);
}

TEST(known_body, a_body_that_was_cut_is_known_to_its_end)
{
    struct said s = {.n = 0};

    say_more(&s, SAID_MAX);
    learn(&s, 1);
    s.n = SAID_MAX - 3;
    s.body.p[s.ends[s.n - 1] - 3] = '!'; /* in the last message that stays */
    say_more(&s, s.n);
    learn(&s, 2);
    edits_end_the_known_part(&s);
    done_said(&s);
}

/* --- sharing with the session's messages --- */

static void count_release(void *held)
{
    ++*(int *)held;
}

/* Parses the stored messages that a session could have for those of the body. */
static const struct json *store(const struct said *s, struct arena *a, const char *last)
{
    struct buf b = {0};
    const struct json *v;
    struct err e;
    size_t from = strlen("{\"model\":\"m\",\"messages\":"), to = s->ends[s->n - 2];

    buf_add(&b, s->body.p + from, to - from);
    buf_printf(&b, ",%s]", last);
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&b)), &v, &e), 0, "%s", e.text);
    buf_done(&b);
    return v;
}

static void same_messages(const struct known_body *a, const struct known_body *b, size_t n)
{
    struct known_part one, two;
    struct buf x = {0}, y = {0};

    known_body_state(a, n, &one);
    known_body_state(b, n, &two);
    cr_assert_eq(one.messages.n, n);
    cr_assert_eq(two.messages.n, n);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(one.messages.made_bytes[i], two.messages.made_bytes[i]);
        json_write(&x, &one.messages.made[i]);
        json_write(&x, &one.state.items[i]);
        json_write(&y, &two.messages.made[i]);
        json_write(&y, &two.state.items[i]);
    }
    cr_assert(str_eq(buf_str(&x), buf_str(&y)));
    buf_done(&x);
    buf_done(&y);
}

TEST(known_body, shared_messages_are_those_of_the_session_where_they_are_the_same)
{
    static const char *const others[] = {"{\"role\":\"user\",\"content\":\"another\"}",
                                         "{\"role\":\"user\"}", "{\"content\":null}", "7"};
    struct said s = {.n = 0};

    say_more(&s, SAID);
    learn(&s, 1);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct arena a = {0};
        const struct json *stored = store(&s, &a, others[i]);
        struct known_body *shared;
        struct known_part part;
        int released = 0;

        shared = known_body_share(s.known, stored, count_release, &released);
        same_messages(s.known, shared, SAID);
        cr_expect_lt(known_body_bytes(shared), known_body_bytes(s.known));
        known_body_state(shared, SAID, &part);
        for (size_t k = 0; k + 1 < SAID; k++)
            cr_expect_eq(part.messages.made[k].members, stored->items[k].members, "%zu", k);
        cr_expect_neq(part.messages.made[SAID - 1].members, stored->items[SAID - 1].members);
        cr_expect_eq(known_body_match(shared, &dialect_chat, buf_str(&s.body)), SAID);
        cr_expect_eq(known_body_reading(shared), 1);
        cr_expect_eq(released, 0);
        known_body_release(shared);
        cr_expect_eq(released, 1);
        arena_done(&a);
    }
    done_said(&s);
}

/* What the session did not store yet is kept once, for the item and its message. */
TEST(known_body, new_items_share_with_their_messages)
{
    struct said s = {.n = 0};
    struct arena a = {0};
    struct json stored;
    struct known_body *shared;
    struct known_part part;
    int released = 0;

    say_more(&s, SAID);
    learn(&s, 1);
    stored = *store(&s, &a, "7");
    stored.n = SAID - 2;
    shared = known_body_share(s.known, &stored, count_release, &released);
    same_messages(s.known, shared, SAID);
    known_body_state(shared, SAID, &part);
    for (size_t k = 0; k < SAID; k++) {
        const struct json *made = &part.messages.made[k], *item = &part.state.items[k];

        cr_expect_eq(made->members, item->members, "%zu", k);
        cr_expect_eq(made->members == stored.items[k].members, k < SAID - 2, "%zu", k);
    }
    known_body_release(shared);
    arena_done(&a);
    done_said(&s);
}
