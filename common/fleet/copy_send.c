/* Sends appends and drops, and handles their answers (second_copy.h). A batch is one append of
 * records of several logs of a place. */
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/copy_internal.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/journal/journal.h"

enum { READ_RECORDS = 16 }; /* records that are read from the journal at a time */

struct sent_record {
    struct copy_log *log;
    size_t n;
};

/* An append that has no answer yet. */
struct sent_batch {
    struct copy_place *place;
    uint64_t epoch, call, sent_us;
    size_t bytes, n;
    struct sent_record records[];
};

struct copy_batch {
    VEC(struct store_record) records;
    VEC(struct sent_record) sent;
    size_t bytes;
};

/* --- answers --- */

static void lose_conflicting(struct copy_log *l, size_t n)
{
    copy_mark_lost(l);
    log_error(&(struct log_scope){.session = copy_log_id(l)},
              "the fleet's store has other bytes of a record: the session is lost",
              LOG_U("record", n));
}

/* Handles the refusal of a record. Ignores it if the log was sent again after this append. */
static void use_refusal(const struct sent_batch *b, const struct store_refusal *r)
{
    struct copy_log *l = b->records[r->i].log;

    if (b->call < l->reset || l->lost)
        return;
    if (r->verdict == STORE_CONFLICT) {
        lose_conflicting(l, b->records[r->i].n);
        return;
    }
    l->trimmed = false;
    copy_send_again(l, (size_t)MIN_OF(r->next, b->records[r->i].n));
}

static void use_records(const struct sent_batch *b, const struct store_answer *a)
{
    size_t k = 0;

    for (size_t i = 0; i < b->n; i++) {
        struct copy_log *l = b->records[i].log;

        if (k < a->n_refused && a->refused[k].i == i)
            use_refusal(b, &a->refused[k++]);
        else if (b->call >= l->reset && !l->lost && b->records[i].n >= l->stored)
            copy_set_stored(l, b->records[i].n + 1);
        if (l->ended && !l->trimmed)
            copy_send_later(l);
    }
}

/* Fails the waits of a log because the store is full. */
static void fail_full(struct copy_log *l)
{
    struct err e = {0};

    (void)err_set(&e, ERR_STORAGE_FULL,
                  "the memory of the fleet's store is used up: the record is kept here; repeat the "
                  "request");
    copy_fail_waits(l, &e);
}

/* Handles an append that was refused because the store is full: its waits fail, and its records are
 * sent again after a pause. */
static void wait_for_memory(const struct sent_batch *b)
{
    if (b->place->full_ms == 0)
        log_error(NULL, "fleet: the memory of the store is used up",
                  place_table_log("place", b->place->index));
    b->place->full_ms = loop_now_ms(b->place->copy->o.loop) + COPY_FULL_MS;
    for (size_t i = 0; i < b->n; i++) {
        struct copy_log *l = b->records[i].log;

        if (b->call >= l->reset && !l->lost)
            copy_send_again(l, b->records[i].n);
        fail_full(l);
    }
}

void second_copy_fail_full(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l || list_is_empty(&l->waits))
        return;
    fail_full(l);
    c->hopeless = true; /* the task calls the ended waits */
    loop_task_post(c->o.loop, &c->work, copy_on_work);
}

void copy_fence(struct copy_place *p, uint64_t epoch)
{
    if (p->epoch != epoch)
        return;
    p->state = COPY_FENCED;
    p->fenced_ms = clock_boot_ms();
    place_table_report_fenced(p->copy->o.table, p->index, epoch);
}

static void on_appended(void *ctx, const struct store_answer *a)
{
    struct sent_batch *b = ctx;
    struct copy_place *p = b->place;
    struct second_copy *c = p->copy;

    p->in_flight -= b->bytes;
    if (a->verdict == STORE_DONE && c->o.on_appended)
        c->o.on_appended(c->o.ctx, clock_us() - b->sent_us);
    if (a->verdict == STORE_DONE) {
        p->full_ms = 0;
        copy_regain(p);
        use_records(b, a);
    } else if (a->verdict == STORE_FENCED) {
        copy_fence(p, b->epoch);
    } else if (a->verdict == STORE_FULL) {
        wait_for_memory(b);
    } else if (p->epoch == b->epoch) {
        if (a->verdict == STORE_FAILED)
            p->full_ms = loop_now_ms(c->o.loop) + COPY_FULL_MS;
        copy_lose(p, a->why);
    }
    for (size_t i = 0; i < b->n; i++)
        if (!list_is_empty(&b->records[i].log->waits))
            copy_check_waits(b->records[i].log);
    free(b);
    if (!list_is_empty(&p->behind))
        loop_task_post(c->o.loop, &c->work, copy_on_work);
    copy_run_due(c);
}

