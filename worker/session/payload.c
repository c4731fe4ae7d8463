/* The bulk of calls (payload.h): context ids, answers' ids, logprobs, experts, in one block for
 * each record. It is most of a session's memory, and can be evicted while the session stays: its
 * bytes are in the journal, in the record that made it, or in those of its parts before that.
 *
 *   payload_new -> in memory  --payload_evict-->  bytes NULL
 *                      ^                               |
 *                      `---- recall_*, recall_end -----'   reads the records again
 *
 * A payload stays while a running call reads it (held, by payload_hold_path), and if its record
 * does not hold all of it (fixed). Who needs a path calls session_recall_path before looking at
 * ids. */

#include "worker/session/payload.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/session/bulk_ahead.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit_record.h"
#include "worker/session/recall.h"
#include "worker/session/session_totals.h"
#include "worker/session/store.h"

/* --- the order of use --- */

/* The most recently used one now, if it can be evicted at all. */
static void touch(struct payload *p)
{
    struct session_store *st = p->session->store;

    list_remove(&p->lru);
    if (!st->source || p->fixed || p->held || p->session->unlinked)
        return;
    p->used = st->clock;
    list_append(&st->payload_lru, &p->lru);
}

/* --- life --- */

/* Owned, and not text. */
struct bytes {
    char *at;
    size_t n;
};

static struct payload *make(struct session *s, struct arena *a, uint64_t call, struct bytes bytes,
                            bool fixed)
{
    struct payload *p = ARENA_NEW(a, struct payload);

    p->session = s;
    p->bytes = bytes.at;
    p->call = call;
    p->place = s->payloads.n;
    p->size = (uint32_t)bytes.n;
    p->record = s->record;
    p->fixed = fixed || bytes.n == 0;
    *vec_push(&s->payloads) = p;
    s->payload_bytes += bytes.n;
    session_touch(s);
    touch(p);
    return p;
}

/* `fixed`: what is in it cannot be read back from its record alone. */
struct payload *payload_new(struct session *s, struct arena *a, uint64_t call, size_t size,
                            bool fixed)
{
    return make(s, a, call, (struct bytes){mem_alloc(MAX_OF(size, 1)), size}, fixed);
}

struct payload *payload_of_bulk(struct session *s, struct arena *a, uint64_t call,
                                struct bulk_ahead *bulk)
{
    const struct payload_parts *parts;
    size_t size = bulk->bytes.len;
    struct payload *p =
        make(s, a, call, (struct bytes){bulk_ahead_take(bulk, a, &parts), size}, false);

    p->parts = parts;
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
    payload_free_room(room, had);
    return moved;
}

void payload_free_room(char *room, size_t n)
{
    if (room && n >= OWN_PAGES)
        mem_unmap(room, n);
    else
        free(room);
}

static void free_bytes(struct payload *p)
{
    if (p->parts)
        payload_free_room(p->bytes, p->size);
    else
        free(p->bytes);
    p->bytes = NULL;
}

/* It must be in the order of use. */
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

/* The last of the session's takes its place there. */
void payload_drop(struct payload *p)
{
    struct session *s = p->session;
    struct payload *last = vec_pop(&s->payloads);

    list_remove(&p->lru);
    *(p->bytes ? &s->payload_bytes : &s->payload_evicted) -= p->size;
    free_bytes(p);
    last->place = p->place;
    if (last != p)
        s->payloads.at[p->place] = last;
}

void payloads_displace(struct session *s)
{
    for (size_t i = 0; i < s->payloads.n; i++)
        list_remove(&s->payloads.at[i]->lru);
}

size_t payload_free_bytes(struct payload *p)
{
    size_t n = p->bytes ? p->size : 0;

    free_bytes(p);
    return n;
}

/* --- running calls --- */

/* The payloads that hold the context of t; its answer's may be another one (lies_apart). */
#define EACH_RUN(run, t) for (const struct context_run *run = &(t)->context; run; run = run->base)

static bool lies_apart(const struct checkpoint *t)
{
    return t->payload != t->context.payload;
}

static void hold(struct payload *p)
{
    p->held++;
    list_remove(&p->lru);
}

static void let(struct payload *p)
{
    p->held--;
    touch(p);
}

/* All payloads of the path stay until payload_let_path. */
void payload_hold_path(const struct checkpoint *t)
{
    for (; t; t = t->parent) {
        if (lies_apart(t))
            hold(t->payload);
        EACH_RUN(run, t)
        {
            hold(run->payload);
        }
    }
}

/* NULL is no path. */
void payload_let_path(const struct checkpoint *t)
{
    for (; t; t = t->parent) {
        if (lies_apart(t))
            let(t->payload);
        EACH_RUN(run, t)
        {
            let(run->payload);
        }
    }
}

/* --- coming back --- */

/* Notes it if it is missing, once. */
static void recall_one(struct recall *r, struct payload *p)
{
    if (p->bytes) {
        if (list_holds(&p->lru))
            touch(p);
    } else if (!p->wanted) {
        p->wanted = true;
        *vec_push(&r->missing) = p;
    }
}

void recall_checkpoint(struct recall *r, const struct checkpoint *t)
{
    for (int k = 0; r->rows && k < ROWS_KINDS; k++)
        for (uint32_t i = 0; i < t->rows[k].n_parts; i++)
            recall_one(r, t->rows[k].parts[i]);
    if (lies_apart(t))
        recall_one(r, t->payload);
    EACH_RUN(run, t)
    {
        recall_one(r, run->payload);
    }
}

