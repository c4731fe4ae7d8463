/* Sends answers that tasks make (answering.h). */
#include "worker/plane/service/answering.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/respond.h"

enum { FLOW_BYTES = 64 << 10 };

static void on_closed(void *ctx, bool delivered)
{
    struct answering *a = ctx;

    a->left = true;
    a->delivered = delivered;
    if (!a->ended)
        task_cancel(a->task);
    waiter_wake(&a->changed);
}

static void begin_answer(struct answering *a)
{
    if (a->begun)
        return;
    a->begun = true;
    respond_count(a->request.service, a->request.dialect, 200);
    exchange_start(a->request.x, a->type);
}

struct reader_timer {
    struct loop_timer timer;
    struct answering *answer;
};

static void on_slow(struct loop_timer *t)
{
    struct answering *a = CONTAINER_OF(t, struct reader_timer, timer)->answer;

    if (a->left)
        return;
    log_warn(&(struct log_scope){.session = a->request.id},
             "an answer is cut, because its client reads less than --min-body-rate",
             LOG_U("unread", exchange_waiting(a->request.x)));
    exchange_cut(a->request.x);
}

/* Waits until less than `limit` bytes are unread, or the client has left. Its slack shrinks while
 * it reads less than --min-body-rate, and grows up to --send-timeout while it reads more. */
MAY_PAUSE static int await_reader(struct answering *a, size_t limit, struct err *e)
{
    struct loop *loop = a->request.service->calls.loop;
    const struct config *c = a->request.service->config;
    struct reader_timer slow = {.answer = a};
    struct exchange *x = a->request.x;
    uint64_t rate = (uint64_t)c->min_body_rate, end_ms = UINT64_MAX;
    int rc = 0;

    if (rate) {
        end_ms = a->slack_ms + exchange_waiting(x) * 1000 / rate;
        loop_timer_set(loop, &slow.timer, end_ms, on_slow);
        end_ms += loop_now_ms(loop);
    }
    while (rc == 0 && !a->left && exchange_waiting(x) >= limit) {
        exchange_on_space(x, waiter_on_event, &a->changed);
        rc = task_wait(&a->changed, e);
    }
    loop_timer_stop(loop, &slow.timer);
    if (rate && !a->left) {
        uint64_t due_ms = loop_now_ms(loop) + exchange_waiting(x) * 1000 / rate;

        a->slack_ms = end_ms > due_ms ? MIN_OF(end_ms - due_ms, (uint64_t)c->send_timeout_ms) : 0;
    }
    return rc;
}

int answering_flow(struct answering *a, struct err *e)
{
    struct exchange *x = a->request.x;

    if (a->out.len < FLOW_BYTES)
        return task_pause(e);
    begin_answer(a);
    exchange_send(x, &a->out);
    if (exchange_waiting(x) >= EXCHANGE_WINDOW && await_reader(a, EXCHANGE_WINDOW, e))
        return -1;
    return task_pause(e);
}

void answering_end(struct answering *a)
{
    struct exchange *x = a->request.x;

    a->ended = true;
    if (a->begun) {
        exchange_send(x, &a->out);
        exchange_end(x);
        return;
    }
    respond_count(a->request.service, a->request.dialect, a->status);
    exchange_reply_buf(x, a->status, a->type, &a->out);
}

bool answering_end_wait(struct answering *a)
{
    answering_end(a);
    (void)await_reader(a, 0, NULL);
    return a->delivered;
}

void answering_fail(struct answering *a, const char *what, const struct err *e)
{
    const struct service_request *r = &a->request;

    if (e->kind == ERR_CANCELLED || a->left) /* the worker ends, so the client asks its successor */
        return;
    a->ended = true;
    if (a->begun) {
        log_warn(&(struct log_scope){.session = r->id}, what, LOG_T("error", e->text));
        exchange_fail(r->x);
        return;
    }
    respond_error_to(r->service, r->x, a->errors, r->dialect, r->request_id, e);
}

void answering_hold_body(struct answering *a)
{
    a->reads_body = true;
    exchange_hold(a->request.x);
}

void answering_release_body(struct answering *a)
{
    a->reads_body = false;
    exchange_unhold(a->request.x);
}

/* Handles a helper thread that hangs: memory that the thread may read is never freed. */
static void on_lost(void *ctx)
{
    struct answering *a = ctx;
    struct exchange *x = a->request.x;
    struct err e = {0};

    work_report_hung(a->body_hash, &e);
    if (a->reads_body)
        exchange_strand(x);
    answering_fail(a, "a request's answer broke", &e);
    if (a->reads_body)
        return;
    exchange_watch(x, NULL, NULL);
    exchange_release(x);
}

static void run_answering(void *ctx)
{
    struct answering *a = ctx;
    struct exchange *x = a->request.x;

    a->task = task_running;
    task_on_lost(on_lost, a);
    a->fn(a, a->ctx);
    exchange_watch(x, NULL, NULL);
    exchange_on_space(x, NULL, NULL);
    exchange_release(x);
    buf_done(&a->out);
    free(a);
}

static struct str append_copy(char **at, struct str text)
{
    struct str copy = str_of(*at, text.len);

    if (!text.p)
        return text;
    memcpy(*at, text.p, text.len);
    *at += text.len;
    return copy;
}

enum { KEY_NAME_BYTES = 16 };

/* Returns the lane of a request. Requests without a session share the lane of their key, by its
 * hash, because logs show the lane. */
static struct str name_owner(const struct service_request *r, char text[KEY_NAME_BYTES])
{
    struct str owner = exchange_owner(r->x);
    uint64_t hash;

    if (owner.len == 0 || str_eq(owner, r->id))
        return owner;
    hash = str_hash(owner, 0);
    for (size_t i = 0; i < KEY_NAME_BYTES; i++)
        text[i] = "0123456789abcdef"[hash >> (4 * i) & 15];
    return str_of(text, KEY_NAME_BYTES);
}

void answering_start(const struct service_request *r, void (*fn)(struct answering *a, void *ctx),
                     void *ctx)
{
    struct answering *a = mem_zalloc(sizeof(*a) + r->id.len + r->rest.len);
    char *at = (char *)(a + 1), owner[KEY_NAME_BYTES];

    a->request = *r;
    a->request.id = append_copy(&at, r->id);
    a->request.rest = append_copy(&at, r->rest);
    a->request.body = NULL;
    a->type = "application/json";
    a->status = 200;
    a->slack_ms = (uint64_t)r->service->config->send_timeout_ms;
    a->fn = fn;
    a->ctx = ctx;
    exchange_retain(r->x);
    exchange_watch(r->x, on_closed, a);
    (void)task_start(r->service->calls.tasks, name_owner(r, owner), run_answering, a);
}
