/* Counts the tokens of a request's prompt: renders and encodes it like a call would. */
#include "common/base/err.h"
#include "worker/dialect/writers.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/service/respond.h"

void api_call_count(struct api_call *c)
{
    struct call_input in = api_call_input(c);
    struct buf body = {0};
    struct err e = {0};
    size_t n;
    int rc = call_count_tokens(&c->service->calls, &c->arena, &in, &n, &e);

    if (c->left || e.kind == ERR_CANCELLED)
        return;
    api_call_free_arena(c);
    if (rc) {
        respond_error(&c->request, c->dialect, &e);
        return;
    }
    anthropic_write_count(n, &body);
    respond_json(&c->request, &body);
    buf_done(&body);
}
