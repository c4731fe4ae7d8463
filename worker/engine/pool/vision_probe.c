/*
 * The probe is an ordinary call for one token, and the wire's own checks judge it: the answer must
 * contain the prompt's ids or length as the model's processor makes them. ERR_ENGINE_INVALID means
 * that the engine makes different tokens (drifts), ERR_ENGINE_REFUSED that it accepts no pictures
 * (none). Other failures prove nothing, and the next good health probe repeats it.
 */
#include "worker/engine/pool/vision_probe.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/replicas.h"
#include "worker/text/image/vision.h"
#include "worker/text/model/model.h"

enum { SAMPLE_SIDE = 64 };

/* Grey squares of 64 pixels. */
static const char PNG[] =
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAALElEQVR42u3MMREAAAgEoNeq9u9gCDcPAlCTm45A"
    "IBAIBAKBQCAQCASC58ECaTMA4ynLeaIAAAAASUVORK5CYII=";
static const char JPEG[] =
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAKBueIx4ZKCMgoy0qqC+8P//8Nzc8P//////////////////////////"
    "////////////////////////////////wAALCABAAEABAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAAH/xAAUEAEA"
    "AAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AIAAAAAAAAAAAAAAAAAAAAA//9k=";

static const char *const names[] = {NULL, "exact", "drifts", "none"};

static struct engine_image sample_image(const char *format, const char *base64, uint32_t tokens)
{
    return (struct engine_image){
        .format = str_cstr(format), .base64 = str_cstr(base64), .tokens = tokens};
}

void vision_sample_make(const struct model *m, struct arena *a, struct vision_sample *ret)
{
    const struct vision *v = m ? model_info(m)->vision : NULL;
    struct token_vec ids = {0};
    struct vision_grid g;
    struct sampling *one = arena_alloc(a, sizeof(*one));
    int32_t *at;

    *one = (struct sampling)SAMPLING_DEFAULTS;
    one->max_tokens = 1;
    *ret = (struct vision_sample){.sampling = one};
    if (v && !vision_grid(v, SAMPLE_SIDE, SAMPLE_SIDE, &g) && model_vision_sample(m, &ids) == 0) {
        at = arena_alloc(a, ids.n * sizeof(*at));
        memcpy(at, ids.at, ids.n * sizeof(*at));
        ret->prompt = (struct token_span){at, ids.n};
        ret->images[0] = sample_image("png", PNG, g.tokens);
        ret->images[1] = sample_image("jpeg", JPEG, g.tokens);
        ret->n_images = 2;
        ret->pad = v->pad;
    }
    vec_done(&ids);
}

/* --- the answer --- */

static void end_probe(struct replica *r, enum vision_state state, const char *why)
{
    r->vision->attempt = NULL;
    r->vision->state = state;
    if (state == VISION_EXACT)
        log_info(NULL, "engine takes images exactly", LOG_T("engine", r->target.name));
    else
        log_warn(NULL,
                 vision_probe_lets(r) ? "engine is asked with images (--media-drift=allow)"
                                      : "engine is not asked with images",
                 LOG_T("engine", r->target.name), LOG_T("vision", names[state]), LOG_T("why", why));
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    (void)ctx, (void)d; /* no deltas come, because a whole answer was requested */
}

static void on_done(void *ctx, const struct engine_result *res)
{
    (void)res;
    end_probe(ctx, VISION_EXACT, "");
}

/* An engine that is busy or down is asked again after its next good health probe. */
static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct replica *r = ctx;

    r->vision->attempt = NULL;
    if (how == ENGINE_ASK_ANEW)
        return;
    if (e->kind == ERR_ENGINE_INVALID)
        end_probe(r, VISION_DRIFTS, e->text);
    else if (e->kind == ERR_ENGINE_REFUSED)
        end_probe(r, VISION_NONE, e->text);
}

static const struct engine_attempt_events events = {on_delta, on_done, on_failed};

/* --- the probe --- */

void vision_probe_begin(struct replica *r)
{
    const struct vision_sample *s = r->all->sample;
    struct vision_probe *p = r->vision;

    if (s->n_images == 0 || !r->adapter->takes_images || r->all->held || p->attempt ||
        p->state != VISION_UNPROVEN)
        return;
    p->req = (struct engine_request){
        .session_id = STR("vision-probe"),
        .prompt = token_parts_of(&s->prompt),
        .sampling = s->sampling,
        .images = s->images,
        .n_images = s->n_images,
        .image_pad = s->pad,
    };
    p->attempt = r->adapter->start(r->impl, &p->req, &events, r);
}

bool vision_probe_lets(const struct replica *r)
{
    return r->adapter->takes_images &&
           (r->vision->state == VISION_UNPROVEN || r->vision->state == VISION_EXACT ||
            (r->vision->state == VISION_DRIFTS && r->all->lets_drift));
}

bool vision_probe_proven(const struct replica *r)
{
    return r->adapter->takes_images && (!r->adapter->probe || r->vision->state == VISION_EXACT);
}

const char *vision_probe_told(const struct replica *r)
{
    if (r->all->sample->n_images == 0)
        return NULL;
    if (!r->adapter->takes_images)
        return names[VISION_NONE];
    return names[vision_probe_proven(r) ? VISION_EXACT : r->vision->state];
}

void vision_probe_forget(struct replica *r)
{
    if (r->vision->attempt)
        r->adapter->cancel(r->vision->attempt);
    r->vision->attempt = NULL;
    r->vision->state = VISION_UNPROVEN;
}
