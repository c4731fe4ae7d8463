/*
 * Each scorer has a list of waiting calls and runs at most AT_ONCE at a time. After a failure that
 * may pass, the call waits for a timer (250 ms, doubling, at most 15 s) and then goes to the end of
 * the list, until timeout_ms since its beginning are used up. Calls start from a task of the loop,
 * so no callback comes from inside scorers_start.
 */
#include "worker/engine/scoring/scorers.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/os/loop.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_target.h"
#include "worker/engine/scoring/prompt_asker.h"

enum { AT_ONCE = 8, AGAIN_MS = 250, AGAIN_MAX_MS = 15000 };

struct scorer {
    struct str name;
    struct engine_target target;
    struct prompt_asker *asker;
    struct list_head waiting; /* waiting calls, oldest first */
    unsigned running;
};

struct score_call {
    struct scorers *scorers;
    struct scorer *scorer;
    struct list_item item; /* in scorer->waiting, or in no list */
    struct list_item in_all;
    struct token_vec ids;
    struct buf session_id, lora;
    uint32_t top_k;
    const struct score_events *events;
    void *ctx;
    struct prompt_attempt *attempt; /* NULL: no attempt is running */
    struct loop_timer timer;        /* delay before the next attempt */
    unsigned tries;
    uint64_t begun_us;
};

struct scorers {
    struct loop *loop;
    struct engine_options options;
    struct arena arena;
    struct scorer *at;
    size_t n;
    struct list_head calls;
    struct loop_task dispatch;
};

/* Parses NAME=KIND:URL[,...]. */
static int parse(struct arena *a, const char *text, struct scorer *ret, struct err *e)
{
    struct str all = str_cstr(text);
    size_t sign = str_find(all, STR("="), 0), colon = str_find(all, STR(":"), 0);

    if (sign == SIZE_MAX || sign == 0 || sign > 64 || colon < sign)
        return err_set(e, ERR_CONFIG, "scorer \"%s\" is not NAME=KIND:URL", text);
    ret->name = arena_str(a, str_sub(all, 0, sign));
    if (engine_target_parse(a, text + sign + 1, &ret->target, e))
        return -1;
    if (ret->target.own || ret->target.model || ret->target.max_inflight || ret->target.dp_ranks)
        return err_set(e, ERR_CONFIG,
                       "scorer \"%s\": options name, model, max-inflight and dp-ranks are for "
                       "engines that answer (--engine)",
                       text);
    if (!engine_adapter_find(ret->target.kind)->scores)
        return err_set(e, ERR_CONFIG, "scorer \"%s\": kinds that score prompts are sglang and vllm",
                       text);
    return 0;
}

static struct scorer *find(const struct scorer *at, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(at[i].name, name))
            return (struct scorer *)(uintptr_t)&at[i];
    return NULL;
}

static int parse_all(struct arena *a, const char *const *texts, size_t n, struct scorer *at,
                     struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (parse(a, texts[i], &at[i], e))
            return -1;
        if (find(at, i, at[i].name))
            return err_set(e, ERR_CONFIG, "two scorers have the name of \"%s\"", texts[i]);
    }
    return 0;
}

int scorers_check(const char *const *texts, size_t n, struct err *e)
{
    struct arena a = {0};
    struct scorer *at = mem_calloc(n + 1, sizeof(*at));
    int rc = parse_all(&a, texts, n, at, e);

    free(at);
    arena_done(&a);
    return rc;
}

int scorers_new(struct loop *loop, const char *const *texts, size_t n,
                const struct engine_options *o, struct scorers **ret, struct err *e)
{
    struct scorers *s = mem_zalloc(sizeof(*s));

    s->loop = loop;
    s->options = *o;
    s->at = mem_calloc(n + 1, sizeof(*s->at));
    s->n = n;
    if (parse_all(&s->arena, texts, n, s->at, e))
        goto out;
    for (size_t i = 0; i < n; i++)
        if (prompt_asker_new(loop, &s->at[i].target, &s->options, &s->at[i].asker, e))
            goto out;
    *ret = s;
    return 0;
out:
    scorers_free(s);
    return -1;
}

static void call_free(struct score_call *c)
{
    loop_timer_stop(c->scorers->loop, &c->timer);
    list_remove(&c->item);
    list_remove(&c->in_all);
    vec_done(&c->ids);
    buf_done(&c->session_id);
    buf_done(&c->lora);
    free(c);
}

