/* What sessions held (remains.h). Payloads first: their structs lie in the forest's arena. */
#include "worker/session/remains.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/base/list.h"
#include "common/base/mem.h"
#include "worker/session/forest.h"
#include "worker/session/payload.h"
#include "worker/session/store.h"

enum { PAYLOAD_LEAST = 256 }; /* bytes that one counts for, at least: each is a call of free() */

struct session_remains {
    struct forest forest;
    VEC(struct payload *) payloads;
};

void session_store_buries(struct session_store *st, remains_fn take, void *ctx)
{
    st->bury_content = take;
    st->bury_ctx = ctx;
}

bool remains_free_part(struct session_remains *r, size_t size_bytes)
{
    size_t freed = 0;

    while (r->payloads.n > 0 && freed < size_bytes) {
        size_t n = payload_free_bytes(vec_pop(&r->payloads));

        freed += MAX_OF(n, (size_t)PAYLOAD_LEAST);
    }
    if (freed >= size_bytes || arena_done_part(&r->forest.arena, size_bytes - freed))
        return true;
    vec_done(&r->payloads);
    forest_done(&r->forest);
    free(r);
    return false;
}

void session_free_content(struct session *s)
{
    struct session_store *st = s->store;
    size_t bytes = s->forest.arena.held_bytes + s->payload_bytes;
    struct session_remains *r = mem_zalloc(sizeof(*r));

    if (!s->unlinked) /* else they are displaced */
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
        (void)remains_free_part(r, SIZE_MAX);
}
