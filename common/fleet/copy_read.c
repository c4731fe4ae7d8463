/* Reads records that only the store has (second_copy.h): each log from its first missing record on,
 * a few logs at a time. Sessions that requests wait for are read first (second_copy_fetch). */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/copy_internal.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"

/* The reading of one log. The log outlives it, because an unread log is never deleted. */
struct copy_reader {
    struct copy_log *log;
    unsigned round;
    size_t from;   /* number of the first record that was requested */
    size_t n_new;  /* number of records that were added so far */
    bool had_some; /* the journal had records before */
};

static void lose_log(struct copy_log *l, const char *why)
{
    copy_mark_lost(l);
    log_error(&(struct log_scope){.session = copy_log_id(l)},
              "the fleet's store does not fit the session: the session is lost",
              LOG_T("error", why));
}

/* Reports whether the journal's record n has these bytes. */
static bool is_same(const struct copy_log *l, size_t n, struct str bytes)
{
    struct buf own = {0};
    struct err e = {0};
    size_t end;
    bool same = copy_read_journal(l, n, 1, &own, &end, &e) == 0 && str_eq(buf_str(&own), bytes);

    buf_done(&own);
    return same;
}

/* Drops the session's records here: the journal is damaged, or another owner has continued. Returns
 * whether the log is read from its start; false: the session is in use. */
static bool begin_anew(const struct copy_reader *q)
{
    struct copy_log *l = q->log;
    const struct second_copy_options *o = &l->place->copy->o;

    if (o->begin_anew(o->ctx, l->place->index, copy_log_id(l)))
        return false;
    log_error(&(struct log_scope){.session = copy_log_id(l)},
              "the journal differs from the fleet's store, which is longer and is read instead",
              LOG_U("records", l->numbers.n));
    vec_done(&l->numbers);
    vec_done(&l->fragments);
    l->sent = l->stored = l->first = 0;
    return true;
}

/* Reports whether the journal cannot store anything now, so that the record is not at fault. */
static bool is_storage(const struct err *e)
{
    return e->kind == ERR_STORAGE_FULL || e->kind == ERR_STORAGE_FAILED;
}

/* Reads the log again after a pause. Requests that wait for it get the error. */
static void pause_log(struct copy_log *l, const struct err *e)
{
    struct copy_place *p = l->place;
    const struct second_copy_options *o = &p->copy->o;

    if (p->read_ms == 0)
        log_error(NULL, "the journal takes no records of the fleet's store",
                  place_table_log("place", p->index), LOG_T("error", e->text));
    p->read_ms = loop_now_ms(o->loop) + COPY_FULL_MS;
    l->wanted = false;
    copy_begin_reading(l);
    o->on_read_back(o->ctx, p->index, copy_log_id(l), e);
}

/* Skips records that the store has dropped because the session has ended. Returns false if it has
 * dropped none. The log then has only the end, or the end twice if a process died before it trimmed
 * the log. */
static bool skip_dropped(struct copy_log *l, const struct store_answer *a)
{
    if (a->first <= l->numbers.n)
        return false;
    while (l->numbers.n + 1 < a->next)
        *vec_push(&l->numbers) = 0;
    l->first = l->sent = l->stored = l->numbers.n;
    l->trimmed = a->first + 1 == a->next;
    return true;
}

/* Reports whether the answer has only one record, maybe repeated, at the end of the log. */
static bool ends_once(const struct store_answer *a)
{
    for (size_t i = 1; i < a->n_texts; i++)
        if (!str_eq(a->texts[i], a->texts[0]))
            return false;
    return a->first + a->n_texts == a->next;
}

/* Adds the records of one answer. Returns NULL, or why they cannot be added. */
static const char *add_records(struct copy_reader *q, const struct store_answer *a, struct err *e)
{
    struct copy_log *l = q->log;
    const struct second_copy_options *o = &l->place->copy->o;
    size_t i = 0, had = l->numbers.n;
    bool ends = false;

    if (a->next == 0)
        return "its records have left the store";
    if (l->numbers.n > 0 && q->from + 1 == l->numbers.n && a->first == q->from && a->n_texts > 0) {
        i = is_same(l, q->from, a->texts[0]);
        if (i == 0 && (l->place->forgotten || !begin_anew(q)))
            return "the last common record differs";
        if (i == 0 && q->from > 0)
            return NULL; /* on_read continues at 0 */
    } else if (a->n_texts > 0 && l->fragments.n == 0) {
        ends = skip_dropped(l, a);
        if (ends && !ends_once(a))
            return "records are missing";
        i = ends ? a->n_texts - 1 : 0;
    }
    for (; i < a->n_texts; i++, q->n_new++)
        if (o->add_back(o->ctx, l->place->index, copy_log_id(l), a->texts[i], ends, e)) {
            if (ends && is_storage(e)) { /* undo skip_dropped */
                l->numbers.n = l->sent = l->stored = had;
                l->first = 0;
                l->trimmed = false;
            }
            return e->text;
        }
    return NULL;
}

