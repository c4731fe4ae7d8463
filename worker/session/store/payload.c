/* Keeps the numbers of calls (payload.h): context ids, answers' ids, logprobs, experts, in one
 * block for each record. They are most of a session's memory, and can be evicted while the session
 * stays: their bytes are in the journal, in the record that made them or in fragments before it.
 *
 *   payload_new -> in memory  --payload_evict-->  bytes NULL
 *                      ^                               |
 *                      `---------- recall.c -----------'   reads the records again
 *
 * A payload stays while it is held (a running call holds its path's, by payload_hold_path), and if
 * its record does not contain all of it (fixed). Ids of a path may only be read after a recall
 * (recall.h). */

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

void payload_evict(struct payload *p)
{
    struct session *s = p->session;

    CHECK(list_holds(&p->lru) && p->bytes);
    list_remove(&p->lru);
    free_bytes(p);
    s->payload_bytes -= p->size;
    s->payload_evicted += p->size;
    s->store->totals->payload_evictions++;
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

/* Each checkpoint points to its parent, which in an idle session costs a cache miss each time.
 * Because most checkpoints were made one after the other, the parents are prefetched. */
enum { FETCHED_AHEAD = 16 };

#define FETCH_ABOVE(s, t)                                               \
    do {                                                                \
        struct checkpoint **at_ = &(s)->forest.checkpoints.at[(t)->id]; \
        if ((t)->id >= FETCHED_AHEAD) {                                 \
            __builtin_prefetch(at_[-FETCHED_AHEAD]);                    \
            __builtin_prefetch(at_[-FETCHED_AHEAD / 2]->payload);       \
        }                                                               \
    } while (0)

/* All payloads of the path stay until payload_release_path. */
void payload_hold_path(const struct session *s, const struct checkpoint *t)
{
    for (; t; t = t->parent) {
        FETCH_ABOVE(s, t);
        if (checkpoint_lies_apart(t))
            payload_hold(t->payload);
        EACH_CONTEXT_RUN(run, t)
        {
            payload_hold(run->payload);
        }
    }
}

/* NULL is an empty path. */
void payload_release_path(const struct checkpoint *t)
{
    for (; t; t = t->parent) {
        if (checkpoint_lies_apart(t))
            payload_release(t->payload);
        EACH_CONTEXT_RUN(run, t)
        {
            payload_release(run->payload);
        }
    }
}
