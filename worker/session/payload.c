/* The bulk of calls (payload.h): context ids, answers' ids, logprobs, experts, in one block for
 * each record. It is most of a session's memory, and can be evicted while the session stays: its
 * bytes are in the journal, in the record that made it.
 *
 *   payload_new -> in memory  --payload_evict-->  bytes NULL
 *                      ^                               |
 *                      `---- recall_*, recall_end -----'   reads the record again
 *
 * A payload stays while a running call reads it (held, by payload_hold_path), and if its record
 * does not hold all of it (fixed). Who needs a path calls session_recall_path before looking at
 * ids. */

#include "worker/session/payload.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
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

/* `fixed`: what is in it cannot be read back from its record alone. */
struct payload *payload_new(struct session *s, struct arena *a, uint64_t call, size_t size,
                            bool fixed)
{
    struct payload *p = ARENA_NEW(a, struct payload);

    p->session = s;
    p->bytes = mem_alloc(MAX_OF(size, 1));
    p->call = call;
    p->place = s->payloads.n;
    p->size = (uint32_t)size;
    p->record = s->record;
    p->fixed = fixed || size == 0;
    *vec_push(&s->payloads) = p;
    s->payload_bytes += size;
    session_touch(s);
    touch(p);
    return p;
}

/* It must be in the order of use. */
void payload_evict(struct payload *p)
{
    struct session *s = p->session;

    CHECK(list_holds(&p->lru) && p->bytes);
    list_remove(&p->lru);
    free(p->bytes);
    p->bytes = NULL;
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
    free(p->bytes);
    last->place = p->place;
    if (last != p)
        s->payloads.at[p->place] = last;
}

void payloads_displace(struct session *s)
{
    for (size_t i = 0; i < s->payloads.n; i++)
        list_remove(&s->payloads.at[i]->lru);
}

/* With the session's content. */
void payloads_free(struct session *s)
{
    for (size_t i = 0; i < s->payloads.n; i++) {
        list_remove(&s->payloads.at[i]->lru);
        free(s->payloads.at[i]->bytes);
    }
    vec_done(&s->payloads);
    s->payload_bytes = s->payload_evicted = 0;
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

/* The bytes, out of the record, which must be the one that made the payload. */
static bool take_bytes(struct payload *p, struct str record)
{
    struct record_in r = record_in_of(record);
    struct commit_record c;
    struct record_head h;
    struct block_part part;
    int rc = -1;

    if (!record_read_head(&r, &h) || h.version < 1 || h.version > RECORD_VERSION ||
        !str_eq(h.id, p->session->id))
        return false;
    if (h.type == RECORD_BLOCKS) {
        if (!session_block_read(&r, &part) || part.call != p->call || part.bytes.len != p->size)
            return false;
        p->bytes = mem_alloc(p->size);
        memcpy(p->bytes, part.bytes.p, p->size);
        return true;
    }
    if (h.type == RECORD_COMMIT)
        rc = commit_record_read(&r, &c, NULL);
    if (h.type == RECORD_ANSWERS)
        rc = commit_record_read_answers(&r, &c, NULL);
    if (rc != 0 || c.call != p->call || commit_record_bulk(&c, NULL) != p->size)
        return false;
    p->bytes = mem_alloc(p->size);
    (void)commit_record_bulk(&c, p->bytes);
    return true;
}

static int fill(struct payload *p, struct str record, struct err *e)
{
    if (!take_bytes(p, record))
        return err_set(e, ERR_IO, "the journal has something else where a call was recorded");
    p->session->payload_bytes += p->size;
    p->session->payload_evicted -= p->size;
    p->session->store->totals->payload_loads++;
    touch(p);
    return 0;
}

static int on_record(void *ctx, size_t i, struct str record, struct err *e)
{
    const struct recall *r = ctx;

    return fill(r->missing.at[i], record, e);
}

/* Reads all that is missing in one go. Returns -1 and e if the journal does not have it. */
int recall_end(struct recall *r, struct err *e)
{
    struct session_store *st = r->session->store;
    struct session_reader reader = {on_record, r};
    uint32_t *records;
    int rc = 0;

    if (r->missing.n > 0) {
        CHECK(st->source);
        session_use(r->session); /* what it used before is older than this */
        records = mem_calloc(r->missing.n, sizeof(*records));
        for (size_t i = 0; i < r->missing.n; i++) {
            records[i] = r->missing.at[i]->record;
            r->missing.at[i]->wanted = false;
        }
        rc = st->source(st->source_ctx, r->session->id, records, r->missing.n, &reader, e);
        for (size_t i = 0; rc == 0 && i < r->missing.n; i++)
            if (!r->missing.at[i]->bytes)
                rc = err_set(e, ERR_IO, "the journal has not all records of the session");
        free(records);
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
