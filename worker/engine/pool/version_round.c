/*
 * The request to an engine does not use its slots, which may all be taken while the trainer waits.
 * Round and requests end together: on_timer, which also follows the last answer at once, cancels
 * the others, reports, and frees.
 */
#include "worker/engine/pool/version_round.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/passing.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

enum { ANSWER_MAX = 4096, MESSAGE_MAX = 300, OK = 200, NOT_FOUND = 404, NO_METHOD = 405 };

/* The request to one engine. */
struct version_word {
    struct version_round *round;
    const struct replica *replica; /* NULL: it was freed */
    void *passed;                  /* handle of the adapter; NULL: not pending */
    int status;
    bool told;
    struct buf name, text, why;
};

struct version_round {
    struct engine_pool *pool;
    struct version_word *words;
    size_t n, out;
    struct loop_timer timer;
    void (*told)(void *ctx, struct version_round *r);
    void *ctx;
};

static void round_end(struct version_round *r)
{
    r->pool->telling = NULL;
    loop_timer_stop(r->pool->loop, &r->timer);
    for (size_t i = 0; i < r->n; i++) {
        struct version_word *w = &r->words[i];

        if (w->passed)
            w->replica->adapter->pass_cancel(w->passed);
        if (!w->told)
            log_warn(NULL, "an engine was not told the version of its weights",
                     LOG_S("engine", buf_str(&w->name)), LOG_S("why", buf_str(&w->why)));
    }
    r->told(r->ctx, r);
    for (size_t i = 0; i < r->n; i++) {
        buf_done(&r->words[i].name);
        buf_done(&r->words[i].text);
        buf_done(&r->words[i].why);
    }
    free(r->words);
    free(r);
}

static void on_timer(struct loop_timer *t)
{
    round_end(CONTAINER_OF(t, struct version_round, timer));
}

/* Ends one request: its answer is known, or will not come. */
static void word_end(struct version_word *w)
{
    struct version_round *r = w->round;

    w->passed = NULL;
    if (--r->out == 0)
        loop_timer_set(r->pool->loop, &r->timer, 0, on_timer);
}

static void judge_answer(struct version_word *w)
{
    struct arena a = {0};
    const struct json *v = NULL;
    const struct json *success;
    struct str message;

    if (json_parse(&a, buf_str(&w->text), &v, NULL) != 0)
        v = NULL;
    success = json_get(v, "success");
    message = str_sub(json_string(json_get(v, "message")), 0, MESSAGE_MAX);
    buf_clear(&w->why);
    w->told = w->status == OK && (json_is_true(success) || !json_is(success, JSON_BOOL));
    if (w->status == NOT_FOUND || w->status == NO_METHOD)
        buf_printf(&w->why, "it has no %s: an older one, or started without it",
                   w->replica->adapter->version_path);
    else if (!w->told)
        buf_printf(&w->why, "it refuses: HTTP %d%s%.*s", w->status, message.len ? ", " : "",
                   (int)message.len, message.len ? message.p : "");
    arena_done(&a);
}

static void on_head(void *ctx, int status, struct str content_type)
{
    (void)content_type;
    ((struct version_word *)ctx)->status = status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct version_word *w = ctx;

    buf_add_up_to(&w->text, bytes, ANSWER_MAX);
}

static void on_done(void *ctx)
{
    judge_answer(ctx);
    word_end(ctx);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct version_word *w = ctx;

    buf_clear(&w->why);
    buf_puts(&w->why, e->text);
    word_end(w);
}

static const struct engine_pass_events on_pass = {on_head, on_body, on_done, on_failed};

static void ask_version(struct version_word *w, struct str version)
{
    const struct engine_adapter *adapter = w->replica->adapter;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);
    struct engine_pass q = {.method = "POST", .content_type = STR("application/json")};

    json_out_obj(&o);
    json_out_member_str(&o, "new_version", version);
    buf_puts(&body, adapter->version_rest ? adapter->version_rest : "");
    json_out_end_obj(&o);
    buf_puts(&w->why, "no answer in time");
    q.path = str_cstr(adapter->version_path);
    q.body = buf_str(&body);
    w->round->out++;
    w->passed = adapter->pass(w->replica->impl, &q, &on_pass, w);
    buf_done(&body);
}

int version_round_begin(struct engine_pool *p, struct str version, uint64_t timeout_ms,
                        void (*told)(void *ctx, struct version_round *r), void *ctx, struct err *e)
{
    struct version_round *r;

    if (p->telling)
        return err_set(e, ERR_STATE_CONFLICT,
                       "the engines are being told another version of their weights: ask again");
    r = mem_zalloc(sizeof(*r));
    *r = (struct version_round){.pool = p, .told = told, .ctx = ctx, .n = p->replicas->n};
    r->words = mem_calloc(r->n + 1, sizeof(*r->words));
    p->telling = r;
    for (size_t i = 0; i < r->n; i++) {
        struct version_word *w = &r->words[i];

        *w = (struct version_word){.round = r, .replica = p->replicas->at[i]};
        buf_puts(&w->name, w->replica->target.name);
        if (w->replica->adapter->version_path)
            ask_version(w, version);
        else
            buf_printf(&w->why, "kind %s has no route for it", w->replica->adapter->kind);
    }
    loop_timer_set(p->loop, &r->timer, r->out > 0 ? timeout_ms : 0, on_timer);
    return 0;
}

void version_round_write(const struct version_round *r, struct json_out *o)
{
    json_out_arr(o);
    for (size_t i = 0; i < r->n; i++) {
        const struct version_word *w = &r->words[i];

        json_out_obj(o);
        json_out_member_str(o, "name", buf_str(&w->name));
        json_out_member_bool(o, "told", w->told);
        if (!w->told)
            json_out_member_str(o, "why", buf_str(&w->why));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

void version_round_stop(struct engine_pool *p)
{
    if (p->telling)
        round_end(p->telling);
}

/* The adapter cancels the pending request when it is closed. */
void version_round_forget(struct engine_pool *p, const struct replica *replica)
{
    for (size_t i = 0; p->telling && i < p->telling->n; i++) {
        struct version_word *w = &p->telling->words[i];

        if (w->replica != replica)
            continue;
        w->replica = NULL;
        if (!w->passed)
            continue;
        buf_clear(&w->why);
        buf_puts(&w->why, "it was taken out of the set");
        word_end(w);
    }
}
