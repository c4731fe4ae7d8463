/* Calls of an engine's own paths: the check of the path, a slot of a replica, the forwarded
 * request. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/engine/pool/doors.h"
#include "worker/engine/pool/passing.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

struct engine_pass_call {
    struct engine_pool *pool;
    struct replica *replica;
    void *passed; /* handle of the adapter */
    const struct engine_pass_events *events;
    void *ctx;
};

/* Releases the slot and frees the call. */
static void release_slot(struct engine_pass_call *c)
{
    replica_end(c->replica);
    pool_dispatch(c->pool);
    free(c);
}

static void on_head(void *ctx, int status, struct str content_type)
{
    struct engine_pass_call *c = ctx;

    c->events->head(c->ctx, status, content_type);
}

static void on_body(void *ctx, struct str bytes)
{
    struct engine_pass_call *c = ctx;

    c->events->body(c->ctx, bytes);
}

static void on_done(void *ctx)
{
    struct engine_pass_call c = *(struct engine_pass_call *)ctx;

    release_slot(ctx);
    c.events->done(c.ctx);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct engine_pass_call c = *(struct engine_pass_call *)ctx;

    release_slot(ctx);
    c.events->failed(c.ctx, e);
}

static const struct engine_pass_events on_pass = {on_head, on_body, on_done, on_failed};

struct engine_pass_call *engine_pass(struct engine_pool *p, const struct engine_pass *r,
                                     const struct engine_pass_events *events, void *ctx,
                                     struct err *e)
{
    struct replica *replica =
        replicas_pick(p->replicas, &(struct replica_wish){.session_id = r->session_id});
    struct door_request door = {.method = str_cstr(r->method),
                                .path = r->path,
                                .admin = r->admin,
                                .keyless = r->keyless,
                                .setting = r->setting};
    struct engine_pass_call *c;

    if (p->replicas->n > 0)
        door.reads = (replica ? replica : p->replicas->at[0])->adapter->reads;
    if (p->replicas->n > 0 && door_check(&door, e))
        return NULL;
    if (!replicas_any_up(p->replicas)) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE, "no engine answers");
        return NULL;
    }
    if (!replica || !replica_begin(replica)) {
        (void)err_set(e, ERR_OVERLOADED, "the engine runs all that --engine-max-inflight allows");
        return NULL;
    }
    c = mem_zalloc(sizeof(*c));
    *c = (struct engine_pass_call){p, replica, NULL, events, ctx};
    c->passed = replica->adapter->pass(replica->impl, r, &on_pass, c);
    return c;
}

void engine_pass_cancel(struct engine_pass_call *c)
{
    c->replica->adapter->pass_cancel(c->passed);
    release_slot(c);
}

void engine_pass_pause(struct engine_pass_call *c)
{
    c->replica->adapter->pass_pause(c->passed);
}

void engine_pass_resume(struct engine_pass_call *c)
{
    c->replica->adapter->pass_resume(c->passed);
}
