/* How many tokens a request's prompt has: rendered and encoded as a call would, without one. */
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/dialect/writers.h"
#include "worker/service/respond.h"

/* The client left while its tokens were being counted. */
static void on_count_left(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered;
    token_count_drop(c->counting);
    api_call_free(c);
}

/* The count is there, perhaps from a helper. */
static void on_counted(void *ctx, struct arena *arena, size_t n, const struct err *e)
{
    struct api_call *c = ctx;
    struct service_request r = c->request;
    const struct dialect *d = c->dialect;
    struct buf body = {0};

    (void)arena;
    exchange_watch(c->x, NULL, NULL);
    api_call_free(c);
    if (e) {
        respond_error(&r, d, e);
        return;
    }
    anthropic_write_count(n, &body);
    respond_json(&r, &body);
    buf_done(&body);
}

/* Renders and tokenizes the request as a call would, without one. */
void api_call_count(struct api_call *c)
{
    struct call_input in = api_call_input(c);
    struct arena arena = c->arena; /* the request lies in it */
    struct token_count *counting;
    struct exchange *x = c->x;

    c->arena = (struct arena){.sum = arena.sum};
    exchange_watch(x, on_count_left, c);
    counting = call_count_tokens(&c->service->calls, &arena, &in, on_counted, c);
    if (counting)
        c->counting = counting;
}
