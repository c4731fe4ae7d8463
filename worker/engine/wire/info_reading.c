/* The helper has text and facts of its own: the replica may be gone before it. */
#include "worker/engine/wire/info_reading.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/engine/engine_pool.h"
#include "worker/engine/engine_work.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/remote.h"

enum { ON_LOOP_MAX = 64 << 10 }; /* bytes: half a millisecond or more */

struct info_reading {
    struct engine_work work;
    struct remote *remote;
    const struct wire *wire;
    struct buf text;
    struct engine_facts facts;
    void (*done)(struct remote *r);
};

static void read_text(const struct wire *wire, struct str text, struct engine_facts *facts)
{
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err e = {0};

    if (json_parse(&arena, text, &v, &e) == 0)
        wire->take_info(v, facts);
    arena_done(&arena);
}

static void run(struct engine_work *w)
{
    struct info_reading *i = CONTAINER_OF(w, struct info_reading, work);

    read_text(i->wire, buf_str(&i->text), &i->facts);
}

static void on_drop(struct engine_work *w)
{
    struct info_reading *i = CONTAINER_OF(w, struct info_reading, work);

    buf_done(&i->text);
    free(i);
}

/* What a stuck helper has is lost. */
static void on_done(struct engine_work *w, enum engine_work_end end)
{
    struct info_reading *i = CONTAINER_OF(w, struct info_reading, work);
    struct remote *r = i->remote;
    void (*done)(struct remote * r) = i->done;

    r->info_reading = NULL;
    if (end == ENGINE_WORK_DONE)
        r->facts = i->facts;
    if (end != ENGINE_WORK_STUCK)
        on_drop(w);
    done(r);
}

void info_reading_begin(struct remote *r, struct buf *text, void (*done)(struct remote *r))
{
    struct info_reading *i;

    if (text->len <= ON_LOOP_MAX || !r->options->helper) {
        read_text(r->wire, buf_str(text), &r->facts);
        buf_done(text);
        done(r);
        return;
    }
    i = mem_zalloc(sizeof(*i));
    *i = (struct info_reading){
        .work = {.run = run, .done = on_done, .drop = on_drop, .is_long = true},
        .remote = r,
        .wire = r->wire,
        .text = *text,
        .facts = r->facts,
        .done = done};
    *text = (struct buf){0};
    r->info_reading = i;
    r->options->helper->begin(r->options->helper_ctx, &i->work, STR("engine"));
}

void info_reading_drop(struct info_reading *i)
{
    if (i)
        i->remote->options->helper->drop(i->remote->options->helper_ctx, &i->work);
}