void scorers_free(struct scorers *s)
{
    struct score_call *c, *next;

    if (!s)
        return;
    LIST_EACH_SAFE(&s->calls, c, next, struct score_call, in_all)
        scorers_cancel(c);
    loop_task_cancel(s->loop, &s->dispatch);
    for (size_t i = 0; i < s->n; i++)
        prompt_asker_free(s->at[i].asker);
    free(s->at);
    arena_done(&s->arena);
    free(s);
}

int scorers_find(const struct scorers *s, struct str name, struct err *e)
{
    if (find(s->at, s->n, name))
        return 0;
    return err_field(e, "score", "score: no scorer has the name \"%.*s\" (--scorer)",
                     (int)MIN_OF(name.len, (size_t)64), name.p ? name.p : "");
}

/* --- calls --- */

static void dispatch(struct scorers *s);

static void on_again(struct loop_timer *t)
{
    struct score_call *c = CONTAINER_OF(t, struct score_call, timer);

    list_append(&c->scorer->waiting, &c->item);
    dispatch(c->scorers);
}

static void on_done(void *ctx, const struct score_result *r)
{
    struct score_call *c = ctx;
    struct scorers *s = c->scorers;

    c->attempt = NULL;
    c->scorer->running--;
    c->events->done(c->ctx, r);
    call_free(c);
    dispatch(s);
}

static void on_failed(void *ctx, const struct err *e, bool passing)
{
    struct score_call *c = ctx;
    struct scorers *s = c->scorers;
    uint64_t wait = MIN_OF((uint64_t)AGAIN_MS << MIN_OF(c->tries, 10u), (uint64_t)AGAIN_MAX_MS);
    uint64_t spent = (clock_us() - c->begun_us) / 1000;

    c->attempt = NULL;
    c->scorer->running--;
    if (passing && spent + wait < s->options.timeout_ms) {
        if (c->tries++ == 0)
            log_warn(NULL, "a scorer failed, it is asked again", LOG_S("scorer", c->scorer->name),
                     LOG_T("why", e->text));
        loop_timer_set(s->loop, &c->timer, wait, on_again);
    } else {
        struct err last = *e;

        if (passing && last.kind == ERR_ENGINE_INVALID)
            last.kind = ERR_ENGINE_UNAVAILABLE; /* a later attempt may succeed */
        c->events->failed(c->ctx, &last);
        call_free(c);
    }
    dispatch(s);
}

static const struct prompt_events prompt_events = {on_done, on_failed};

static void run_waiting(struct loop_task *t)
{
    struct scorers *s = CONTAINER_OF(t, struct scorers, dispatch);

    for (size_t i = 0; i < s->n; i++) {
        struct scorer *r = &s->at[i];
        struct score_call *c;

        while (r->running < AT_ONCE && (c = LIST_FIRST_OF(&r->waiting, struct score_call, item))) {
            struct prompt_question q = {
                buf_str(&c->session_id), {c->ids.at, c->ids.n}, c->top_k, buf_str(&c->lora)};

            list_remove(&c->item);
            r->running++;
            c->attempt = prompt_ask(r->asker, &q, &prompt_events, c);
        }
    }
}

static void dispatch(struct scorers *s)
{
    loop_task_post(s->loop, &s->dispatch, run_waiting);
}

struct score_call *scorers_start(struct scorers *s, const struct score_request *q,
                                 const struct score_events *events, void *ctx)
{
    struct score_call *c = mem_zalloc(sizeof(*c));

    c->scorers = s;
    c->scorer = find(s->at, s->n, q->scorer);
    c->top_k = q->top_k;
    c->events = events;
    c->ctx = ctx;
    c->begun_us = clock_us();
    vec_reserve(&c->ids, q->ids.n);
    memcpy(c->ids.at, q->ids.at, q->ids.n * sizeof(*q->ids.at));
    c->ids.n = q->ids.n;
    buf_add_str(&c->session_id, q->session_id);
    buf_add_str(&c->lora, q->lora);
    list_append(&s->calls, &c->in_all);
    list_append(&c->scorer->waiting, &c->item);
    dispatch(s);
    return c;
}

void scorers_cancel(struct score_call *c)
{
    struct scorers *s;

    if (!c)
        return;
    s = c->scorers;
    if (c->attempt) {
        prompt_ask_cancel(c->attempt);
        c->scorer->running--;
        dispatch(s);
    }
    call_free(c);
}

bool scorers_any(const struct scorers *s)
{
    return s && s->n > 0;
}