static void on_read(void *ctx, const struct store_answer *a);

static void read_from(struct copy_reader *q, size_t from)
{
    struct copy_place *p = q->log->place;

    q->from = from;
    store_read(p->copy->o.store, p->index, copy_log_id(q->log), from,
               (struct store_call){on_read, q});
}

/* Ends the reading: all records are here now. `next` is the length of the store's log. */
static void finish_log(struct copy_reader *q, uint64_t next)
{
    struct copy_log *l = q->log;
    struct copy_place *p = l->place;

    if (q->had_some && q->n_new > 0)
        log_warn(&(struct log_scope){.session = copy_log_id(l)},
                 "records that only the fleet's store had were added to the journal",
                 LOG_U("records", q->n_new));
    copy_end_reading(l);
    if (next > l->numbers.n) { /* fragments whose commit is lost */
        l->cut = true;
        l->cut_at = l->numbers.n;
        copy_send_again(l, l->numbers.n);
    } else if (!l->ended && (q->had_some || !p->proved || next < l->numbers.n)) {
        /* an append under the epoch confirms what was read whatever the epoch is */
        copy_send_again(l, (size_t)(next > 0 && next > l->first ? next - 1 : next));
        p->proved = true;
    }
    if (l->ended)
        copy_send_later(l);
}

static void on_read(void *ctx, const struct store_answer *a)
{
    struct copy_reader *q = ctx;
    struct copy_log *l = q->log;
    struct copy_place *p = l->place;
    const char *why;
    struct err e = {0};

    if (q->round != p->round || a->verdict != STORE_DONE) {
        bool current = q->round == p->round;

        free(q);
        if (current)
            copy_lose(p, a->why);
        return;
    }
    why = add_records(q, a, &e);
    if (!why && l->numbers.n == 0 && q->from > 0) {
        read_from(q, 0);
        return;
    }
    if (!why && a->n_texts > 0 && a->first + a->n_texts < a->next) {
        read_from(q, (size_t)(a->first + a->n_texts));
        return;
    }
    p->n_reading--;
    if (why && is_storage(&e)) {
        pause_log(l, &e);
        free(q);
        return;
    }
    p->read_ms = 0;
    if (why)
        lose_log(l, why);
    else
        finish_log(q, a->next);
    free(q);
    copy_report_read(l);
    copy_read_unread(p);
}

static void begin_reader(struct copy_log *l)
{
    struct copy_reader *q = mem_zalloc(sizeof(*q));

    *q = (struct copy_reader){.log = l, .round = l->place->round, .had_some = l->numbers.n > 0};
    read_from(q, l->numbers.n > 0 ? l->numbers.n - 1 : 0);
}

void copy_read_unread(struct copy_place *p)
{
    const struct second_copy *c = p->copy;
    size_t most = c->o.reads > 0 ? c->o.reads : COPY_READS;
    struct copy_log *l;

    if (p->read_ms > loop_now_ms(p->copy->o.loop))
        return;
    while (p->state == COPY_OPEN && p->n_reading < most &&
           (l = LIST_FIRST_OF(&p->unasked, struct copy_log, unasked))) {
        list_remove(&l->unasked);
        p->n_reading++;
        if (!c->hooks || !c->hooks->fetch(c->hooks_ctx, p->index, copy_log_id(l)))
            begin_reader(l);
    }
}

int second_copy_check_known(const struct second_copy *c, uint32_t place, struct str session,
                            struct err *e)
{
    if (!place_table_is_taken(c->o.table, place) || copy_find(c, session))
        return 0;
    return err_set(e, ERR_SESSION_LOST,
                   "session %.*s is unknown or lost: a lost node alone may have had records of "
                   "index %u",
                   (int)session.len, session.p, place);
}

void second_copy_end_fetch(struct second_copy *c, struct str session, const struct err *e)
{
    struct copy_log *l = copy_find(c, session);

    if (!l || !l->unread || list_holds(&l->unasked) || l->place->state != COPY_OPEN)
        return; /* the place was compared again meanwhile, or will be */
    if (!e) {
        begin_reader(l);
        return;
    }
    l->place->n_reading--;
    pause_log(l, e);
}
