/*
 * Storing comes first, because the commit record names pictures by their hash, and no record may
 * name bytes that are not stored. Gathering walks the messages of the call's path in order, which
 * is the order of the placeholders in the prompt. From then on pictures are files: the request's
 * memory is freed before the engine is asked, and the engine's request reads them piece by piece.
 * The request's pictures were compared with their files (media_store_put); the others are checked
 * against their hash.
 */
#include "worker/plane/call/call_images.h"

#include <string.h>

#include "common/base/arena.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/media/media_store.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/session/call/session_call.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/images.h"

/* Checks the length of a note where it is made first, because later it must never be cut. */
static bool is_fetch_note(struct str text)
{
    return text.len > 0 && memchr(text.p, '\0', text.len) == NULL;
}

/* Handles a picture that was fetched before the call had a session. If the session has a note of
 * its URL, the picture must be the noted one. */
static int pin_image(const struct model_call *t, const struct request_image *image, struct err *e)
{
    struct media_pin of = {
        .session_id = t->in.session_id, .url = image->url, .is_whole = is_fetch_note};
    struct buf held = {0};
    int rc = media_store_pin(t->env->media, &of, image->part, &held, e);

    if (rc == 1 && !str_eq(buf_str(&held), image->part))
        rc = err_set(e, ERR_OVERLOADED,
                     "the session was given another image from a URL meanwhile; ask again");
    buf_done(&held);
    return rc < 0 ? -1 : 0;
}

int call_images_keep(struct model_call *t, struct err *e)
{
    const struct chat_request *req = t->in.req;

    for (uint32_t i = 0; i < req->n_images; i++) {
        struct request_image *image = &req->images[i];

        if (media_store_put(t->env->media, t->in.session_id, image->media, image->bytes, e) != 0 ||
            (image->url.p && pin_image(t, image, e) != 0))
            return -1;
        arena_drop(&t->arena, image->bytes.p);
        image->bytes = (struct str){0};
    }
    return 0;
}

struct images_gathering {
    struct model_call *call;
    struct err *e;
    int rc;
};

static bool is_brought(const struct chat_request *req, struct str media)
{
    for (uint32_t i = 0; i < req->n_images; i++)
        if (str_eq(req->images[i].media, media))
            return true;
    return false;
}

/* Checks that the session's store has an image that is on record. */
static int check_stored(const struct model_call *t, struct str media, struct err *e)
{
    int rc = media_store_check(t->env->media, t->in.session_id, media, e);

    if (rc != 0 && e->kind == ERR_NOT_FOUND) /* the image is on record, so it existed once */
        return err_set(e, ERR_STORAGE_FAILED,
                       "an image of this conversation is gone from the disk");
    return rc;
}

static void add_image(void *ctx, const struct json *part)
{
    struct images_gathering *g = ctx;
    struct model_call *t = g->call;
    struct engine_image *image = &t->images[t->n_images];
    struct image_part p;

    if (g->rc != 0)
        return;
    image_part_read(part, &p);
    image->format = p.format;
    image->tokens = p.tokens;
    image->bytes = p.bytes;
    image->file = media_store_path(t->env->media, &t->arena, t->in.session_id, p.media);
    if (!is_brought(t->in.req, p.media) && check_stored(t, p.media, g->e) != 0)
        g->rc = -1;
    else
        t->n_images++;
}

int call_images_gather(struct model_call *t, struct err *e)
{
    struct images_gathering g = {t, e, 0};

    t->images = arena_calloc(&t->arena, t->plan->images, sizeof(*t->images));
    images_each(session_plan_messages(t->plan), 0, add_image, &g);
    return g.rc;
}

struct token_span call_images_banned(const struct model_call *t)
{
    const struct vision *v = model_info(t->env->model)->vision;

    return t->n_images ? (struct token_span){v->banned, v->n_banned} : (struct token_span){0};
}

void call_images_put(const struct model_call *t, struct engine_request *er)
{
    const struct vision *v = model_info(t->env->model)->vision;

    if (t->n_images == 0)
        return;
    er->images = t->images;
    er->n_images = t->n_images;
    er->image_pad = v->pad;
    /* Requests the answer without streaming until the engines are proven to handle images exactly,
     * because a streamed answer reports only the length of the prompt and a whole answer reports
     * more. */
    er->stream = er->stream && engine_pool_images_proven(t->engines);
    er->media_drift = t->env->media_drift;
    er->banned = call_images_banned(t);
}
