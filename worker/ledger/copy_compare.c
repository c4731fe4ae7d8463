/* Comparing the lengths of all logs of a place with the store's, and reading back what only the
 * store has (second_copy.h). */
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/fleet/fleet_store.h"
#include "worker/ledger/copy_internal.h"

/* A question without an answer. */
struct copy_question {
    struct copy_place *place;
    unsigned round;
    size_t from; /* number of the first record that is read back */
};

static struct copy_question *new_question(struct copy_place *p, size_t from)
{
    struct copy_question *q = mem_zalloc(sizeof(*q));

    *q = (struct copy_question){p, p->round, from};
    return q;
}

/* True if the answer counts. Frees the question. A lost one is asked anew. */
static bool end_question(struct copy_question *q, const struct store_answer *a, size_t *ret_from)
{
    struct copy_place *p = q->place;
    bool current = q->round == p->round;

    *ret_from = q->from;
    free(q);
    if (!current)
        return false;
    if (a->verdict == STORE_DONE)
        return true;
    copy_lose(p, a->why);
    return false;
}

void copy_clear_reads(struct copy_place *p)
{
    while (p->reads.n > 0)
        free(vec_pop(&p->reads));
}

void copy_lose(struct copy_place *p, const char *why)
{
    if (p->copy->ending)
        return;
    if (p->state != COPY_OPEN && p->state != COPY_COMPARING && p->state != COPY_READING)
        return;
    if (!p->away)
        log_error(NULL, "fleet: the store does not answer, and answers wait",
                  LOG_U("place", p->index), LOG_T("error", why ? why : ""));
    p->away = true;
    p->state = COPY_COMPARING;
    p->asked = false; /* the next tick asks */
    p->round++;
    copy_clear_reads(p);
}

/* --- lengths --- */

/* Sends the last of the first n records again if no append has confirmed it: lengths are read
 * whatever the epoch is. */
static void confirm_log(struct copy_log *l, size_t n, bool verifies)
{
    copy_send_again(l, n > 0 && (verifies || n > l->stored) ? n - 1 : n);
}

/* The log has elements first .. next-1 in the store. A single one is an end only if this process
 * has sent it: after a restart the journal counts anew, and it may be any record. */
static void compare_log(struct copy_log *l, uint64_t first, uint64_t next, bool verifies)
{
    struct copy_place *p = l->place;
    size_t n = l->numbers.n, there = (size_t)MIN_OF(next, (uint64_t)n);

    l->seen = true;
    if (l->dropping) {
        copy_send_later(l);
    } else if (l->lost) {
        return;
    } else if (l->ended) {
        l->trimmed = !verifies && next == n && first + 1 == next;
        l->rewrite = l->rewrite || !l->trimmed;
        confirm_log(l, l->rewrite ? 0 : n, false);
    } else if (l->rewrite) {
        copy_send_again(l, 0);
    } else if (next > n || first > 0) {
        *vec_push(&p->reads) = mem_strndup(l->id, l->id_len);
    } else {
        confirm_log(l, there, verifies);
    }
}

static void read_back(struct copy_place *p);

static void open_place(struct copy_place *p)
{
    if (p->away)
        log_info(NULL, "fleet: the store answers again", LOG_U("place", p->index),
                 LOG_U("behind_records", p->n_behind));
    p->away = p->verifies = false;
    p->served = true;
    p->state = COPY_OPEN;
    loop_task_post(p->copy->o.loop, &p->copy->work, copy_on_work);
}

static void on_lengths(void *ctx, const struct store_answer *a)
{
    struct copy_place *p = ((struct copy_question *)ctx)->place;
    struct second_copy *c = p->copy;
    struct map_slot *slot;
    size_t at = 0, from;

    if (!end_question(ctx, a, &from))
        return;
    while ((slot = map_next(&c->logs, &at)))
        ((struct copy_log *)slot->value)->seen = false;
    for (size_t i = 0; i < a->n_texts; i++) {
        struct copy_log *l = copy_find(c, a->texts[i]);

        if (l)
            compare_log(l, a->logs[i].first, a->logs[i].next, p->verifies);
        else
            *vec_push(&p->reads) = mem_strndup(a->texts[i].p, a->texts[i].len);
    }
    for (at = 0; (slot = map_next(&c->logs, &at));) {
        struct copy_log *l = slot->value;

        if (l->place == p && !l->seen)
            compare_log(l, 0, 0, false);
    }
    p->state = COPY_READING;
    read_back(p);
}

