/* GET /sessions/{id}/media/{media}: sends the bytes of a picture that the session refers to. They
 * are read and sent piece by piece, because a picture may have 20 MiB and other requests wait for
 * the loop. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/sha256.h"
#include "common/serve/exchange.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/text/image/image_header.h"

enum { PIECE_BYTES = 128 << 10 };

struct picture_sending {
    struct media_file file;
    struct buf start; /* first piece of the picture */
};

static void sending_free(struct picture_sending *s)
{
    media_file_close(&s->file);
    buf_done(&s->start);
    free(s);
}

static const char *type_of(struct str start)
{
    static const char *const types[IMAGE_FORMATS] = {"image/png", "image/jpeg", "image/webp",
                                                     "image/gif", "image/bmp"};
    enum image_format format;

    return image_format_of(start, &format) ? types[format] : "application/octet-stream";
}

MAY_PAUSE static int put_picture(struct answering *a, struct media_file *file, struct err *e)
{
    while (file->left > 0) {
        if (answering_flow(a, e))
            return -1;
        if (media_file_read(file, PIECE_BYTES, &a->out))
            return err_set(e, ERR_STORAGE_FAILED, "an image cannot be read back");
    }
    return 0;
}

static void send_picture(struct answering *a, void *ctx)
{
    struct picture_sending *s = ctx;
    struct err e = {0};

    a->type = type_of(buf_str(&s->start));
    a->out = s->start;
    s->start = (struct buf){0};
    if (put_picture(a, &s->file, &e) == 0)
        answering_end(a);
    else
        answering_fail(a, "an image broke", &e);
    sending_free(s);
}

/* Writes headers that stop a browser from running hostile bytes as a page. Returns whether the
 * client has the picture already: a picture never changes. */
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
    if (media_file_read(&s->file, PIECE_BYTES, &s->start) != 0)
        return err_set(e, ERR_STORAGE_FAILED, "an image cannot be read back");
    return 0;
}

void media_get(struct service_request *r)
{
    struct str media = str_sub(r->rest, strlen("/media/"), SIZE_MAX);
    struct picture_sending *s = mem_zalloc(sizeof(*s));
    struct err e = {0};

    s->file.fd = -1;
    if (open_picture(r, media, s, &e) != 0) {
        respond_error(r, NULL, &e);
        sending_free(s);
    } else if (put_headers(r, media)) {
        respond_empty(r, 304);
        sending_free(s);
    } else {
        answering_start(r, send_picture, s);
    }
}
