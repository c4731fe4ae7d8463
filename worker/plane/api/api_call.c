/* A request that was read becomes a model call, joins one, or gets a recorded answer again.
 * api_call_entry.c shows the path of a request. */
#include "worker/plane/api/api_call.h"
#include "common/base/log.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/call/give_back.h"
#include "worker/text/request/chat_request.h"

void api_call_free_arena(struct api_call *c)
{
    if (c->service)
        call_free_later(&c->service->calls, &c->arena, str_cstr(c->id));
}

struct call_input api_call_input(struct api_call *c)
{
    struct arena *a = &c->arena;
    struct log_scope *scope = ARENA_NEW(a, struct log_scope);
    struct call_input in = {
        .session_id = arena_str(a, str_cstr(c->id)),
        .req = c->req,
        .body = c->body,
        .body_hash = {c->hash[0], c->hash[1]},
        .body_bytes = exchange_closed_body(c->x).len,
        .shared_bytes = c->shared_bytes,
        .work_hash = c->body_hash,
        .scope = scope,
        .dialect = c->dialect->name,
        .asked = c->asked,
    };

    if (c->service->calls.tracer) {
        in.traceparent = arena_str(a, exchange_header(c->x, "traceparent"));
        in.tracestate = arena_str(a, exchange_header(c->x, "tracestate"));
    }
    *scope = (struct log_scope){in.session_id, arena_str(a, str_cstr(c->request_id))};
    return in;
}

void api_call_heed(struct api_call *c)
{
    if (!c->heeds)
        exchange_heed(c->x);
    c->heeds = true;
}

void api_call_start(struct api_call *c)
{
    struct call_input in = api_call_input(c);
    struct arena arena;

    if (api_call_repeats(c, &in))
        return;
    api_call_heed(c);
    /* the arena has the request; the model call outlives everything that uses it */
    arena = c->arena;
    c->arena = (struct arena){.sum = arena.sum};
    c->front->asks = true;
    model_call_start(&c->service->calls, &arena, &in, &c->listener);
    c->front->asks = false;
}

/* Makes the dialect's writer and becomes the listener. */
MAY_PAUSE static void call_begin(struct api_call *c)
{
    c->writer = c->dialect->writer(&c->arena, c->req, c->body, &c->out);
    c->listener = (struct call_listener){
        .sink = &api_call_sink,
        .ctx = c,
        .stream = c->req->stream,
    };
    api_call_start(c);
}

void api_call_begin(struct api_call *c)
{
    if (c->req->n_prompts > 1)
        batch_begin(c);
    else
        call_begin(c);
}
