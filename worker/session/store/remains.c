/* Frees what sessions held (remains.h). Payloads are freed first, because their structs are in the
 * forest's arena. */
#include "worker/session/store/remains.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"

struct session_remains {
    atomic_uint holders; /* the session, or the owner of its remains, is one of them */
    remains_fn take;     /* takes them again if the last hold ends later; NULL: they are small */
    void *take_ctx;
    struct forest forest;
    VEC(struct payload *) payloads;
};

void session_store_buries(struct session_store *st, remains_fn take, void *ctx)
{
    st->bury_content = take;
    st->bury_ctx = ctx;
}

/* Returns the memory in which the session's remains will be. */
static struct session_remains *remains_of(struct session *s)
{
    if (!s->remains) {
        s->remains = mem_zalloc(sizeof(*s->remains));
        atomic_init(&s->remains->holders, 1);
    }
    return s->remains;
}

bool session_has_messages(const struct session *s, const void *held)
{
    return s->remains == held;
}

void *session_hold_messages(struct session *s)
{
    struct session_remains *r = remains_of(s);

    atomic_fetch_add_explicit(&r->holders, 1, memory_order_relaxed);
    return r;
}

/* Reports whether that was the last hold. */
static bool drop_hold(struct session_remains *r)
{
    return atomic_fetch_sub_explicit(&r->holders, 1, memory_order_acq_rel) == 1;
}

static void free_messages(struct session_remains *r)
{
    forest_done(&r->forest);
    free(r);
}

void session_release_messages(void *held)
{
    struct session_remains *r = held;

    if (!drop_hold(r))
        return;
    if (r->take) {
        atomic_store_explicit(&r->holders, 1, memory_order_relaxed);
        r->take(r->take_ctx, r);
    } else {
        free_messages(r);
    }
}

void remains_free(struct session_remains *r)
{
    while (r->payloads.n > 0)
        payload_drop_bytes(vec_pop(&r->payloads));
    vec_done(&r->payloads);
    if (drop_hold(r))
        free_messages(r);
}

void session_free_content(struct session *s)
{
    struct session_store *st = s->store;
    size_t bytes = s->forest.arena.held_bytes + s->payload_bytes;
    struct session_remains *r = remains_of(s);

    s->remains = NULL;
    if (!s->unlinked) /* payloads of an unlinked session are in no order already */
        payloads_displace(s);
    r->forest = s->forest;
    s->forest = (struct forest){0};
    r->payloads.at = s->payloads.at;
    r->payloads.n = s->payloads.n;
    s->payloads.at = NULL;
    s->payloads.n = s->payloads.cap = 0;
    s->payload_bytes = s->payload_evicted = 0;
    if (bytes >= REMAINS_LEAST) {
        r->take = st->bury_content;
        r->take_ctx = st->bury_ctx;
    }
    if (r->take)
        r->take(r->take_ctx, r);
    else
        remains_free(r);
}