/* --- batches --- */

static void end_batch(struct copy_place *p, struct copy_batch *v)
{
    struct second_copy *c = p->copy;
    struct sent_batch *b;

    if (v->records.n == 0)
        return;
    b = mem_zalloc(sizeof(*b) + v->sent.n * sizeof(b->records[0]));
    *b = (struct sent_batch){.place = p,
                             .epoch = p->epoch,
                             .call = c->calls++,
                             .bytes = v->bytes,
                             .n = v->sent.n,
                             .sent_us = clock_us()};
    memcpy(b->records, v->sent.at, v->sent.n * sizeof(b->records[0]));
    p->in_flight += b->bytes;
    store_append(c->o.store, p->index, p->epoch, v->records.at, v->records.n,
                 (struct store_call){on_appended, b});
    vec_clear(&v->records);
    vec_clear(&v->sent);
    v->bytes = 0;
}

/* Adds the next record of the log to the batch. Sends the batch first if it is full. */
static void add_to_batch(struct copy_place *p, struct copy_batch *v, struct copy_log *l,
                         struct str bytes)
{
    if (v->bytes > 0 && v->bytes + bytes.len > STORE_APPEND_MAX)
        end_batch(p, v);
    *vec_push(&v->records) =
        (struct store_record){.session = copy_log_id(l),
                              .first = l->first,
                              .n = l->sent,
                              .last = p->marks_last && l->sent + 1 == l->numbers.n,
                              .bytes = bytes};
    *vec_push(&v->sent) = (struct sent_record){l, l->sent};
    v->bytes += bytes.len;
    l->sent++;
}

static void done_batch(struct copy_place *p, struct copy_batch *v)
{
    end_batch(p, v);
    vec_done(&v->records);
    vec_done(&v->sent);
}

/* --- from the journal --- */

struct copy_reading {
    struct buf *at; /* one for each record */
};

static int on_read(void *ctx, size_t i, struct str payload, struct err *e)
{
    (void)e;
    buf_add_str(&((struct copy_reading *)ctx)->at[i], payload);
    return 0;
}

int copy_read_journal(const struct copy_log *l, size_t from, size_t n, struct buf *ret,
                      size_t *ends, struct err *e)
{
    struct copy_reading r = {mem_calloc(n, sizeof(*r.at))};
    const struct journal_reader reader = {on_read, &r};
    int rc = journal_read_records(l->place->journal, copy_log_id(l), l->numbers.at + from, n,
                                  &reader, e);

    for (size_t i = 0; i < n; i++) {
        if (rc == 0 && r.at[i].len == 0)
            rc = err_set(e, ERR_IO, "the journal has record %zu no longer", from + i);
        buf_add_str(ret, buf_str(&r.at[i]));
        ends[i] = ret->len;
        buf_done(&r.at[i]);
    }
    free(r.at);
    return rc;
}

/* Marks the session as lost: the journal cannot be read, so there can be no second copy. */
static void lose_unread(struct copy_log *l, const struct err *e)
{
    copy_mark_lost(l);
    log_error(&(struct log_scope){.session = copy_log_id(l)},
              "a record for the fleet's store cannot be read: the session is lost",
              LOG_T("error", e->text));
    copy_check_waits(l);
}

static void send_from_journal(struct copy_place *p, struct copy_log *l)
{
    size_t n = MIN_OF(l->numbers.n - l->sent, (size_t)READ_RECORDS), ends[READ_RECORDS], at = 0;
    struct buf bytes = {0};
    struct copy_batch v = {0};
    struct err e = {0};

    if (copy_read_journal(l, l->sent, n, &bytes, ends, &e)) {
        lose_unread(l, &e);
    } else {
        for (size_t i = 0; i < n; i++) {
            add_to_batch(p, &v, l, str_of(bytes.p + at, ends[i] - at));
            at = ends[i];
        }
    }
    done_batch(p, &v);
    buf_done(&bytes);
}

/* --- drops --- */

/* A deletion that has no answer yet. */
struct sent_drop {
    struct second_copy *copy;
    struct copy_place *place;
    uint64_t epoch;
    bool all;      /* the session is not needed any longer */
    bool rewrites; /* the log is sent again afterwards */
    size_t id_len;
    char id[];
};

static void on_dropped(void *ctx, const struct store_answer *a)
{
    struct sent_drop *d = ctx;
    struct copy_log *l = copy_find(d->copy, str_of(d->id, d->id_len));

    if (a->verdict == STORE_FENCED)
        copy_fence(d->place, d->epoch);
    else if (a->verdict != STORE_DONE && d->place->epoch == d->epoch)
        copy_lose(d->place, a->why);
    if (l && d->rewrites && a->verdict != STORE_DONE)
        l->rewrite = true;
    if (l && d->all && l->drop_sent && a->verdict == STORE_DONE)
        copy_end_drop(l);
    else if (l && d->all)
        l->drop_sent = false;
    free(d);
}

