/* fuzz: rg_worker */
/* Bodies of one conversation, read with the help of what is known of those before and read whole,
 * are the same requests: value, messages, error, used bytes of the arena. Input: for each body
 * three bytes and how many pieces follow, one byte each; it keeps so much of the body before, adds
 * the pieces, and is read under that budget. */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "worker/dialect/known_body.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 1 << 16, PIECES = 31, BUDGET_UNIT = 128 };

static const char *const pieces[] = {
    "{\"messages\":[",
    "{\"role\":\"user\",\"content\":\"",
    "{\"role\":\"assistant\",\"content\":\"",
    "\"}",
    "},",
    ",",
    "]}",
    "],",
    "}",
    "]",
    "[",
    "{",
    "\"",
    ":",
    "\"messages\":[",
    "\"mess\\u0061ges\":",
    "\"model\":\"m\",",
    "\"stream\":true,",
    "\\n",
    "\\ud83d\\ude00",
    "\\ud800",
    "\xc3\xa9",
    "\xe2\x82",
    " ",
    "\n",
    "1",
    "-2.5e3",
    "null",
    "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\\t\"}]",
    "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":null}",
    "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}",
    ",{\"role\":\"user\",\"content\":\"x\"}",
    ",{\"role\":\"user\",\"content\":\"\\u00e9\",\"role\":\"system\",\"name\":\"n\"}",
    "\"role\":\"user\",",
    "\"content\":",
    "],\"temperature\":0.5}",
    "a long text that has no escapes and is longer than what is looked at in one go of the reader",
};

struct reading {
    struct arena arena;
    struct json_trace trace;
    struct known_part part;
    const struct json *body;
    struct chat_request req;
    struct err err;
    int rc;
};

/* With the first n items of k, or whole. */
static void read_body(struct reading *r, struct str body, const struct known_body *k, size_t n,
                      size_t max_bytes)
{
    struct dialect_past past = {.known = NULL};

    *r = (struct reading){.trace.key = STR("messages"), .arena.max_bytes = max_bytes};
    if (n > 0)
        known_body_state(k, n, &r->part);
    r->rc = json_parse_traced(&r->arena, str_sub(body, r->part.state.bytes, SIZE_MAX),
                              n > 0 ? &r->part.state : NULL, &r->trace, &r->body, &r->err);
    if (r->rc != 0 || !json_is(r->body, JSON_OBJECT))
        return;
    past.known = n > 0 && !r->trace.twice ? &r->part.messages : NULL;
    r->rc = dialect_chat.parse(&r->arena, r->body, NULL, &past, &r->req, &r->err);
}

static void same_value(const struct json *a, const struct json *b)
{
    struct buf one = {0}, two = {0};

    json_write(&one, a);
    json_write(&two, b);
    CHECK(str_eq(buf_str(&one), buf_str(&two)));
    buf_done(&one);
    buf_done(&two);
}

static void same(const struct reading *whole, const struct reading *known)
{
    CHECK(whole->rc == known->rc && whole->err.kind == known->err.kind);
    CHECK(strcmp(whole->err.text, known->err.text) == 0);
    CHECK(strcmp(whole->err.param, known->err.param) == 0);
    if (whole->rc != 0)
        return;
    CHECK(whole->arena.used_bytes == known->arena.used_bytes);
    same_value(whole->body, known->body);
    CHECK(whole->body->flags == known->body->flags);
    if (json_is(whole->body, JSON_OBJECT))
        same_value(whole->req.chat->messages, known->req.chat->messages);
}

static void done(struct reading *r)
{
    json_trace_done(&r->trace);
    arena_done(&r->arena);
}

static uint64_t readings;

/* What goes on from a known beginning, besides: the body's hash, who read which of its items, and
 * how many of them have calls. */
static void check_known(const struct known_body *k, struct str body, uint64_t reading)
{
    size_t n = known_body_items(k);
    uint64_t whole[2], on[2];
    unsigned with_calls = 0;
    struct known_part part;
    struct chat_known told;

    known_body_state(k, n, &part);
    CHECK(part.hashed.bytes <= part.state.bytes);
    str_hash128(body, whole);
    hash128_end(&part.hashed, body, on);
    CHECK(whole[0] == on[0] && whole[1] == on[1]);
    known_body_stretches(k, n, &told);
    CHECK(told.n > 0 && told.n <= CHAT_STRETCHES && told.at[told.n - 1].end == n);
    CHECK(told.at[told.n - 1].reading == reading);
    for (uint32_t i = 0, from = told.from; i < told.n; from = told.at[i++].end)
        CHECK(from < told.at[i].end && told.at[i].reading != 0);
    for (size_t i = 0; i < n && with_calls < 2; i++)
        with_calls += json_get(&part.messages.made[i], "tool_calls") != NULL;
    CHECK(part.messages.with_calls == with_calls);
}

static void drop_stored(void *stored)
{
    arena_done(stored);
    free(stored);
}

/* Returns k, or a copy that shares the messages which the session would have after this request. */
static struct known_body *share(struct known_body *k, const struct reading *r)
{
    struct arena *stored = mem_zalloc(sizeof(*stored));
    struct known_body *ret =
        known_body_share(k, json_copy(stored, r->req.chat->messages), drop_stored, stored);

    known_body_release(k);
    return ret;
}

/* Reads it both ways; *k is what is known afterwards. */
static void compare(struct known_body **k, struct str body, size_t max_bytes)
{
    size_t n = *k ? known_body_match(*k, &dialect_chat, body) : 0;
    struct known_kept kept = {0};
    struct known_reader by = {.dialect = &dialect_chat, .number = ++readings};
    struct reading whole, known;

    read_body(&whole, body, NULL, 0, max_bytes);
    read_body(&known, body, *k, n, max_bytes);
    same(&whole, &known);
    if (known.rc == 0 && json_is(known.body, JSON_OBJECT) && known.req.n_shown == 0)
        kept = known_body_keep(n > 0 ? *k : NULL, n, &by, body, &known.trace);
    if (kept.body) {
        check_known(kept.body, body, by.number);
        if (known.rc == 0) /* what was taken from it stays as it is */
            same(&whole, &known);
        CHECK(known_body_bytes(kept.body) > 0);
        if (by.number % 2)
            kept.body = share(kept.body, &known);
        check_known(kept.body, body, by.number);
        if (kept.body != *k) {
            arena_hold(&known.arena, known_body_release, *k);
            *k = kept.body;
        } else {
            known_body_release(kept.body);
        }
    }
    done(&whole);
    done(&known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct known_body *k = NULL;
    struct buf body = {0};

    while (size >= 4) {
        size_t keep = data[0] | (size_t)data[1] << 8, n = data[3] & PIECES;
        size_t max_bytes = (size_t)data[2] * BUDGET_UNIT; /* 0: none */

        data += 4;
        size -= 4;
        body.len = MIN_OF(body.len, keep);
        for (; n > 0 && size > 0; n--, data++, size--)
            buf_puts(&body, pieces[*data % ARRAY_LEN(pieces)]);
        if (body.len > BODY_MAX)
            break;
        compare(&k, buf_str(&body), max_bytes);
    }
    known_body_release(k);
    buf_done(&body);
    return 0;
}
