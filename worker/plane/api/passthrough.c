/* Requests that no route has, handed to the engine as they are (passthrough.h). Nothing of them
 * is recorded. The answer streams: when the client reads slower than the engine writes, the
 * engine is paused beyond EXCHANGE_WINDOW and resumed when there is room. Answers other than 200
 * are held and sent whole, so that their status is the engine's; one longer than HELD_MAX is said
 * instead. */

#include "worker/plane/api/passthrough.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/passing.h"
#include "worker/plane/api/near_path.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

#include <stdlib.h>

enum { HELD_MAX = 1 << 20 };

/* One forwarded request; freed when its exchange is over. */
struct forward {
    struct service *service;
    struct exchange *x;
    struct engine_pass_call *call; /* NULL: the engine has finished */
    char request_id[40];
    char type[128]; /* content type of the answer */
    int status;
    bool paused;
    struct buf body; /* a held answer, or bytes for the exchange */
};

/* The client left, or the answer was sent. */
static void on_closed(void *ctx, bool delivered)
{
    struct forward *f = ctx;

    (void)delivered;
    if (f->call)
        engine_pass_cancel(f->call);
    buf_done(&f->body);
    free(f);
}

/* Resumes the engine, because the client has read the waiting bytes. */
static void on_forward_space(void *ctx)
{
    struct forward *f = ctx;

    if (!f->paused || !f->call)
        return;
    f->paused = false;
    engine_pass_resume(f->call);
}

/* Starts the answer if it is a success. */
static void on_head(void *ctx, int status, struct str type)
{
    struct forward *f = ctx;
    size_t len = MIN_OF(type.len, sizeof(f->type) - 1);

    f->status = status;
    memcpy(f->type, type.p ? type.p : "", len);
    if (status == 200) {
        respond_count(f->service, METRIC_DIALECT_PASSTHROUGH, 200);
        exchange_start(f->x, f->type[0] ? f->type : "application/octet-stream");
    }
}

static void on_failed(void *ctx, const struct err *e);

/* Collects the body of an error. */
static void keep_error_body(struct forward *f, struct str bytes)
{
    struct err e;

    if (f->body.len + bytes.len <= HELD_MAX) {
        buf_add_str(&f->body, bytes);
        return;
    }
    (void)err_set(&e, ERR_ENGINE_INVALID,
                  "the engine answered with status %d and more than %d bytes, which are not passed "
                  "on",
                  f->status, HELD_MAX);
    engine_pass_cancel(f->call);
    on_failed(f, &e);
}

static void on_body(void *ctx, struct str bytes)
{
    struct forward *f = ctx;

    if (f->status != 200) {
        keep_error_body(f, bytes);
        return;
    }
    buf_add_str(&f->body, bytes);
    exchange_send(f->x, &f->body);
    if (exchange_waiting(f->x) > EXCHANGE_WINDOW && !f->paused) {
        f->paused = true;
        engine_pass_pause(f->call);
        exchange_on_space(f->x, on_forward_space, f);
    }
}

/* The engine has answered completely. */
static void on_done(void *ctx)
{
    struct forward *f = ctx;

    f->call = NULL;
    if (f->status == 200) {
        exchange_end(f->x);
        return;
    }
    respond_count(f->service, METRIC_DIALECT_PASSTHROUGH, f->status);
    exchange_reply(f->x, f->status, f->type[0] ? f->type : "text/plain", buf_str(&f->body));
}

/* Fails the answer. After bytes were sent, only breaking the connection shows the client that it
 * failed. */
static void on_failed(void *ctx, const struct err *e)
{
    struct forward *f = ctx;

    f->call = NULL;
    if (exchange_started(f->x))
        exchange_fail(f->x);
    else
        respond_error_to(f->service, f->x, NULL, METRIC_DIALECT_PASSTHROUGH, f->request_id, e);
}

static const struct engine_pass_events events = {on_head, on_body, on_done, on_failed};

/* Sends the request to the session's engine; the answer comes later. Returns -1 and e if that is
 * not allowed or not possible. */
static int forward_request(struct service_request *r, struct forward *f, struct err *e)
{
    struct str method = exchange_method(r->x);
    bool keyless = !keys_required(r->service->keys);
    char name[16] = "";
    struct engine_pass p = {
        .session_id = r->id,
        .method = name,
        .path = r->rest,
        .query = exchange_query(r->x),
        .admin = !keyless && r->admin,
        .keyless = keyless,
        .setting = r->service->config->passthrough,
        .content_type = exchange_header(r->x, "content-type"),
        .accept = exchange_header(r->x, "accept"),
        .body = exchange_body(r->x),
        .body_stays = true, /* on_closed ends the call before the body is freed */
    };

    memcpy(name, method.p, MIN_OF(method.len, sizeof(name) - 1));
    f->call = engine_pass(r->service->calls.engines, &p, &events, f, e);
    return f->call ? 0 : -1;
}

/* Refusals get a hint if the path looks like one of ours. */
void passthrough_serve(struct service_request *r)
{
    struct str path = exchange_path(r->x);
    struct forward *f;
    struct err e = {0};

    if (near_path_is_ours(path)) {
        (void)err_set(&e, ERR_NOT_FOUND, "no such path");
        near_path_hint(path, r->rest, &e);
        respond_error(r, NULL, &e);
        return;
    }
    f = mem_zalloc(sizeof(*f));
    f->service = r->service;
    f->x = r->x;
    memcpy(f->request_id, r->request_id, sizeof(f->request_id));
    if ((r->id_valid && service_unread_room(r->service, r->x, r->id, &e)) ||
        forward_request(r, f, &e)) {
        free(f);
        if (e.kind == ERR_NOT_FOUND || e.kind == ERR_WRONG_SCOPE)
            near_path_hint(path, r->rest, &e);
        if (e.kind == ERR_WRONG_SCOPE)
            metrics_count_at(r->service->calls.page, METRIC_refusals, METRIC_REFUSAL_KEY, 0, 1);
        respond_error(r, NULL, &e);
        return;
    }
    if (r->id_valid)
        exchange_account(r->x, r->id);
    exchange_watch(f->x, on_closed, f);
}