static void send_drop(struct copy_place *p, struct copy_log *l, bool keep, size_t from)
{
    struct sent_drop *d = mem_zalloc(sizeof(*d) + l->id_len);

    d->copy = p->copy;
    d->place = p;
    d->epoch = p->epoch;
    d->id_len = l->id_len;
    d->all = l->dropping;
    d->rewrites = l->rewrite && !keep && from == 0;
    memcpy(d->id, l->id, l->id_len);
    store_drop(p->copy->o.store, p->index, p->epoch,
               &(struct store_cut){copy_log_id(l), keep, from}, (struct store_call){on_dropped, d});
}

/* Deletes the store's log, so that records from number `first` on can be sent again. */
static void send_rewrite(struct copy_place *p, struct copy_log *l, size_t first)
{
    send_drop(p, l, false, 0);
    l->sent = l->first = first;
    l->rewrite = l->cut = false;
}

/* Deletes fragments whose commit is lost from the store's log. */
static void send_cut(struct copy_place *p, struct copy_log *l)
{
    send_drop(p, l, false, l->cut_at);
    l->cut = false;
    if (l->sent == l->numbers.n && !l->ended)
        list_remove(&l->behind);
}

/* Sends the end of a session, of which the journal may have only the last record. If the store
 * lacks earlier records, the last one follows those that it has. */
static void send_ended(struct copy_place *p, struct copy_log *l)
{
    if (l->rewrite) {
        send_rewrite(p, l, l->numbers.n - 1);
        l->trimmed = true;
    } else if (l->sent + 1 < l->numbers.n) {
        copy_move_end(l, l->sent);
    }
    if (l->sent + 1 == l->numbers.n)
        send_from_journal(p, l);
    if (!l->trimmed && !l->lost && l->stored == l->numbers.n) {
        send_drop(p, l, true, 0);
        l->trimmed = true;
    }
}

/* Reports whether records of the log may be sent: other logs may have to be in the store first. */
static bool may_send(const struct copy_log *l)
{
    const struct second_copy *c = l->place->copy;

    return !c->hooks || c->hooks->may_send(c->hooks_ctx, copy_log_id(l));
}

/* Sends a piece of the log. It leaves the list when all is sent. */
static void send_piece(struct copy_place *p, struct copy_log *l)
{
    bool stays = l->lost || l->unread || !may_send(l);

    if (l->dropping || l->drop_sent) { /* nothing follows a drop before its answer */
        if (!l->drop_sent)
            send_drop(p, l, false, 0);
        l->drop_sent = true;
        list_remove(&l->behind);
    } else if (l->cut && !l->rewrite && !stays) {
        send_cut(p, l);
    } else if (l->ended && l->numbers.n > 0 && !stays) {
        send_ended(p, l);
        list_remove(&l->behind);
    } else if (l->rewrite && !stays) {
        send_rewrite(p, l, 0);
        if (l->numbers.n == 0)
            list_remove(&l->behind);
    } else if (l->sent < l->numbers.n && !stays) {
        send_from_journal(p, l);
        if (l->sent == l->numbers.n)
            list_remove(&l->behind);
    } else {
        list_remove(&l->behind);
    }
}

/* --- sending --- */

/* Sends records of this loop iteration from memory, if all records before them were sent. */
static void send_fresh(struct copy_place *p)
{
    struct second_copy *c = p->copy;
    struct copy_batch v = {0};

    for (size_t i = 0; i < c->fresh.n; i++) {
        const struct copy_fresh *f = &c->fresh.at[i];
        struct copy_log *l = f->log;

        if (!l || l->place != p || l->sent != f->n || l->lost || l->dropping || l->ended ||
            l->rewrite || l->cut || l->drop_sent || !may_send(l))
            continue;
        add_to_batch(p, &v, l, str_of(c->fresh_bytes.p + f->at, f->size));
        if (l->sent == l->numbers.n)
            list_remove(&l->behind);
    }
    done_batch(p, &v);
}

void copy_send(struct copy_place *p)
{
    struct copy_log *l;

    if (p->full_ms > loop_now_ms(p->copy->o.loop))
        return;
    send_fresh(p);
    while (p->in_flight < COPY_IN_FLIGHT_MAX &&
           (l = LIST_FIRST_OF(&p->behind, struct copy_log, behind)))
        send_piece(p, l);
}
