/* Keeps the numbers of calls (payload.h): context ids, answers' ids, logprobs, experts, in one
 * block for each record. They are most of a session's memory, and can be evicted while the session
 * stays: their bytes are in the journal, in the record that made them or in fragments before it.
 *
 *   payload_new -> in memory  --payload_evict-->  bytes NULL
 *                      ^                               |
 *                      `---------- recall.c -----------'   reads the records again
 *
 * A payload stays while it is held, and if its record does not contain all of it (fixed). Ids of a
 * path may only be read after a recall (recall.h).
 *
 * The payload of an answer holds those of the path before it (payload_lead), so a call holds a path
 * by its end, however long it is, and a path is evicted from its end on:
 *
 *   [first] <--holds-- [next] <--holds-- [last] <--holds-- a running call
 *                                               |
 *                          no call: it is in the order of use, and evicting it releases [next] */

#include "worker/session/store/payload.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

/* --- the order of use --- */

/* Makes it the most recently used one, if it can be evicted: an evicted or held payload is in no
 * order. */
void payload_touch(struct payload *p)
{
    struct session_store *st = p->session->store;

    list_remove(&p->lru);
    if (!st->source || !p->bytes || p->fixed || p->held || p->session->unlinked)
        return;
    p->used = st->clock;
    list_append(&st->payload_lru, &p->lru);
}

/* --- making and freeing --- */

/* A block of bytes that is owned, and no text. */
struct bytes {
    char *at;
    size_t n;
};

static struct payload *make_payload(struct session *s, uint64_t call, struct bytes bytes,
                                    bool fixed)
{
    struct payload *p = ARENA_NEW(&s->forest.arena, struct payload);

    p->session = s;
    p->bytes = bytes.at;
    p->call = call;
    p->size = (uint32_t)bytes.n;
    p->record = s->record;
    p->fixed = fixed || bytes.n == 0;
    *vec_push(&s->payloads) = p;
    s->payload_bytes += bytes.n;
    session_touch(s);
    payload_touch(p);
    return p;
}

struct payload *payload_new(struct session *s, uint64_t call, size_t size)
{
    return make_payload(s, call, (struct bytes){mem_alloc(MAX_OF(size, 1)), size}, false);
}

struct payload *payload_of_piece(struct session *s, struct call_bulk *b, uint32_t piece, bool fixed)
{
    struct bulk_piece *from = &b->pieces.at[piece];
    size_t n = from->parts.n;
    struct payload_parts *parts =
        arena_alloc(&s->forest.arena, sizeof(*parts) + n * sizeof(struct payload_part));
    char *bytes = payload_resize((char *)(uintptr_t)from->bytes.p, from->cap, from->bytes.len);
    struct payload *p = make_payload(s, b->call, (struct bytes){bytes, from->bytes.len}, fixed);

    parts->n = (uint32_t)n;
    memcpy(parts->at, from->parts.at, n * sizeof(struct payload_part));
    p->parts = parts;
    s->bulk_bytes -= from->cap + vec_bytes(&from->parts);
    vec_done(&from->parts);
    *from = (struct bulk_piece){0};
    return p;
}

enum { OWN_PAGES = 4 << 20 };

char *payload_resize(char *room, size_t had, size_t n)
{
    char *moved;

    if (had < OWN_PAGES && n < OWN_PAGES)
        return mem_realloc(room, n);
    if (room && had >= OWN_PAGES && n >= OWN_PAGES)
        return mem_remap(room, had, n);
    moved = n < OWN_PAGES ? mem_alloc(n) : mem_map(n);
    if (room)
        memcpy(moved, room, MIN_OF(had, n));
    payload_free_buffer(room, had);
    return moved;
}

void payload_free_buffer(char *room, size_t n)
{
    if (room && n >= OWN_PAGES)
        mem_unmap(room, n);
    else
        free(room);
}

/* Frees p's memory, allocated as p->parts says. Accepts NULL. */
static void free_payload_bytes(const struct payload *p, char *room)
{
    if (p->parts)
        payload_free_buffer(room, p->size);
    else
        free(room);
}

static void free_bytes(struct payload *p)
{
    free_payload_bytes(p, p->bytes);
    p->bytes = NULL;
}

/* Releases what an evicted payload held. It was used when the evicted one was. */
static void release_older(struct payload *p, uint64_t used)
{
    payload_release(p);
    if (!list_holds(&p->lru))
        return;
    p->used = used;
    list_remove(&p->lru);
    list_prepend(&p->session->store->payload_lru, &p->lru);
}

static void end_lead(struct payload *p)
{
    const struct checkpoint *t = p->leads;

    p->leads = NULL;
    if (t->parent)
        release_older(t->parent->payload, p->used);
    EACH_CONTEXT_RUN(run, t)
    {
        if (run->payload != p)
            release_older(run->payload, p->used);
    }
}

void payload_evict(struct payload *p)
{
    struct session *s = p->session;

    CHECK(list_holds(&p->lru) && p->bytes);
    list_remove(&p->lru);
    free_bytes(p);
    s->payload_bytes -= p->size;
    s->payload_evicted += p->size;
    s->store->totals->payload_evictions++;
    if (p->leads)
        end_lead(p);
    session_account(s);
}

void payload_make_buffer(struct payload *p)
{
    CHECK(!p->bytes && !p->reading);
    p->reading = mem_zalloc(sizeof(*p->reading));
    p->reading->buffer = p->parts ? payload_resize(NULL, 0, p->size) : mem_alloc(p->size);
    p->session->room_bytes += p->size;
}

static void end_reading(struct payload *p)
{
    free(p->reading);
    p->reading = NULL;
}

void payload_drop_buffer(struct payload *p)
{
    free_payload_bytes(p, p->reading->buffer);
    end_reading(p);
    p->session->room_bytes -= p->size;
}

void payload_adopt_buffer(struct payload *p)
{
    struct session *s = p->session;

    p->bytes = p->reading->buffer;
    end_reading(p);
    s->room_bytes -= p->size;
    s->payload_bytes += p->size;
    s->payload_evicted -= p->size;
    s->store->totals->payload_loads++;
    payload_touch(p);
}

void payloads_displace(struct session *s)
{
    for (size_t i = 0; i < s->payloads.n; i++)
        list_remove(&s->payloads.at[i]->lru);
}

void payload_drop_bytes(struct payload *p)
{
    free_bytes(p);
}

/* --- holding --- */

void payload_hold(struct payload *p)
{
    p->held++;
    list_remove(&p->lru);
}

void payload_release(struct payload *p)
{
    p->held--;
    payload_touch(p);
}

void payload_lead(struct checkpoint *t)
{
    for (; t && !t->payload->leads; t = t->parent) {
        t->payload->leads = t;
        if (t->parent)
            payload_hold(t->parent->payload);
        EACH_CONTEXT_RUN(run, t)
        {
            if (run->payload != t->payload)
                payload_hold(run->payload);
        }
    }
}

void payload_lead_new(struct checkpoint *t)
{
    if (t->n == 0 || (t->parent && !t->parent->payload->leads))
        return;
    EACH_CONTEXT_RUN(run, t)
    {
        if (!run->payload->bytes)
            return;
    }
    payload_lead(t);
}
