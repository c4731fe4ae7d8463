#include "kit.h"

#include <stdlib.h>

#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

static void applied(struct kit *k, struct buf *record)
{
    cr_assert_eq(session_apply(k->store, buf_str(record), &k->err), 0, "%s", k->err.text);
    cr_assert_lt(k->n_journal, 4096);
    k->journal[k->n_journal++] = *record;
    *record = (struct buf){0};
}

const struct json *kit_json(struct kit *k, const char *text)
{
    const struct json *v;

    cr_assert_eq(json_parse(&k->arena, arena_str(&k->arena, str_cstr(text)), &v, &k->err), 0,
                 "%s: %s", text, k->err.text);
    return v;
}

void kit_defaults(struct kit *k, const struct session_defaults *d, const char *options)
{
    struct buf record = {0};
    bool ended;

    *k = (struct kit){.now = 1000, .part_bytes = 200};
    k->store = session_store_new(NULL, d);
    cr_assert_eq(session_create_record(k->store, STR("w0-1"), options ? kit_json(k, options) : NULL,
                                       k->now, &record, &k->err),
                 0, "%s", k->err.text);
    applied(k, &record);
    k->s = session_find(k->store, STR("w0-1"), &ended);
    cr_assert(k->s);
}

void kit_init(struct kit *k, const char *options)
{
    struct session_defaults d;

    session_defaults_init(&d);
    kit_defaults(k, &d, options);
}

void kit_done(struct kit *k)
{
    session_store_free(k->store);
    for (size_t i = 0; i < k->n_journal; i++)
        buf_done(&k->journal[i]);
    arena_done(&k->arena);
}

struct session_plan *kit_ask(struct kit *k, const char *messages, const char *tools)
{
    struct chat chat = {.messages = kit_json(k, messages),
                        .tools = tools ? kit_json(k, tools) : NULL};
    struct session_call_input in = {.chat = &chat,
                                    .now_ms = ++k->now,
                                    .max_tokens = k->max_tokens,
                                    .context_length = k->context,
                                    .body_hash = {k->body_hash, 7},
                                    .key = k->key};
    struct buf record = {0};
    struct session_plan *p;

    chat.known = k->known;
    chat.known.messages = chat.messages;
    k->err = (struct err){0};
    if (session_prepare(k->s, NULL, &k->arena, &in, &p, &k->err) != 0)
        return NULL;
    if (p->drops) {
        session_drop_record(p, k->now, &record);
        applied(k, &record);
    }
    return p;
}

static const struct json *message(struct kit *k, const char *text)
{
    struct buf b = {0};
    const struct json *v;

    buf_puts(&b, "{\"role\":\"assistant\",\"content\":");
    json_write_string(&b, str_cstr(text));
    buf_puts(&b, "}");
    buf_add_c(&b, 0);
    v = kit_json(k, b.p);
    buf_done(&b);
    return v;
}

static struct session_answer make_answer(struct kit *k, const struct session_plan *p,
                                         const char *text, bool cut)
{
    size_t n = strlen(text);
    int32_t *ids = arena_calloc(&k->arena, n + 1, sizeof(*ids));
    float *lp = arena_calloc(&k->arena, n + 1, sizeof(*lp));
    struct session_answer a = {.ids = {ids, cut ? n : n + 1},
                               .logprobs = lp,
                               .cut = cut,
                               .finish_reason = cut ? STR("length") : STR("stop"),
                               .message = message(k, text)};

    if (p->exhausted)
        a.ids.n = 0;
    a.response_id = arena_printf(&k->arena, "r%u", k->answers++);
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)text[i];
    ids[n] = 257;
    return a;
}

static size_t write_fragments(struct kit *k, struct session_plan *p, struct session_answer *a)
{
    struct buf record = {0};
    size_t n = 0;

    for (; session_bulk_record(p, a, 1, k->part_bytes, ++k->now, &record); n++) {
        cr_assert_lt(record.len, k->part_bytes + 64, "a head and a fragment");
        applied(k, &record);
    }
    return n;
}

size_t kit_fragments(struct kit *k, struct session_plan *p)
{
    struct session_answer a = make_answer(k, p, "never", false);

    return write_fragments(k, p, &a);
}

int kit_answer(struct kit *k, struct session_plan *p, const char *text, bool cut)
{
    struct session_answer a = make_answer(k, p, text, cut);
    struct buf record = {0};

    k->err = (struct err){0};
    (void)write_fragments(k, p, &a);
    if (session_commit_record(p, &a, 1, ++k->now, &record, &k->err) != 0) {
        session_release(k->store, p);
        buf_done(&record);
        return -1;
    }
    applied(k, &record);
    return 0;
}

int kit_turn(struct kit *k, const char *messages, const char *text)
{
    struct session_plan *p = kit_ask(k, messages, NULL);
    int cause = p ? (int)p->cause : -1;

    return p && kit_answer(k, p, text, false) == 0 ? cause : -1;
}

int kit_end(struct kit *k, enum session_end how)
{
    struct buf record = {0};
    bool ended;

    if (session_end_record(k->s, how, NULL, ++k->now, &record, &k->err) != 0) {
        buf_done(&record);
        return -1;
    }
    applied(k, &record);
    k->s = session_find(k->store, STR("w0-1"), &ended);
    return 0;
}

const struct json *kit_state(struct kit *k)
{
    struct buf b = {0};
    const struct json *v;

    cr_assert_eq(session_write_state(k->s, true, &b, &k->err), 0);
    buf_add_c(&b, 0);
    v = kit_json(k, b.p);
    buf_done(&b);
    return v;
}

int64_t kit_count(struct kit *k, const char *name)
{
    int64_t n = -1;

    (void)json_to_i64(json_get(kit_state(k), name), &n);
    return n;
}

/* --- tasks --- */

void kit_task_begin(struct kit_task *t, void (*fn)(void *ctx), void *ctx)
{
    struct err e = {0};

    t->loop = loop_new(&e);
    t->tasks = tasks_new(t->loop);
    tasks_yield_always(t->tasks, true);
    if (!task_start(t->tasks, STR("test"), fn, ctx))
        (void)kit_task_step(t);
}

bool kit_task_step(struct kit_task *t)
{
    if (t->tasks && tasks_count(t->tasks) > 0)
        (void)loop_poll(t->loop, 0);
    if (!t->tasks || tasks_count(t->tasks) > 0)
        return t->tasks;
    tasks_free(t->tasks);
    loop_free(t->loop);
    t->tasks = NULL;
    return false;
}

void kit_task_cancel(struct kit_task *t)
{
    tasks_finish(t->tasks, false);
    cr_assert_not(kit_task_step(t));
}

static void run_prepare(void *ctx)
{
    struct kit_prepare *q = ctx;
    struct kit *k = q->k;

    q->rc = session_prepare_position(k->s, &k->arena, q->in, &q->p, &k->err);
    if (q->rc == 0)
        q->rc = session_prepare_path(q->p, &k->err);
    if (q->rc == 0)
        return;
    session_release(k->store, q->p);
    q->p = NULL;
}

int kit_prepare(struct kit_prepare *q, struct kit *k, const struct session_call_input *in)
{
    *q = (struct kit_prepare){.k = k, .in = in};
    kit_task_begin(&q->task, run_prepare, q);
    return q->rc = q->task.tasks ? 1 : q->rc;
}

int kit_prepare_step(struct kit_prepare *q)
{
    return q->rc = kit_task_step(&q->task) ? 1 : q->rc;
}

void kit_prepare_cancel(struct kit_prepare *q)
{
    kit_task_cancel(&q->task);
    cr_assert_eq(q->p, NULL);
}
