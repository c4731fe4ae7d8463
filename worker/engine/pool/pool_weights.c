/* The trainer's versions of the weights (weights_file.h) and of adapters, and the stamps of running
 * answers with them. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/engine/pool/lora.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/splice.h"
#include "worker/engine/pool/weights_file.h"

void pool_weights_init(struct engine_pool *p)
{
    p->loras = mem_zalloc(sizeof(*p->loras));
}

void pool_weights_done(struct engine_pool *p)
{
    lora_done(p->loras);
    free(p->loras);
}

struct str pool_told_version(const struct engine_call *c)
{
    return c->req.lora.len > 0 ? lora_version(c->pool->loras, c->req.lora)
                               : buf_str(&c->pool->version);
}

void pool_stamp(struct engine_call *c)
{
    uint32_t start = c->req.stream ? c->given : (uint32_t)c->splice->ids.n;
    struct str version = arena_str(&c->arena, pool_told_version(c));

    /* No token came under the last version, so it never applied. */
    if (c->stamps.n > 0 && vec_last(&c->stamps).start >= start)
        vec_last(&c->stamps).version = version;
    else
        *vec_push(&c->stamps) = (struct stamp){version, start};
}

void engine_pool_set_version(struct engine_pool *p, struct str version)
{
    struct engine_call *c;

    buf_set(&p->version, version);
    if (version.len == 0)
        return;
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (c->req.lora.len == 0 && (c->state == CALL_RUNNING || c->stamps.n > 0))
            pool_stamp(c);
    }
}

static void set_lora(struct engine_pool *p, struct str name, struct str version)
{
    struct engine_call *c;

    /* cannot fail: the file has at most as many entries as the book */
    (void)lora_set(p->loras, name, version);
    if (version.len == 0)
        return;
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (str_eq(c->req.lora, name) && (c->state == CALL_RUNNING || c->stamps.n > 0))
            pool_stamp(c);
    }
}

/* Applies the file's adapters. Missing ones are removed first, so that the book has space for all
 * of the file. */
static void follow_loras(struct engine_pool *p, const struct lora_book *told)
{
    for (size_t i = p->loras->n; i-- > 0;) {
        if (!lora_version(told, buf_str(&p->loras->at[i].name)).p)
            set_lora(p, buf_str(&p->loras->at[i].name), (struct str){0});
    }
    for (size_t i = 0; i < told->n; i++) {
        struct str name = buf_str(&told->at[i].name), version = buf_str(&told->at[i].version);

        if (!str_eq(version, lora_version(p->loras, name)))
            set_lora(p, name, version);
    }
}

void engine_pool_follow(struct engine_pool *p, const struct weights_told *w)
{
    if (!str_eq(buf_str(&w->version), buf_str(&p->version)))
        engine_pool_set_version(p, buf_str(&w->version));
    follow_loras(p, &w->loras);
}

void engine_pool_write_loras(const struct engine_pool *p, struct buf *json)
{
    struct json_out o = json_out_to(json);

    lora_write(p->loras, &o);
}
