/* GET /sessions/{id}/media/{media}: the bytes of a picture that the session refers to. */
#include "common/base/arena.h"
#include "common/codec/sha256.h"
#include "worker/control/handlers.h"
#include "worker/image/image_header.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"

/* Headers borrow it. */
static const char *type_of(struct str bytes)
{
    static const char *const types[IMAGE_FORMATS] = {"image/png", "image/jpeg", "image/webp",
                                                     "image/gif", "image/bmp"};
    struct image_header header;

    return image_header_read(bytes, &header) ? "application/octet-stream" : types[header.format];
}

static void send_picture(struct service_request *r, struct str media, struct buf *bytes)
{
    const char *type = type_of(buf_str(bytes));
    struct buf etag = {0};

    buf_printf(&etag, "\"%.*s\"", (int)media.len, media.p);
    exchange_set_header(r->x, "ETag", buf_str(&etag));
    exchange_set_header(r->x, "Cache-Control", STR("private, max-age=31536000, immutable"));
    exchange_set_header(r->x, "X-Content-Type-Options", STR("nosniff"));
    exchange_set_header(r->x, "Content-Security-Policy", STR("default-src 'none'; sandbox"));
    if (str_find(exchange_header(r->x, "if-none-match"), buf_str(&etag), 0) != SIZE_MAX) {
        respond_empty(r, 304);
    } else {
        respond_count(r->service, r->dialect, 200);
        exchange_reply_buf(r->x, 200, type, bytes);
    }
    buf_done(&etag);
}

void media_get(struct service_request *r)
{
    const struct media_store *store = r->service->calls.media;
    struct str media = str_sub(r->rest, strlen("/media/"), SIZE_MAX);
    struct buf bytes = {0};
    struct err e = {0};

    if (!control_find(r, true, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    if (!sha256_is_hex(media))
        (void)err_set(&e, ERR_NOT_FOUND, "the session has no such image");
    else
        (void)media_store_get(store, r->id, media, &bytes, &e);
    if (e.kind != ERR_NONE)
        respond_error(r, NULL, &e);
    else
        send_picture(r, media, &bytes);
    buf_done(&bytes);
}
