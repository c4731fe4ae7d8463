/* Reads evicted payloads back (recall.h). A step chooses the parts that it reads, in the order of
 * the journal, and asks the source for their records. Each part is copied to its position in the
 * payload's `room`, which becomes the payload's bytes when all of its parts are there, so that half
 * a payload is never visible. `room` belongs to the payload and not to the recall: calls that
 * continue from one answer at the same time read it once. */
#include "worker/session/store/recall.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/os/task.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit_record.h"
#include "worker/session/record/record.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"

/* --- collecting what is missing --- */

/* Adds p to the missing payloads unless it is in memory. */
static void add_missing(struct recall *r, struct payload *p)
{
    if (p->wanted)
        return;
    if (r->holds) {
        *vec_push(&r->held) = p;
        payload_hold(p);
        p->wanted = true;
    }
    if (!p->bytes) {
        *vec_push(&r->missing) = p;
        p->wanted = true;
    } else if (list_holds(&p->lru)) {
        payload_touch(p);
    }
}

void recall_context(struct recall *r, const struct checkpoint *t)
{
    CHECK(!r->begun);
    EACH_CONTEXT_RUN(run, t)
    {
        add_missing(r, run->payload);
    }
}

void recall_checkpoint(struct recall *r, const struct checkpoint *t)
{
    CHECK(!r->begun);
    for (int k = 0; r->rows && t->rows && k < ROWS_KINDS; k++)
        if (t->rows[k].apart)
            add_missing(r, t->rows[k].apart);
    if (checkpoint_lies_apart(t))
        add_missing(r, t->payload);
    recall_context(r, t);
}

void recall_call(struct recall *r, const struct call_record *c)
{
    CHECK(!r->begun);
    for (uint32_t i = 0; i < c->n_checkpoints; i++)
        add_missing(r, r->session->forest.checkpoints.at[c->first_checkpoint + i]->payload);
}

void recall_path(struct recall *r, const struct checkpoint *t)
{
    for (; t; t = t->parent)
        recall_checkpoint(r, t);
}

/* Ends the collecting: a different recall may collect the same payloads now. */
static void begin_recall(struct recall *r)
{
    if (r->begun)
        return;
    for (size_t i = 0; i < r->missing.n; i++)
        r->missing.at[i]->wanted = false;
    for (size_t i = 0; i < r->held.n; i++)
        r->held.at[i]->wanted = false;
    r->begun = true;
}

/* --- parts of payloads --- */

/* A part of a payload that is read from a record. */
struct recalled {
    struct payload *p;
    uint32_t part;
    bool came;
};

struct recall_pieces {
    VEC(struct recalled) all; /* pieces; those of one payload are adjacent */
};

static uint32_t n_pieces(const struct payload *p)
{
    return p->parts ? p->parts->n : 1;
}

static uint32_t piece_begin(const struct payload *p, uint32_t part)
{
    return p->parts ? p->parts->at[part].at : 0;
}

static uint32_t piece_end(const struct payload *p, uint32_t part)
{
    return part + 1 < n_pieces(p) ? p->parts->at[part + 1].at : p->size;
}

static uint32_t record_of(const struct recalled *x)
{
    return x->p->parts ? x->p->parts->at[x->part].record : x->p->record;
}

/* Copies the part from a fragment, which contains only this part. */
static bool copy_fragment_bytes(const struct recalled *x, struct record_in *r)
{
    struct payload *p = x->p;
    uint32_t from = piece_begin(p, x->part), to = piece_end(p, x->part);
    struct bulk_fragment f;

    if (!bulk_fragment_read(r, &f) || f.call != p->call || f.bytes.len != to - from || !p->parts)
        return false;
    memcpy(p->reading->buffer + from, f.bytes.p, f.bytes.len);
    return true;
}

/* Copies the bytes from the record, which must be the record that made the payload, or a part of
 * it. */
static bool copy_record_bytes(const struct recalled *x, struct str record)
{
    struct record_in r = record_in_of(record);
    struct payload *p = x->p;
    struct commit_record c;
    struct record_head h;

    if (!record_read_head(&r, &h) || !record_version_known(h.version) ||
        !str_eq(h.id, p->session->id))
        return false;
    if (record_is_fragment(h.type))
        return copy_fragment_bytes(x, &r);
    if (h.type != RECORD_COMMIT || commit_record_read(&r, &c, NULL) != 0 || c.call != p->call ||
        c.flags & COMMIT_BULK || commit_record_bulk(&c, NULL) != p->size)
        return false;
    (void)commit_record_bulk(&c, p->reading->buffer);
    return true;
}

static int on_record(void *ctx, size_t i, struct str record, struct err *e)
{
    const struct recall_pieces *pieces = ctx;
    struct recalled *x = &pieces->all.at[i];

    if (!copy_record_bytes(x, record))
        return err_set(e, ERR_IO, "the journal has something else where a call was recorded");
    x->came = true;
    return 0;
}

/* --- one step --- */

/* Cost of finding and checking a record, in bytes that are read in the same time. */
enum { RECORD_WORK = 4 << 10 };

