/* GET /sessions/{id}/media/{media}: the bytes of a picture that the session refers to, read and
 * sent piece by piece: some are 20 MiB, and others wait for the loop. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/sha256.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/image/image_header.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"

enum { PIECE_BYTES = 128 << 10 };

struct picture_sending {
    struct service_request request; /* until the answer has started */
    struct media_file file;
    struct buf out;
    struct loop_task later; /* the next piece, after everybody else had a turn */
};

static void sending_free(struct picture_sending *s)
{
    loop_task_cancel(s->request.service->calls.loop, &s->later);
    media_file_close(&s->file);
    buf_done(&s->out);
    free(s);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    sending_free(ctx);
}

static void on_later(struct loop_task *t)
{
    struct picture_sending *s = CONTAINER_OF(t, struct picture_sending, later);
    struct exchange *x = s->request.x;

    if (media_file_read(&s->file, PIECE_BYTES, &s->out) != 0) {
        exchange_fail(x);
        return;
    }
    exchange_send(x, &s->out);
    if (s->file.left == 0)
        exchange_end(x);
}

static void on_more(void *ctx)
{
    struct picture_sending *s = ctx;

    loop_task_post(s->request.service->calls.loop, &s->later, on_later);
}

static const char *type_of(struct str start)
{
    static const char *const types[IMAGE_FORMATS] = {"image/png", "image/jpeg", "image/webp",
                                                     "image/gif", "image/bmp"};
    enum image_format format;

    return image_format_of(start, &format) ? types[format] : "application/octet-stream";
}

/* The first piece is there: what is no longer is a plain answer. */
static void send_picture(struct picture_sending *s)
{
    struct service_request *r = &s->request;
    const char *type = type_of(buf_str(&s->out));

    respond_count(r->service, r->dialect, 200);
    if (s->file.left == 0) {
        exchange_reply_buf(r->x, 200, type, &s->out);
        sending_free(s);
        return;
    }
    exchange_watch(r->x, on_closed, s);
    exchange_start(r->x, type);
    exchange_send(r->x, &s->out);
    exchange_pull(r->x, on_more, s);
}

/* Hostile bytes that a browser opens as what they are not run nothing. Returns whether the client
 * has the picture: it never changes. */
static bool put_headers(struct service_request *r, struct str media)
{
    struct buf etag = {0};
    bool same;

    buf_printf(&etag, "\"%.*s\"", (int)media.len, media.p);
    exchange_set_header(r->x, "ETag", buf_str(&etag));
    exchange_set_header(r->x, "Cache-Control", STR("private, max-age=31536000, immutable"));
    exchange_set_header(r->x, "X-Content-Type-Options", STR("nosniff"));
    exchange_set_header(r->x, "Content-Security-Policy", STR("default-src 'none'; sandbox"));
    same = str_find(exchange_header(r->x, "if-none-match"), buf_str(&etag), 0) != SIZE_MAX;
    buf_done(&etag);
    return same;
}

static int open_picture(struct service_request *r, struct str media, struct picture_sending *s,
                        struct err *e)
{
    if (!control_find(r, true, e))
        return -1;
    if (!sha256_is_hex(media))
        return err_set(e, ERR_NOT_FOUND, "the session has no such image");
    if (media_store_open(r->service->calls.media, r->id, media, &s->file, e) != 0)
        return -1;
    if (media_file_read(&s->file, PIECE_BYTES, &s->out) != 0)
        return err_set(e, ERR_STORAGE_FAILED, "an image cannot be read back");
    return 0;
}

void media_get(struct service_request *r)
{
    struct str media = str_sub(r->rest, strlen("/media/"), SIZE_MAX);
    struct picture_sending *s = mem_zalloc(sizeof(*s));
    struct err e = {0};

    s->request = *r;
    s->file.fd = -1;
    if (open_picture(r, media, s, &e) != 0) {
        respond_error(r, NULL, &e);
        sending_free(s);
    } else if (put_headers(r, media)) {
        respond_empty(r, 304);
        sending_free(s);
    } else {
        send_picture(s);
    }
}
