/*
 * Storing comes first, for the commit record names pictures by their hash: no record may name
 * bytes that nobody has. Gathering walks the messages of the call's path in order, which is the
 * order of the placeholders in the prompt. A picture that this very request brought is taken from
 * it, without reading the disk or encoding base64 anew; all are copied or borrowed for the call's
 * life.
 */
#include "worker/call/call_images.h"

#include "common/codec/base64.h"
#include "worker/image/vision.h"
#include "worker/media/media_store.h"
#include "worker/model/model.h"
#include "worker/request/images.h"

int call_images_keep(const struct model_call *t, struct err *e)
{
    const struct chat_request *req = t->in.req;

    for (uint32_t i = 0; i < req->n_images; i++)
        if (media_store_put(t->env->media, t->in.session_id, req->images[i].media,
                            req->images[i].bytes, e) != 0)
            return -1;
    return 0;
}

struct images_gathering {
    struct model_call *call;
    struct err *e;
    int rc;
};

/* The base64 of a picture that this request brought; absent: it is an earlier one. */
static struct str sent_base64(const struct chat_request *req, struct str media)
{
    for (uint32_t i = 0; i < req->n_images; i++)
        if (str_eq(req->images[i].media, media))
            return req->images[i].base64;
    return (struct str){0};
}

static int stored_base64(struct images_gathering *g, struct str media, struct str *ret)
{
    struct model_call *t = g->call;
    struct buf bytes = {0};
    char *text;
    int rc = media_store_get(t->env->media, t->in.session_id, media, &bytes, g->e);

    if (rc == 0) {
        text = arena_alloc(&t->arena, base64_encoded_len(bytes.len) + 1);
        base64_encode(bytes.p, bytes.len, text);
        *ret = str_of(text, base64_encoded_len(bytes.len));
    } else if (g->e->kind == ERR_NOT_FOUND) { /* it is on record, so it was there */
        rc = err_set(g->e, ERR_STORAGE_FAILED,
                     "an image of this conversation is gone from the disk");
    }
    buf_done(&bytes);
    return rc;
}

static void take_image(void *ctx, const struct json *part)
{
    struct images_gathering *g = ctx;
    struct engine_image *image = &g->call->images[g->call->n_images];
    struct image_part p;

    if (g->rc != 0)
        return;
    image_part_read(part, &p);
    image->format = p.format;
    image->tokens = p.tokens;
    image->base64 = sent_base64(g->call->in.req, p.media);
    if (!image->base64.p && stored_base64(g, p.media, &image->base64) != 0)
        g->rc = -1;
    else
        g->call->n_images++;
}

int call_images_gather(struct model_call *t, struct err *e)
{
    struct images_gathering g = {t, e, 0};

    t->images = arena_calloc(&t->arena, t->plan->images, sizeof(*t->images));
    images_each(session_plan_messages(t->plan), 0, take_image, &g);
    return g.rc;
}

void call_images_put(const struct model_call *t, struct engine_request *er)
{
    const struct vision *v = model_info(t->env->model)->vision;

    if (t->n_images == 0)
        return;
    er->images = t->images;
    er->n_images = t->n_images;
    er->image_pad = v->pad;
    /* A stream tells only how long the prompt was. Until the engines are proven to take pictures
     * exactly the answer is asked for whole, which tells more. */
    er->stream = er->stream && engine_pool_images_proven(t->env->engines);
    er->banned = (struct token_span){v->banned, v->n_banned};
}

struct image_rules call_image_rules(const struct call_env *env)
{
    struct image_rules rules = env->images;

    if (!engine_pool_takes_images(env->engines))
        rules.vision = NULL;
    return rules;
}