void copy_compare(struct copy_place *p)
{
    p->asked = true;
    copy_clear_reads(p);
    store_read(p->copy->o.store, p->index, str_of(NULL, 0), 0,
               (struct store_call){on_lengths, new_question(p, 0)});
}

/* --- reading back --- */

static void lose_differing(struct copy_log *l, const char *why)
{
    copy_mark_lost(l);
    log_error(&(struct log_scope){.session = copy_log_id(l)},
              "the fleet's store has other records of a session: the session is lost",
              LOG_T("error", why));
}

/* Whether the journal's record n has these bytes. */
static bool is_same(const struct copy_log *l, size_t n, struct str bytes)
{
    struct buf own = {0};
    struct err e = {0};
    size_t end;
    bool same = copy_read_journal(l, n, 1, &own, &end, &e) == 0 && str_eq(buf_str(&own), bytes);

    buf_done(&own);
    return same;
}

/* Adds the records of one answer. False: they do not fit. */
static bool add_records(struct copy_place *p, struct str id, size_t from,
                        const struct store_answer *a)
{
    struct second_copy *c = p->copy;
    struct copy_log *l = copy_find(c, id);
    struct err e = {0};
    size_t i = 0;

    if (l && l->numbers.n > 0 && from + 1 == l->numbers.n && a->first == from && a->n_texts > 0) {
        if (!is_same(l, from, a->texts[0])) {
            lose_differing(l, "the last common record differs");
            return false;
        }
        i = 1;
    }
    for (; i < a->n_texts; i++) {
        if (c->o.add_back(c->o.ctx, p->index, id, a->texts[i], &e) == 0) {
            p->n_added++;
            continue;
        }
        l = copy_find(c, id);
        if (l)
            lose_differing(l, e.text);
        else
            log_error(&(struct log_scope){.session = id},
                      "a record of the fleet's store does not fit", LOG_T("error", e.text));
        return false;
    }
    return true;
}

static void on_read_back(void *ctx, const struct store_answer *a)
{
    struct copy_place *p = ((struct copy_question *)ctx)->place;
    struct copy_log *l;
    struct str id;
    size_t from;
    bool fits;

    if (!end_question(ctx, a, &from))
        return;
    id = str_cstr(vec_last(&p->reads));
    fits = add_records(p, id, from, a);
    if (fits && a->first + a->n_texts < a->next && a->n_texts > 0) {
        store_read(
            p->copy->o.store, p->index, id, a->first + a->n_texts,
            (struct store_call){on_read_back, new_question(p, (size_t)(a->first + a->n_texts))});
        return;
    }
    l = copy_find(p->copy, id);
    if (l && fits) {
        /* deletes fragments whose commit is lost */
        l->rewrite = l->rewrite || a->next > l->numbers.n;
        confirm_log(l, l->rewrite ? 0 : (size_t)a->next, true);
    }
    if (fits && p->n_added > 0)
        log_warn(&(struct log_scope){.session = id},
                 "records that only the fleet's store had were added to the journal",
                 LOG_U("records", p->n_added));
    free(vec_pop(&p->reads));
    read_back(p);
}

/* Reads the next log, from the last record that both have. */
static void read_back(struct copy_place *p)
{
    const struct copy_log *l;
    struct str id;
    size_t from;

    if (p->reads.n == 0) {
        open_place(p);
        return;
    }
    p->n_added = 0;
    id = str_cstr(vec_last(&p->reads));
    l = copy_find(p->copy, id);
    from = l && l->numbers.n > 0 ? l->numbers.n - 1 : 0;
    store_read(p->copy->o.store, p->index, id, from,
               (struct store_call){on_read_back, new_question(p, from)});
}
