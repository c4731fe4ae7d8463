/* A lease is in by_use while no call of its session runs. */
#include "worker/engine/kv/leases.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/engine/kv/kv_room.h"
#include "worker/engine/pool/replicas.h"

static int64_t leased_tokens(const struct lease *s)
{
    return (int64_t)(s->tokens + s->extra);
}

struct lease *lease_of(const struct leases *l, struct str session)
{
    return l->n > 0 ? map_get(&l->by_session, session) : NULL;
}

struct lease *lease_new(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                        uint64_t extra, uint64_t now_ms)
{
    struct lease *s = mem_zalloc(sizeof(*s) + session.len);

    s->at = at;
    s->tokens = tokens;
    s->extra = s->promised = extra;
    s->used_ms = now_ms;
    s->len = session.len;
    if (session.len > 0)
        memcpy(s->session, session.p, session.len);
    (void)map_set(&l->by_session, str_of(s->session, s->len), s);
    list_append(&l->by_use, &s->by_use);
    l->n++;
    return s;
}

struct lease *lease_force(struct leases *l, struct str session, struct replica *at, uint64_t tokens,
                          uint64_t now_ms)
{
    kv_move(at, (int64_t)tokens);
    return lease_new(l, session, at, tokens, 0, now_ms);
}

void lease_to(struct lease *s, struct replica *at)
{
    if (s->at == at)
        return;
    if (s->at)
        kv_move(s->at, -leased_tokens(s));
    s->at = at;
    kv_move(at, leased_tokens(s));
}

void lease_grow(struct lease *s, uint64_t size)
{
    s->size = MAX_OF(s->size, size);
    if (s->size <= s->tokens)
        return;
    if (s->at)
        kv_move(s->at, (int64_t)(s->size - s->tokens));
    s->tokens = s->size;
}

void lease_stretch(struct lease *s, uint64_t call, uint64_t extra)
{
    uint64_t had = call == s->first ? MIN_OF(extra, s->promised) : 0;

    s->promised -= had;
    if (s->at)
        kv_move(s->at, (int64_t)(extra - had));
    s->extra += extra - had;
}

void lease_shrink(struct lease *s, uint64_t extra)
{
    extra = MIN_OF(extra, s->extra - s->promised);
    if (s->at)
        kv_move(s->at, -(int64_t)extra);
    s->extra -= extra;
}

bool lease_bears(struct lease *s, uint64_t call)
{
    if (!s->bears)
        s->borne = call;
    s->bears = true;
    return s->borne == call;
}

void lease_unbear(struct lease *s, uint64_t call)
{
    if (s->borne == call)
        s->bears = false;
}

uint64_t lease_answered(struct lease *s, uint64_t call, uint64_t tokens)
{
    if (s->call != call)
        s->answered = 0;
    s->call = call;
    return s->answered += tokens;
}

void lease_begin(struct lease *s)
{
    list_remove(&s->by_use);
    s->over = false;
    s->calls++;
}

void lease_end(struct leases *l, struct lease *s, uint64_t now_ms)
{
    if (s->calls == 0 || --s->calls > 0)
        return;
    if (s->at)
        kv_move(s->at, -(int64_t)s->extra);
    s->extra = s->promised = 0;
    s->used_ms = now_ms;
    list_append(&l->by_use, &s->by_use);
}

uint64_t lease_drop(struct leases *l, struct lease *s)
{
    uint64_t size = s->size;

    if (s->at)
        kv_move(s->at, -leased_tokens(s));
    list_remove(&s->by_use);
    (void)map_take(&l->by_session, str_of(s->session, s->len));
    l->n--;
    free(s);
    return size;
}

void leases_sweep(struct leases *l, uint64_t before_ms)
{
    struct lease *s;

    while ((s = LIST_FIRST_OF(&l->by_use, struct lease, by_use)) && s->used_ms < before_ms)
        (void)lease_drop(l, s);
}

void leases_forget(struct leases *l, const struct replica *r)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&l->by_session, &at));) {
        struct lease *s = slot->value;

        if (s->at != r)
            continue;
        /* freeing space here may start a call that reads the lease */
        kv_move(s->at, -leased_tokens(s));
        s->at = NULL;
    }
}

void leases_done(struct leases *l)
{
    struct map_slot *slot;
    size_t at = 0;

    while (l->n > 0 && (slot = map_next(&l->by_session, &at))) {
        (void)lease_drop(l, slot->value);
        at = 0;
    }
    map_done(&l->by_session);
}
