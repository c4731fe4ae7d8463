/* The helper has alternatives and parameters of its own: the request may be over before it. */
#include "worker/engine/wire/score_work.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_work.h"
#include "worker/engine/wire/processed.h"

enum {
    ON_LOOP_MAX = 4096, /* alternatives: a fraction of a millisecond of exp() */
    LONG = 64 << 10,    /* several milliseconds of it */
};

struct score_work {
    struct engine_work work;
    const struct engine_options *options; /* the remote's */
    struct processed p;                   /* its logprobs are own */
    struct sampling sampling;
    float logprob;
    int rc;
    void (*done)(void *ctx, int rc, float logprob);
    void *ctx;
};

bool score_work_is_long(size_t n)
{
    return n > ON_LOOP_MAX;
}

static void run(struct engine_work *w)
{
    struct score_work *s = CONTAINER_OF(w, struct score_work, work);

    s->rc = processed_logprob(&s->p, &s->logprob);
}

static void on_drop(struct engine_work *w)
{
    struct score_work *s = CONTAINER_OF(w, struct score_work, work);

    vec_done(&s->p.logprobs);
    free(s);
}

/* What a stuck helper has is lost. */
static void on_done(struct engine_work *w, enum engine_work_end end)
{
    struct score_work *s = CONTAINER_OF(w, struct score_work, work);
    void (*done)(void *ctx, int rc, float logprob) = s->done;
    void *ctx = s->ctx;
    int rc = end == ENGINE_WORK_DONE ? s->rc : -1;
    float logprob = end == ENGINE_WORK_DONE ? s->logprob : 0;

    if (end != ENGINE_WORK_STUCK)
        on_drop(w);
    done(ctx, rc, logprob);
}

void score_work_begin(const struct engine_options *o, struct str session_id, struct processed *p,
                      void (*done)(void *ctx, int rc, float logprob), void *ctx,
                      struct score_work **ret)
{
    struct score_work *s = mem_zalloc(sizeof(*s));

    *ret = s;
    *s = (struct score_work){
        .work = {.run = run, .done = on_done, .drop = on_drop, .is_long = p->logprobs.n > LONG},
        .options = o,
        .p = *p,
        .sampling = *p->sampling,
        .done = done,
        .ctx = ctx};
    s->p.sampling = &s->sampling;
    p->logprobs = (struct json_floats){0};
    o->helper->begin(o->helper_ctx, &s->work, session_id);
}

void score_work_drop(struct score_work *w)
{
    if (w)
        w->options->helper->drop(w->options->helper_ctx, &w->work);
}
