/*
 * Counts the records of one answer that are not durable yet. The answer is sent when that count is
 * zero and its body is complete, in either order. It is freed only there, even if the client has
 * left, because the records' callbacks still point to it.
 */
#include "dispatcher/durable.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "dispatcher/desk.h"

static void on_desk_answer_closed(void *ctx, bool delivered)
{
    (void)delivered;
    ((struct desk_answer *)ctx)->x = NULL;
}

struct desk_answer *durable_begin(struct desk *d, struct exchange *x)
{
    struct desk_answer *a = mem_zalloc(sizeof(*a));

    a->desk = d;
    a->x = x;
    d->busy++;
    exchange_watch(x, on_desk_answer_closed, a);
    return a;
}

/* Sends and frees the answer if it is complete and all its records are durable. */
static void send_if_durable(struct desk_answer *a)
{
    if (!a->ended || a->undurable > 0)
        return;
    if (a->x) {
        exchange_watch(a->x, NULL, NULL);
        if (a->failure.kind == ERR_NONE)
            desk_json(a->x, a->status, &a->body);
        else
            desk_error(a->x, &a->failure);
    }
    a->desk->busy--;
    buf_done(&a->body);
    free(a);
}

static void on_record_durable(void *ctx)
{
    struct desk_answer *a = ctx;

    a->undurable--;
    send_if_durable(a);
}

static void on_record_failed(void *ctx, const struct err *e)
{
    struct desk_answer *a = ctx;

    a->failure = *e;
    a->undurable--;
    send_if_durable(a);
}

int durable_write(struct desk_answer *a, struct str group, struct str record, struct err *e)
{
    const struct desk_done done = {on_record_durable, a, on_record_failed};
    int rc = desk_write(a->desk, group, record, &done, e);

    a->undurable += rc == 0;
    a->wrote = a->wrote || rc >= 0;
    return rc < 0 ? -1 : 0;
}

void durable_end(struct desk_answer *a, int status)
{
    const struct desk_done done = {on_record_durable, a, on_record_failed};

    /* An answer without records may depend on a record of an earlier request. */
    if (a->x && !a->wrote)
        a->undurable += desk_await(a->desk, &done) == 0;
    a->ended = true;
    a->status = status;
    send_if_durable(a);
}

void durable_fail(struct desk_answer *a, const struct err *e)
{
    if (a->x) {
        exchange_watch(a->x, NULL, NULL);
        desk_error(a->x, e);
        a->x = NULL;
    }
    durable_end(a, 0); /* no answer is sent any longer */
}