/* Chooses the next parts. Skips what a different recall has read meanwhile. */
static void choose_pieces(const struct recall *r, size_t max_bytes, struct recall_pieces *ret)
{
    size_t bytes = 0;

    for (size_t i = r->missing.n; i > 0 && bytes < max_bytes; i--) {
        struct payload *p = r->missing.at[i - 1];

        if (p->bytes)
            continue;
        if (!p->reading)
            payload_make_buffer(p);
        for (uint32_t k = p->reading->n_came; k < n_pieces(p) && bytes < max_bytes; k++) {
            *vec_push(&ret->all) = (struct recalled){p, k, false};
            bytes += piece_end(p, k) - piece_begin(p, k) + RECORD_WORK;
        }
    }
}

/* Completes whole payloads. Of other payloads the leading parts without a gap count. Returns false
 * if some parts were not read. */
static bool complete_pieces(const struct recall_pieces *pieces)
{
    bool all = true;

    for (size_t i = 0; i < pieces->all.n; i++) {
        const struct recalled *x = &pieces->all.at[i];
        struct payload_reading *reading = x->p->reading;

        if (x->came && x->part == reading->n_came)
            reading->n_came++;
        else
            all = false;
        if (reading->n_came == n_pieces(x->p))
            payload_adopt_buffer(x->p);
    }
    return all;
}

/* Frees the memory of payloads that are not read any further. */
static void drop_rooms(const struct recall_pieces *pieces)
{
    for (size_t i = 0; i < pieces->all.n; i++) {
        struct payload *p = pieces->all.at[i].p;

        if (p->reading && p->reading->n_readers == 0)
            payload_drop_buffer(p);
    }
}

/* Keeps the state of a payload while this recall, or a different one, continues to read it. */
static void stay_with(struct recall *r, struct payload *p)
{
    struct payload *before = r->reading;

    if (before == p)
        return;
    if (before && before->reading && --before->reading->n_readers == 0)
        payload_drop_buffer(before);
    if (p)
        p->reading->n_readers++;
    r->reading = p;
}

static int read_step(struct recall *r, size_t max_bytes, struct err *e)
{
    struct session_store *st = r->session->store;
    struct recall_pieces pieces = {0};
    struct session_reader reader = {on_record, &pieces};
    uint32_t *records;
    int rc = 0;

    choose_pieces(r, max_bytes, &pieces);
    if (pieces.all.n > 0) {
        records = mem_calloc(pieces.all.n, sizeof(*records));
        for (size_t i = 0; i < pieces.all.n; i++)
            records[i] = record_of(&pieces.all.at[i]);
        rc = st->source(st->source_ctx, r->session->id, records, pieces.all.n, &reader, e);
        free(records);
    }
    if (!complete_pieces(&pieces) && rc == 0)
        rc = err_set(e, ERR_IO, "the journal has not all records of the session");
    if (rc != 0)
        drop_rooms(&pieces);
    vec_done(&pieces.all);
    return rc;
}

/* Removes payloads that are in memory from the missing ones. The next one may be partly read. */
static void drop_present(struct recall *r)
{
    struct payload *p = NULL;

    while (r->missing.n > 0 && (p = r->missing.at[r->missing.n - 1])->bytes)
        (void)vec_pop(&r->missing);
    stay_with(r, r->missing.n > 0 && p->reading ? p : NULL);
}

/* Reads back up to max_bytes of what is missing, or one record more. Returns 0 when all is in
 * memory, 1 if more is missing, -1 with e if the journal cannot be read: then incomplete payloads
 * are freed, and the recall has ended. */
static int recall_step(struct recall *r, size_t max_bytes, struct err *e)
{
    struct session *s = r->session;
    int rc;

    begin_recall(r);
    if (r->missing.n == 0)
        return 0;
    CHECK(s->store->source);
    session_use(s); /* payloads that the session used before are older than this */
    rc = read_step(r, max_bytes, e);
    drop_present(r);
    if (!s->unlinked)
        session_account(s);
    if (rc != 0)
        recall_done(r);
    return rc != 0 ? -1 : r->missing.n > 0;
}

/* Pauses after a step. An ended session's journal may not have the next records any more. */
MAY_PAUSE static int pause_recall(const struct recall *r, struct err *e)
{
    if (task_pause(e))
        return -1;
    if (r->open_only && session_has_ended(r->session))
        return err_set(e, ERR_SESSION_ENDED, "the session has ended");
    return 0;
}

int recall_read(struct recall *r, struct err *e)
{
    int rc;

    while ((rc = recall_step(r, RECALL_STEP, e)) == 1 && pause_recall(r, e) == 0)
        ;
    if (rc == 0)
        return 0;
    recall_done(r);
    return -1;
}

void recall_done(struct recall *r)
{
    begin_recall(r);
    if (r->reading) {
        stay_with(r, NULL);
        if (!r->session->unlinked)
            session_account(r->session);
    }
    for (size_t i = 0; i < r->held.n; i++)
        payload_release(r->held.at[i]);
    vec_done(&r->held);
    vec_done(&r->missing);
    r->begun = false;
}

int recall_end(struct recall *r, struct err *e)
{
    int rc = recall_step(r, SIZE_MAX, e);

    recall_done(r);
    return rc;
}
