/* Frees what sessions held (remains.h). Payloads are freed first, because their structs are in the
 * forest's arena. */
#include "worker/session/store/remains.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"

struct session_remains {
    struct forest forest;
    VEC(struct payload *) payloads;
};

void session_store_buries(struct session_store *st, remains_fn take, void *ctx)
{
    st->bury_content = take;
    st->bury_ctx = ctx;
}

void remains_free(struct session_remains *r)
{
    while (r->payloads.n > 0)
        payload_drop_bytes(vec_pop(&r->payloads));
    vec_done(&r->payloads);
    forest_done(&r->forest);
    free(r);
}

void session_free_content(struct session *s)
{
    struct session_store *st = s->store;
    size_t bytes = s->forest.arena.held_bytes + s->payload_bytes;
    struct session_remains *r = mem_zalloc(sizeof(*r));

    if (!s->unlinked) /* payloads of an unlinked session are in no order already */
        payloads_displace(s);
    r->forest = s->forest;
    s->forest = (struct forest){0};
    r->payloads.at = s->payloads.at;
    r->payloads.n = s->payloads.n;
    s->payloads.at = NULL;
    s->payloads.n = s->payloads.cap = 0;
    s->payload_bytes = s->payload_evicted = 0;
    if (st->bury_content && bytes >= REMAINS_LEAST)
        st->bury_content(st->bury_ctx, r);
    else
        remains_free(r);
}
