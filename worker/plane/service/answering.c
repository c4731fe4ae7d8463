/* Sends answers that tasks make (answering.h). */
#include "worker/plane/service/answering.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
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

int answering_flow(struct answering *a, struct err *e)
{
    struct exchange *x = a->request.x;

    if (a->out.len < FLOW_BYTES)
        return task_pause(e);
    begin_answer(a);
    exchange_send(x, &a->out);
    while (!a->left && exchange_waiting(x) >= EXCHANGE_WINDOW) {
        exchange_on_space(x, waiter_on_event, &a->changed);
        if (task_wait(&a->changed, e))
            return -1;
    }
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
    while (!a->left)
        if (task_wait(&a->changed, NULL))
            break;
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
    a->fn = fn;
    a->ctx = ctx;
    exchange_retain(r->x);
    exchange_watch(r->x, on_closed, a);
    (void)task_start(r->service->calls.tasks, name_owner(r, owner), run_answering, a);
}
