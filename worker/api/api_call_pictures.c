/*
 * Pictures that a request names by URL: fetched in a thread that may wait, one after the other,
 * within one time limit. What the session has had from a URL stays what it was, whatever lies there
 * now: a history that is sent again must be the same history. So what is on record for the session
 * comes first, and nothing is fetched for it.
 */
#include <string.h>

#include "common/base/clock.h"
#include "common/net/web_fetch.h"
#include "common/net/web_url.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/dialect/image_parts.h"
#include "worker/media/media_store.h"
#include "worker/request/chat_request.h"

struct picture_look {
    const struct api_call *call;
    uint64_t until_us;
    struct tls_context **tls; /* of the thread */
};

/* The part that is on record; NULL: none that can be read. */
static const struct json *look_up(const struct api_call *c, struct arena *a, struct str url)
{
    struct buf text = {0};
    const struct json *part = NULL;

    if (media_store_pinned(c->service->calls.media, str_cstr(c->id), url, &text) &&
        (json_parse(a, arena_str(a, buf_str(&text)), &part, NULL) != 0 || !image_part_is(part)))
        part = NULL;
    buf_done(&text);
    return part;
}

/* image_source.get, in a thread. */
static int get(void *ctx, struct arena *a, struct str url, struct request_image *ret,
               const struct json **ret_part, struct err *e)
{
    const struct picture_look *l = ctx;
    const struct call_env *env = &l->call->service->calls;
    struct web_fetch f = {env->web, env->web_ca_file, l->tls, l->call->images.image_bytes,
                          l->until_us};
    struct buf file = {0};
    char *bytes;
    int rc;

    *ret_part = look_up(l->call, a, url);
    if (*ret_part)
        return 0;
    rc = web_fetch(&f, url, &file, e);
    if (rc == 0) {
        bytes = arena_alloc_alone(a, file.len + 1);
        memcpy(bytes, file.p ? file.p : "", file.len);
        ret->bytes = str_of(bytes, file.len);
    } else if (e->kind == ERR_INVALID || e->kind == ERR_IO) {
        e->kind = ERR_INVALID_IMAGE;
    }
    buf_done(&file);
    return rc;
}

static int fetch_all(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);
    struct picture_look l = {c, clock_us() + c->service->calls.fetch_timeout_ms * 1000,
                             &tools->tls};
    const struct image_source source = {get, &l};

    c->arena.max_bytes = c->limits.memory_bytes; /* the body's length says nothing here */
    return image_parts_fetch(&c->arena, &c->images, &source, c->req, e);
}

static void on_fetched(struct long_work *w, const struct err *e)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);

    exchange_watch(c->x, NULL, NULL);
    exchange_let(c->x);
    c->fetched(c, e);
}

/* The client left, and the thread has let go. */
static void on_dropped(struct long_work *w)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);
    struct exchange *x = c->x;

    api_call_free(c);
    exchange_let(x);
}

static void on_left(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered;
    work_drop(&c->fetching);
}

void api_call_fetch(struct api_call *c, void (*done)(struct api_call *c, const struct err *e))
{
    c->fetched = done;
    c->fetching.run = fetch_all;
    c->fetching.done = on_fetched;
    c->fetching.drop = on_dropped;
    work_fetch(&c->service->calls, &c->fetching, str_cstr(c->id));
    exchange_hold(c->x);
    exchange_watch(c->x, on_left, c);
}