void recall_path(struct recall *r, const struct checkpoint *t)
{
    for (; t; t = t->parent)
        recall_checkpoint(r, t);
}

/* A part of a payload, from a record. */
struct recalled {
    struct payload *p;
    uint32_t part;
    bool came;
};

struct recall_pieces {
    VEC(struct recalled) all; /* those of a payload behind each other */
};

static uint32_t n_pieces(const struct payload *p)
{
    return p->parts ? p->parts->n : 1;
}

static uint32_t record_of(const struct recalled *x)
{
    return x->p->parts ? x->p->parts->at[x->part].record : x->p->record;
}

/* Of a record that has a part alone. */
static bool take_part(const struct recalled *x, struct record_in *r)
{
    struct payload *p = x->p;
    const struct payload_parts *all = p->parts;
    uint32_t from = all ? all->at[x->part].at : 0;
    uint32_t to = all && x->part + 1 < all->n ? all->at[x->part + 1].at : p->size;
    struct block_part part;

    if (!session_block_read(r, &part) || part.call != p->call || part.bytes.len != to - from ||
        (part.kind == BLOCK_BULK) != (all != NULL))
        return false;
    memcpy(p->bytes + from, part.bytes.p, part.bytes.len);
    return true;
}

/* The bytes, out of the record, which must be the one that made the payload, or a part of it. */
static bool take_bytes(const struct recalled *x, struct str record)
{
    struct record_in r = record_in_of(record);
    struct payload *p = x->p;
    struct commit_record c;
    struct record_head h;
    int rc = -1;

    if (!record_read_head(&r, &h) || h.version < 1 || h.version > RECORD_VERSION ||
        !str_eq(h.id, p->session->id))
        return false;
    if (h.type == RECORD_BLOCKS)
        return take_part(x, &r);
    if (h.type == RECORD_COMMIT)
        rc = commit_record_read(&r, &c, NULL);
    if (h.type == RECORD_ANSWERS)
        rc = commit_record_read_answers(&r, &c, NULL);
    if (rc != 0 || c.call != p->call || c.flags & COMMIT_BULK_AHEAD ||
        commit_record_bulk(&c, NULL) != p->size)
        return false;
    (void)commit_record_bulk(&c, p->bytes);
    return true;
}

static int on_record(void *ctx, size_t i, struct str record, struct err *e)
{
    const struct recall_pieces *pieces = ctx;
    struct recalled *x = &pieces->all.at[i];

    if (!take_bytes(x, record))
        return err_set(e, ERR_IO, "the journal has something else where a call was recorded");
    x->came = true;
    return 0;
}

/* It is whole, or gone again. `pieces`: its own. */
static bool settle_missing(struct payload *p, const struct recalled *pieces)
{
    bool whole = true;

    for (uint32_t i = 0; i < n_pieces(p); i++)
        whole = whole && pieces[i].came;
    if (!whole) {
        free_bytes(p);
        return false;
    }
    p->session->payload_bytes += p->size;
    p->session->payload_evicted -= p->size;
    p->session->store->totals->payload_loads++;
    touch(p);
    return true;
}

/* All that is missing, in one go. */
static int read_back(struct recall *r, struct err *e)
{
    struct session_store *st = r->session->store;
    struct recall_pieces pieces = {0};
    struct session_reader reader = {on_record, &pieces};
    uint32_t *records;
    int rc;

    for (size_t i = 0; i < r->missing.n; i++) {
        struct payload *p = r->missing.at[i];

        p->wanted = false;
        p->bytes = p->parts ? payload_resize(NULL, 0, p->size) : mem_alloc(p->size);
        for (uint32_t k = 0; k < n_pieces(p); k++)
            *vec_push(&pieces.all) = (struct recalled){p, k, false};
    }
    records = mem_calloc(pieces.all.n, sizeof(*records));
    for (size_t i = 0; i < pieces.all.n; i++)
        records[i] = record_of(&pieces.all.at[i]);
    rc = st->source(st->source_ctx, r->session->id, records, pieces.all.n, &reader, e);
    for (size_t i = 0, at = 0; i < r->missing.n; at += n_pieces(r->missing.at[i++]))
        if (!settle_missing(r->missing.at[i], &pieces.all.at[at]) && rc == 0)
            rc = err_set(e, ERR_IO, "the journal has not all records of the session");
    free(records);
    vec_done(&pieces.all);
    return rc;
}

/* Reads all that is missing. Returns -1 and e if the journal does not have it. */
int recall_end(struct recall *r, struct err *e)
{
    int rc = 0;

    if (r->missing.n > 0) {
        CHECK(r->session->store->source);
        session_use(r->session); /* what it used before is older than this */
        rc = read_back(r, e);
        if (!r->session->unlinked)
            session_account(r->session);
    }
    vec_done(&r->missing);
    return rc;
}

int session_recall_checkpoint(struct session *s, const struct checkpoint *t, struct err *e)
{
    struct recall r = {.session = s};

    recall_checkpoint(&r, t);
    return recall_end(&r, e);
}

int session_recall_call(struct session *s, const struct call_record *c, struct err *e)
{
    struct recall r = {.session = s};

    for (uint32_t i = 0; i < c->n_checkpoints; i++)
        recall_checkpoint(&r, s->forest.checkpoints.at[c->first_checkpoint + i]);
    return recall_end(&r, e);
}

int session_recall_path(struct session *s, const struct checkpoint *t, struct err *e)
{
    struct recall r = {.session = s};

    recall_path(&r, t);
    return recall_end(&r, e);
}
