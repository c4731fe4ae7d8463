#include "runner/post.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { ANSWER_MAX = 64 << 20 };

struct post {
    struct http_call *call;
    post_fn fn;
    void *ctx;
    int status;
    struct buf body;
};

static void post_end(struct post *p, int status, const struct err *e)
{
    p->fn(p->ctx, status, buf_str(&p->body), e);
    buf_done(&p->body);
    free(p);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct post *)ctx)->status = h->status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct post *p = ctx;
    struct err e;

    if (p->body.len + bytes.len <= ANSWER_MAX) {
        buf_add_str(&p->body, bytes);
        return;
    }
    http_call_cancel(p->call);
    (void)err_set(&e, ERR_INVALID, "the answer is longer than %d bytes", ANSWER_MAX);
    post_end(p, 0, &e);
}

static void on_done(void *ctx)
{
    struct post *p = ctx;
    struct err none = {0};

    post_end(p, p->status, &none);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    post_end(ctx, 0, e);
}

/* A request has so many parts. NOLINTNEXTLINE(readability-function-size) */
struct post *post_request(struct http_client *c, const char *method, const char *path,
                          const char *key, struct buf *body, uint64_t total_timeout_ms, post_fn fn,
                          void *ctx)
{
    static const struct http_events events = {on_head, on_body, on_done, on_failed};
    struct post *p = mem_zalloc(sizeof(*p));
    struct buf headers = {0};

    p->fn = fn;
    p->ctx = ctx;
    if (body)
        buf_puts(&headers, "Content-Type: application/json\r\n");
    if (key)
        buf_printf(&headers, "Authorization: Bearer %s\r\n", key);
    p->call = http_client_start(c,
                                &(struct http_request){.method = method,
                                                       .path = str_cstr(path),
                                                       .headers = buf_str(&headers),
                                                       .body = body,
                                                       .total_timeout_ms = total_timeout_ms},
                                &events, p);
    buf_done(&headers);
    return p;
}

/* NOLINTNEXTLINE(readability-function-size): the same */
struct post *post_start(struct http_client *c, const char *path, const char *key, struct buf *body,
                        uint64_t total_timeout_ms, post_fn fn, void *ctx)
{
    return post_request(c, "POST", path, key, body, total_timeout_ms, fn, ctx);
}

void post_cancel(struct post *p)
{
    if (!p)
        return;
    http_call_cancel(p->call);
    buf_done(&p->body);
    free(p);
}
