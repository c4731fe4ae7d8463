/* The reading belongs to the helper while it is read, then to the attempt again. */
#include "worker/engine/wire/long_text.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_work.h"
#include "worker/engine/wire/reading.h"

struct long_text {
    struct engine_work work;
    struct reading *reading;
    void (*done)(void *ctx, struct reading *r);
    void *ctx;
};

static void run(struct engine_work *w)
{
    reading_parse(CONTAINER_OF(w, struct long_text, work)->reading);
}

/* If the helper is stuck, its work is leaked. */
static void on_done(struct engine_work *w, enum engine_work_end end)
{
    struct long_text *t = CONTAINER_OF(w, struct long_text, work);
    struct reading *r = t->reading;
    void (*done)(void *ctx, struct reading *read) = t->done;
    void *ctx = t->ctx;

    if (end == ENGINE_WORK_FAILED)
        reading_free(r);
    if (end != ENGINE_WORK_STUCK)
        free(t);
    done(ctx, end == ENGINE_WORK_DONE ? r : NULL);
}

static void on_drop(struct engine_work *w)
{
    struct long_text *t = CONTAINER_OF(w, struct long_text, work);

    reading_free(t->reading);
    free(t);
}

void long_text_begin(struct reading *r, const struct engine_options *o, struct str session_id,
                     void (*done)(void *ctx, struct reading *r), void *ctx, struct long_text **ret)
{
    struct long_text *t = mem_zalloc(sizeof(*t));

    *ret = t;
    *t = (struct long_text){
        .work = {.run = run, .done = on_done, .drop = on_drop, .is_long = reading_takes_long(r)},
        .reading = r,
        .done = done,
        .ctx = ctx};
    engine_work_begin(&t->work, o->tasks, session_id);
}

void long_text_drop(struct long_text *t)
{
    if (t)
        engine_work_drop(&t->work);
}
