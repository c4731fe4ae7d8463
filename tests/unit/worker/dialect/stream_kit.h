/*
 * What the stream tests share: a scripted answer is fed into a dialect's writer in random pieces,
 * and the resulting SSE events are parsed. Header-only: each test file of a program includes it.
 */
#ifndef RG_DIALECT_STREAM_KIT_H
#define RG_DIALECT_STREAM_KIT_H

#include <stdio.h>

#include "common/codec/json.h"
#include "testing.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat_request.h"

enum { KIT_EVENTS_MAX = 4096 };

struct kit_event {
    struct str name; /* value of the event: line, or absent */
    const struct json *data;
    bool done; /* data: [DONE] */
};

struct kit {
    struct arena a;
    struct buf out;
    struct chat_request req;
    const struct json *body;
    struct dialect_writer *w;
    struct kit_event events[KIT_EVENTS_MAX];
    size_t n;
    uint32_t rng;
    bool keepalives;
};

static inline uint32_t kit_random(struct kit *k, uint32_t n)
{
    k->rng = k->rng * 1664525u + 1013904223u;
    return (k->rng >> 8) % n;
}

static inline const struct json *kit_json(struct kit *k, const char *text)
{
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(&k->a, arena_str(&k->a, str_cstr(text)), &v, &e), 0, "%s: %s", text,
                 e.text);
    return v;
}

static inline void kit_open(struct kit *k, const struct dialect *d, const char *body, uint32_t seed)
{
    struct err e = {0};

    *k = (struct kit){.rng = seed, .keepalives = true};
    k->body = kit_json(k, body);
    cr_assert_eq(d->parse(&k->a, k->body, NULL, NULL, &k->req, &e), 0, "%s", e.text);
    k->w = d->writer(&k->a, &k->req, k->body, &k->out);
}

static inline void kit_close(struct kit *k)
{
    buf_done(&k->out);
    arena_done(&k->a);
}

static inline void kit_head(struct kit *k)
{
    struct answer_head h = {STR("w0-1"), STR("ab12"), 1700000000, {.prompt_tokens = 7}, 0};

    k->w->sink->head(k->w, &h);
}

/* Feeds one kind of delta in random pieces, with occasional keepalives. */
static inline void kit_pieces(struct kit *k, struct str text,
                              void (*delta)(struct kit *k, struct str piece))
{
    for (size_t at = 0; at < text.len;) {
        struct str piece = str_sub(text, at, 1 + kit_random(k, 9));

        if (k->keepalives && kit_random(k, 5) == 0)
            k->w->sink->keepalive(k->w);
        delta(k, piece);
        at += piece.len;
    }
}

static inline void kit_text(struct kit *k, struct str piece)
{
    k->w->sink->text(k->w, 0, piece);
}

static inline void kit_thought(struct kit *k, struct str piece)
{
    k->w->sink->reasoning(k->w, 0, piece);
}

static inline void kit_args0(struct kit *k, struct str piece)
{
    k->w->sink->tool_args(k->w, 0, 0, piece);
}

static inline void kit_args1(struct kit *k, struct str piece)
{
    k->w->sink->tool_args(k->w, 0, 1, piece);
}

#define KIT_THOUGHT "hm, \"think\""
#define KIT_TEXT "\n\nI look.\n"
#define KIT_ARGS0 "{\"path\" :\"a\"}"
#define KIT_ARGS1 "{}"
#define KIT_MESSAGE                                                                                \
    "{\"role\":\"assistant\",\"content\":\"\\n\\nI look.\\n\",\"reasoning_content\":\"hm, "        \
    "\\\"think\\\"\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":{"      \
    "\"name\":\"read\",\"arguments\":\"{\\\"path\\\" :\\\"a\\\"}\"}},{\"id\":\"call_2\",\"type\":" \
    "\"function\",\"function\":{\"name\":\"list\",\"arguments\":\"{}\"}}]}"

/* Plays a thought, a text and, with `calls`, two calls. */
static inline void kit_play(struct kit *k, bool calls)
{
    const struct answer_sink *s = k->w->sink;

    kit_head(k);
    kit_pieces(k, STR(KIT_THOUGHT), kit_thought);
    kit_pieces(k, STR(KIT_TEXT), kit_text);
    if (!calls)
        return;
    s->tool_begin(k->w, 0, 0, STR("call_1"), STR("read"));
    kit_pieces(k, STR(KIT_ARGS0), kit_args0);
    s->tool_end(k->w, 0, 0);
    s->tool_begin(k->w, 0, 1, STR("call_2"), STR("list"));
    kit_pieces(k, STR(KIT_ARGS1), kit_args1);
    s->tool_end(k->w, 0, 1);
}

static inline void kit_finish(struct kit *k, const char *reason, const char *message)
{
    struct finished_answer answer = {.finish_reason = str_cstr(reason),
                                     .message = kit_json(k, message)};
    struct call_usage usage = {7, 3, 5, 2};

    k->w->sink->finish(k->w, &answer, 1, &usage);
}

static inline void kit_fail(struct kit *k)
{
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE, "no engine");
    k->w->sink->failed(k->w, &e);
}

/* Splits the output into events. Every byte must belong to one. */
static inline void kit_read(struct kit *k)
{
    struct str rest = arena_str(&k->a, buf_str(&k->out));
    struct str event = STR("event: ");
    struct str data = STR("data: ");

    while (rest.len) {
        struct kit_event *ev = &k->events[k->n++];
        size_t end = str_find(rest, STR("\n\n"), 0);
        struct str frame = str_sub(rest, 0, end);
        size_t nl;

        cr_assert_lt(k->n, KIT_EVENTS_MAX);
        cr_assert_neq(end, SIZE_MAX, "an event without its blank line");
        rest = str_sub(rest, end + 2, rest.len);
        if (str_starts(frame, event)) {
            nl = str_find(frame, STR("\n"), 0);
            ev->name = str_sub(frame, event.len, nl - event.len);
            frame = str_sub(frame, nl + 1, frame.len);
        }
        cr_assert(str_starts(frame, data), "%.*s", (int)frame.len, frame.p);
        frame = str_sub(frame, data.len, frame.len);
        ev->done = str_eq_c(frame, "[DONE]");
        if (!ev->done)
            ev->data = kit_json(k, arena_cstr(&k->a, frame));
    }
}

static inline struct str kit_type(const struct kit_event *ev)
{
    return json_string(json_get(ev->data, "type"));
}

#endif
