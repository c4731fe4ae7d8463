/* Compares the lengths of all logs of a place with the store's (second_copy.h). */
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/fleet/copy_internal.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"

/* A request for lengths that has no answer yet. */
struct copy_lengths {
    struct copy_place *place;
    unsigned round;
};

void copy_lose(struct copy_place *p, const char *why)
{
    if (p->copy->ending)
        return;
    if (p->state != COPY_OPEN && p->state != COPY_COMPARING)
        return;
    if (!p->away)
        log_error(NULL, "fleet: the store does not answer, and answers wait",
                  place_table_log("place", p->index), LOG_T("error", why ? why : ""));
    p->away = true;
    p->state = COPY_COMPARING;
    p->asked = false; /* the next tick compares again */
    p->round++;
}

void copy_regain(struct copy_place *p)
{
    if (p->away)
        log_info(NULL, "fleet: the store answers again", place_table_log("place", p->index),
                 LOG_U("behind_records", p->n_behind));
    p->away = false;
}

/* --- lengths --- */

/* Continues a log of which the store has the first n records. Sends the last of them again if no
 * append has confirmed it, because lengths are read whatever the epoch is. */
static void confirm_log(struct copy_log *l, size_t n, bool verifies)
{
    copy_send_again(l, n > 0 && (verifies || n > l->stored) ? n - 1 : n);
}

void copy_begin_reading(struct copy_log *l)
{
    struct copy_place *p = l->place;

    if (!l->unread)
        p->n_unread++;
    l->unread = true;
    l->cut = false;
    l->sent = l->numbers.n;
    copy_set_stored(l, l->numbers.n);
    list_remove(&l->behind);
    list_remove(&l->unasked);
    if (l->wanted)
        list_prepend(&p->unasked, &l->unasked);
    else
        list_append(&p->unasked, &l->unasked);
}

void copy_end_reading(struct copy_log *l)
{
    if (l->unread)
        l->place->n_unread--;
    l->unread = l->wanted = false;
    list_remove(&l->unasked);
}

static bool must_read(const struct copy_log *l, uint64_t first, uint64_t next)
{
    return l->unread || (!l->ended && !l->rewrite && (next > l->numbers.n || first > 0));
}

/* Reports whether the log, which only the store has, is to be deleted. */
static bool is_left_over(const struct copy_log *l, uint64_t next)
{
    const struct second_copy_options *o = &l->place->copy->o;

    return next > 0 && l->numbers.n == 0 && l->fragments.n == 0 && !l->unread && !l->lost &&
           o->is_needed && !o->is_needed(o->ctx, l->place->index, copy_log_id(l));
}

/* Compares a log with the store's, which has the elements first .. next-1. A single element is the
 * session's end only if this process has sent it. After a restart it may be any record, because the
 * journal counts from 0 again. */
static void compare_log(struct copy_log *l, uint64_t first, uint64_t next, bool verifies)
{
    size_t n = l->numbers.n, there = (size_t)MIN_OF(next, (uint64_t)n);

    l->seen = true;
    l->doubted = l->doubted || (l->place->verifies && l->place->doubt_ms > 0);
    l->dropping = l->dropping || is_left_over(l, next);
    if (l->dropping) {
        copy_send_later(l);
    } else if (l->lost) {
        return;
    } else if (must_read(l, first, next)) {
        copy_begin_reading(l);
    } else if (l->ended) {
        l->trimmed = !verifies && !l->rewrite && next == n && first + 1 == next;
        if (l->rewrite || (!verifies && next == n))
            copy_send_again(l, l->rewrite ? 0 : n);
        else
            copy_move_end(l, (size_t)next);
    } else if (l->rewrite) {
        copy_send_again(l, 0);
    } else {
        confirm_log(l, there, verifies);
    }
}

static void open_place(struct copy_place *p)
{
    if (p->n_behind == 0)
        copy_regain(p);
    p->verifies = p->proved = false;
    p->compared_ms = clock_boot_ms();
    p->level = p->n_behind == 0;
    p->served = true;
    p->state = COPY_OPEN;
    copy_read_unread(p);
    loop_task_post(p->copy->o.loop, &p->copy->work, copy_on_work);
}

static void use_lengths(struct copy_place *p, const struct store_answer *a)
{
    struct second_copy *c = p->copy;
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&c->logs, &at)))
        ((struct copy_log *)slot->value)->seen = false;
    if (c->hooks)
        c->hooks->on_lengths_begin(c->hooks_ctx, p->index);
    for (size_t i = 0; i < a->n_texts; i++) {
        if (!c->hooks || !c->hooks->take_log(c->hooks_ctx, p->index, a->texts[i], a->logs[i].next))
            compare_log(copy_get(c, p, a->texts[i]), a->logs[i].first, a->logs[i].next,
                        p->verifies);
    }
    for (at = 0; (slot = map_next(&c->logs, &at));) {
        struct copy_log *l = slot->value;

        if (l->place == p && !l->seen)
            compare_log(l, 0, 0, false);
    }
    p->server = a->server;
    if (c->hooks)
        c->hooks->on_lengths_end(c->hooks_ctx, p->index, p->epoch);
    open_place(p);
}

/* Uses the lengths, unless they are of an older round. After an error the next tick asks again. */
static void on_lengths(void *ctx, const struct store_answer *a)
{
    struct copy_lengths *q = ctx;
    struct copy_place *p = q->place;
    bool current = q->round == p->round;

    free(q);
    if (!current)
        return;
    if (a->verdict == STORE_DONE)
        use_lengths(p, a);
    else
        copy_lose(p, a->why);
}

void copy_compare(struct copy_place *p)
{
    struct copy_lengths *q = mem_zalloc(sizeof(*q));

    *q = (struct copy_lengths){p, p->round};
    p->asked = true;
    p->n_reading = 0;
    store_read(p->copy->o.store, p->index, str_of(NULL, 0), 0, (struct store_call){on_lengths, q});
}

/* --- servers that are replaced --- */

void copy_check_fence(struct copy_place *p)
{
    struct second_copy *c = p->copy;
    struct fleet_own_place own;

    if (p->state != COPY_FENCED || !place_table_find_own(c->o.table, p->index, &own) ||
        own.renewed_ms <= p->fenced_ms)
        return;
    log_warn(NULL, "fleet: the store refuses an epoch that it renews, connecting again",
             place_table_log("place", p->index), LOG_U("epoch", p->epoch));
    place_table_report_fenced(c->o.table, p->index, 0);
    p->state = COPY_COMPARING;
    p->asked = false;
    p->round++;
    p->verifies = true;
    c->o.reconnect(c->o.ctx, "the server refuses an epoch that was renewed");
}

void copy_check_server(struct copy_place *p)
{
    const struct place_table *t = p->copy->o.table;
    uint64_t server = place_table_server(t);

    if (p->state != COPY_OPEN || server == 0 || p->server == 0 || server == p->server ||
        place_table_reached_ms(t) <= p->compared_ms)
        return;
    p->state = COPY_COMPARING;
    p->asked = false;
    p->round++;
}
