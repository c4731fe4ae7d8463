/*
 * Pictures that a request names by URL: fetched in a thread that may wait, one after the other,
 * within one time limit that begins when the request has been read. A session's picture from a URL
 * never changes, even if the URL has a different one now, because a history that is sent again must
 * be the same history. So a picture on record for the session is used without a fetch. A fetched
 * picture is stored and recorded at once, before a different request can fetch it for the session.
 * If the session does not exist yet, that is done with the other pictures of the request
 * (call_images_keep).
 *
 * A shortage of our own is reported as such (503, to be retried), because clients drop a picture
 * for good if the error blames it.
 */
#include "worker/plane/api/picture_fetch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/net/web_fetch.h"
#include "worker/dialect/image_parts.h"
#include "worker/media/media_store.h"
#include "worker/text/request/images.h"

/* Memory factor of a picture during a fetch: a buffer that doubles as it grows, and the final
 * copy. */
enum { FETCH_GROWTH = 3 };

/* Reports whether a note is about a picture. */
static bool is_picture_note(struct str text)
{
    const struct json *part = NULL;
    struct arena a = {0};
    bool is = json_parse(&a, text, &part, NULL) == 0 && image_part_is(part);

    arena_done(&a);
    return is;
}

static struct media_pin pin_of(const struct picture_fetch *f, struct str url)
{
    return (struct media_pin){.session_id = f->session_id, .url = url, .is_whole = is_picture_note};
}

/* Parses the picture's part in a note, into the arena. */
static int parse_note(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    return json_parse(a, arena_str(a, text), ret, e);
}

/* Finds the picture's part on record for the session; NULL: none. Returns -1 if that is unknown. */
static int find_recorded(const struct picture_fetch *f, struct arena *a, struct str url,
                         const struct json **ret, struct err *e)
{
    struct media_pin pin = pin_of(f, url);
    struct buf text = {0};
    int rc;

    *ret = NULL;
    if (!f->session_id.p)
        return 0;
    rc = media_store_pinned(f->media, &pin, &text, e);
    if (rc == 1)
        rc = parse_note(a, buf_str(&text), ret, e);
    else if (rc == 0)
        rc = media_store_pin_room(f->media, f->session_id, e);
    buf_done(&text);
    return rc;
}

static int fail_unavailable(struct err *e, const char *text)
{
    (void)err_set(e, ERR_OVERLOADED, "%s", text);
    e->status = 503;
    return -1;
}

static void release_bytes(struct picture_fetch *f, size_t bytes)
{
    f->reserved -= bytes;
    atomic_fetch_sub(f->sum, bytes);
}

/* Reserves bytes for one more picture within the limit of all requests. The first picture always
 * succeeds. */
static int reserve_bytes(struct picture_fetch *f, size_t bytes, struct err *e)
{
    size_t before = atomic_fetch_add(f->sum, bytes);

    f->reserved += bytes;
    if (before == 0 || before + bytes <= f->memory_bytes)
        return 0;
    release_bytes(f, bytes);
    return err_set(e, ERR_MEMORY_FULL,
                   "images that are being fetched take all the memory there is for them "
                   "(--max-request-memory)");
}

/* Records the failure, and decides whose fault it is. */
static int judge_failure(struct picture_fetch *f, struct str url, struct err *e)
{
    enum err_kind kind = e->kind;
    struct web_url u;

    if (kind == ERR_CANCELLED) {
        f->counts[METRIC_FETCH_CANCELLED]++;
        return -1;
    }
    if (kind == ERR_BODY_TOO_LARGE) {
        f->counts[METRIC_FETCH_TOO_LARGE]++;
        return IMAGE_AT_FAULT;
    }
    f->why = *e;
    f->host[0] = '\0';
    if (!web_url_parse(url, &u))
        memcpy(f->host, u.host, sizeof(f->host));
    if (kind == ERR_INVALID ||
        (kind == ERR_IO && e->sys == 0 && !(f->waited && clock_us() >= f->until_us))) {
        f->counts[kind == ERR_INVALID ? METRIC_FETCH_REFUSED : METRIC_FETCH_FAILED]++;
        e->kind = ERR_INVALID_IMAGE;
        return IMAGE_AT_FAULT;
    }
    f->counts[METRIC_FETCH_UNAVAILABLE]++;
    if (err_retry(e))
        return -1;
    return fail_unavailable(e, "images cannot be fetched at the moment; ask again");
}

/* Fetches the file into the arena. Its bytes stay reserved. */
static int fetch_file(struct picture_fetch *f, struct arena *a, struct str url, struct str *ret,
                      struct err *e)
{
    size_t max = f->rules.image_bytes, room = max * FETCH_GROWTH;
    struct web_fetch w = {f->web, f->ca_file, f->tls, max, f->until_us};
    struct buf file = {0};
    char *bytes;
    int rc;

    if (reserve_bytes(f, room, e)) {
        f->counts[METRIC_FETCH_UNAVAILABLE]++;
        return -1;
    }
    rc = web_fetch(&w, url, &file, e);
    if (rc == 0) {
        f->counts[METRIC_FETCH_FETCHED]++;
        bytes = arena_alloc_alone(a, file.len + 1);
        memcpy(bytes, file.p ? file.p : "", file.len);
        *ret = str_of(bytes, file.len);
        room -= file.len;
    } else {
        rc = judge_failure(f, url, e);
    }
    buf_done(&file);
    release_bytes(f, room);
    return rc;
}

/* Implements image_source.get. */
static int get_image(void *ctx, struct arena *a, struct str url, struct request_image *ret,
                     const struct json **ret_part, struct err *e)
{
    struct picture_fetch *f = ctx;

    if (find_recorded(f, a, url, ret_part, e)) {
        f->counts[e->kind == ERR_BODY_TOO_LARGE ? METRIC_FETCH_REFUSED
                                                : METRIC_FETCH_UNAVAILABLE]++;
        return -1;
    }
    if (!*ret_part)
        return fetch_file(f, a, url, &ret->bytes, e);
    f->counts[METRIC_FETCH_RECORDED]++;
    return 0;
}

/* Implements image_source.keep. The file is stored first, so that no note names a missing file. */
static int keep_image(void *ctx, struct arena *a, struct request_image *image,
                      const struct json **ret_part, struct err *e)
{
    struct picture_fetch *f = ctx;
    struct media_pin pin = pin_of(f, image->url);
    struct buf held = {0};
    int rc;

    if (!f->session_id.p)
        return 0;
    rc = media_store_put(f->media, f->session_id, image->media, image->bytes, e);
    if (rc == 0)
        rc = media_store_pin(f->media, &pin, image->part, &held, e);
    if (rc == 1)
        rc = parse_note(a, buf_str(&held), ret_part, e);
    buf_done(&held);
    release_bytes(f, image->bytes.len);
    arena_drop(a, image->bytes.p);
    image->bytes = (struct str){0};
    return rc;
}

int picture_fetch_run(struct picture_fetch *f, struct arena *a, struct chat_request *req,
                      struct err *e)
{
    const struct image_source source = {get_image, keep_image, f};
    uint64_t now = clock_us();

    f->waited = now + f->limit_us / 2 >= f->until_us;
    if (now >= f->until_us)
        return fail_unavailable(e,
                                "no thread was free to fetch images within --media-fetch-timeout");
    return image_parts_fetch(a, &f->rules, &source, req, e);
}

void picture_fetch_free(struct picture_fetch *f)
{
    release_bytes(f, f->reserved);
    free(f->ca_file);
    free(f);
}
