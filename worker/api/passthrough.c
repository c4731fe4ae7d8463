#include "worker/api/passthrough.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/http_client.h"
#include "worker/api/respond.h"
#include "worker/engine/target.h"

enum { HELD_MAX = 16 << 20, KEY_MAX = 4096 };

struct engine {
    struct http_client *client;
    struct buf authorization; /* the header line, or empty */
};

struct passthrough {
    struct engine *engines;
    size_t n;
    struct arena arena;
    uint64_t timeout_ms;
};

/* One forwarded request. */
struct forward {
    struct api *api;
    struct exchange *x;
    struct http_call *call;
    char request_id[40];
    char type[128]; /* content type of the answer */
    int status;
    bool paused;
    struct buf body; /* held, or on its way into the exchange */
};

/* --- engines --- */

static int read_key(const char *path, struct buf *ret, struct err *e)
{
    char text[KEY_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    struct str key;

    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return err_sys(e, ERR_CONFIG, "cannot read an engine's key file");
    key = str_trim(str_of(text, (size_t)n));
    buf_printf(ret, "Authorization: Bearer %.*s\r\n", (int)key.len, key.p);
    return 0;
}

static int engine_open(struct passthrough *p, struct loop *loop, const struct config *c,
                       const char *argument, struct err *e)
{
    struct engine *g = &p->engines[p->n];
    struct engine_target t;
    struct http_client_options o = {
        .ca_file = c->engine_ca_file,
        .insecure_tls = c->engine_insecure_tls,
        .connect_timeout_ms = (uint64_t)c->engine_connect_timeout_ms,
    };

    if (engine_target_parse(&p->arena, argument, &t, e))
        return -1;
    if (str_find(str_cstr(t.rest), STR("://"), 0) == SIZE_MAX)
        return 0;
    if (t.key_file && read_key(t.key_file, &g->authorization, e))
        return -1;
    if (http_client_new(loop, t.rest, &o, &g->client, e))
        return -1;
    p->n++;
    return 0;
}

struct passthrough *passthrough_new(struct loop *loop, const struct config *c, struct err *e)
{
    struct passthrough *p = mem_zalloc(sizeof(*p));

    p->timeout_ms = (uint64_t)c->engine_timeout_ms;
    p->engines = arena_calloc(&p->arena, c->engine.n, sizeof(*p->engines));
    for (size_t i = 0; i < c->engine.n; i++) {
        if (engine_open(p, loop, c, c->engine.at[i], e)) {
            passthrough_free(p);
            return NULL;
        }
    }
    return p;
}

void passthrough_free(struct passthrough *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        http_client_free(p->engines[i].client);
        buf_done(&p->engines[i].authorization);
    }
    arena_done(&p->arena);
    free(p);
}

/* --- one request --- */

static void forward_free(struct forward *f)
{
    buf_done(&f->body);
    free(f);
}

static void on_closed(void *ctx, bool delivered)
{
    struct forward *f = ctx;

    (void)delivered;
    if (f->call)
        http_call_cancel(f->call);
    forward_free(f);
}

/* The client has taken what waited: the engine may go on. */
static void on_more(void *ctx)
{
    struct forward *f = ctx;

    if (!f->paused || !f->call)
        return;
    f->paused = false;
    http_call_resume(f->call);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    struct forward *f = ctx;
    struct str type = http1_get(h, STR("content-type"));
    size_t len = MIN_OF(type.len, sizeof(f->type) - 1);

    f->status = h->status;
    memcpy(f->type, type.p ? type.p : "", len);
    if (h->status == 200) {
        respond_count(f->api, METRIC_DIALECT_PASSTHROUGH, 200);
        exchange_start(f->x, f->type[0] ? f->type : "application/octet-stream");
    }
}

static void on_body(void *ctx, struct str bytes)
{
    struct forward *f = ctx;

    if (f->status != 200) {
        buf_add_str(&f->body, str_sub(bytes, 0, HELD_MAX - MIN_OF(f->body.len, HELD_MAX)));
        return;
    }
    buf_add_str(&f->body, bytes);
    exchange_send(f->x, &f->body);
    if (exchange_waiting(f->x) > EXCHANGE_WINDOW && !f->paused) {
        f->paused = true;
        http_call_pause(f->call);
        exchange_on_room(f->x, on_more, f);
    }
}

static void on_done(void *ctx)
{
    struct forward *f = ctx;

    f->call = NULL;
    if (f->status == 200) {
        exchange_end(f->x);
        return;
    }
    respond_count(f->api, METRIC_DIALECT_PASSTHROUGH, f->status);
    exchange_reply(f->x, f->status, f->type[0] ? f->type : "text/plain", buf_str(&f->body));
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct forward *f = ctx;

    (void)began;
    f->call = NULL;
    if (exchange_started(f->x))
        exchange_fail(f->x);
    else
        respond_error_to(f->api, f->x, NULL, METRIC_DIALECT_PASSTHROUGH, f->request_id, e);
}

static const struct http_events events = {on_head, on_body, on_done, on_failed};

/* The request as it came, but for the agent's key and its connection. */
static void write_headers(const struct api_request *r, const struct engine *g, struct buf *out)
{
    static const char *const kept[] = {"content-type", "accept", "user-agent"};

    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        struct str v = exchange_header(r->x, kept[i]);

        if (v.p)
            buf_printf(out, "%s: %.*s\r\n", kept[i], (int)v.len, v.p);
    }
    if (r->id.p)
        buf_printf(out, "X-SMG-Routing-Key: %.*s\r\n", (int)r->id.len, r->id.p);
    buf_add_str(out, buf_str(&g->authorization));
}

static void forward(struct api_request *r, const struct passthrough *p, struct forward *f)
{
    struct engine *g = &p->engines[str_hash(r->id, 1) % p->n];
    struct str method = exchange_method(r->x);
    struct str query = exchange_query(r->x);
    struct buf headers = {0};
    struct buf body = {0};
    struct buf path = {0};
    char name[16] = "";

    memcpy(name, method.p, MIN_OF(method.len, sizeof(name) - 1));
    buf_add_str(&path, r->rest);
    if (query.len > 0)
        buf_printf(&path, "?%.*s", (int)query.len, query.p);
    write_headers(r, g, &headers);
    buf_add_str(&body, exchange_body(r->x));
    f->call = http_client_start(g->client,
                                &(struct http_request){
                                    .method = name,
                                    .path = buf_str(&path),
                                    .headers = buf_str(&headers),
                                    .body = body.len > 0 ? &body : NULL,
                                    .total_timeout_ms = p->timeout_ms,
                                },
                                &events, f);
    buf_done(&headers);
    buf_done(&body);
    buf_done(&path);
}

void passthrough_serve(struct api_request *r)
{
    const struct passthrough *p = r->api->passthrough;
    const char *setting = r->api->heritage->config->passthrough;
    struct forward *f;
    struct err e = {0};

    if (p->n == 0 || (setting && strcmp(setting, "off") == 0)) {
        (void)err_set(&e, ERR_NOT_FOUND, "no such path");
        respond_error(r, NULL, &e);
        return;
    }
    f = mem_zalloc(sizeof(*f));
    f->api = r->api;
    f->x = r->x;
    memcpy(f->request_id, r->request_id, sizeof(f->request_id));
    exchange_watch(f->x, on_closed, f);
    forward(r, p, f);
}
