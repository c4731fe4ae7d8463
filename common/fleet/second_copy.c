/* Places, logs and waits (second_copy.h).
 *
 *   CLOSED -> COMPARING -> OPEN                  an epoch of the keeper; lengths
 *     ^          ^-----------|                   the connection was lost
 *     '--------- FENCED <----'                   the keeper decides
 *                FENCED -> COMPARING             the keeper has renewed the refused epoch
 *
 * Records of the present loop iteration are sent from memory, all others from the journal. */
#include "common/fleet/second_copy.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/fleet/copy_internal.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"

/* --- logs --- */

struct copy_log *copy_find(const struct second_copy *c, struct str session)
{
    return map_get(&c->logs, session);
}

static struct copy_place *find_place(const struct second_copy *c, uint32_t index)
{
    for (size_t i = 0; i < c->places.n; i++)
        if (c->places.at[i]->index == index)
            return c->places.at[i];
    return NULL;
}

/* Finds the place, or makes it before its journal is known: records are replayed first. */
static struct copy_place *get_place(struct second_copy *c, uint32_t index)
{
    struct copy_place *p = find_place(c, index);

    if (!p) {
        p = mem_zalloc(sizeof(*p));
        p->copy = c;
        p->index = index;
        *vec_push(&c->places) = p;
    }
    return p;
}

/* Sets the number of records that the store has. */
void copy_set_stored(struct copy_log *l, size_t n)
{
    l->place->n_behind = l->place->n_behind + l->stored - n;
    l->stored = n;
    if (l->place->n_behind == 0)
        l->place->level = true;
}

void copy_send_later(struct copy_log *l)
{
    struct second_copy *c = l->place->copy;

    if (!list_holds(&l->behind))
        list_append(&l->place->behind, &l->behind);
    loop_task_post(c->o.loop, &c->work, copy_on_work);
}

/* Reports whether the store may lack something of the log. */
static bool has_unsent(const struct copy_log *l)
{
    return l->sent < l->numbers.n || l->ended || l->rewrite || l->cut;
}

/* Sends the log again from record n on. */
void copy_send_again(struct copy_log *l, size_t n)
{
    l->sent = MIN_OF(n, l->numbers.n);
    copy_set_stored(l, l->sent);
    l->reset = l->place->copy->calls;
    if (has_unsent(l))
        copy_send_later(l);
}

void copy_move_end(struct copy_log *l, size_t n)
{
    size_t had = l->numbers.n, at = n > 0 ? n : had - 1;
    struct copy_wait *w;

    while (l->numbers.n <= at)
        *vec_push(&l->numbers) = 0;
    l->numbers.n = at + 1;
    vec_last(&l->numbers) = 0; /* the journal counts from 0 again */
    l->place->n_behind = l->place->n_behind + l->numbers.n - had;
    LIST_EACH(&l->waits, w, struct copy_wait, item)
        w->n = MIN_OF(w->n, l->numbers.n);
    l->first = at;
    l->trimmed = false;
    copy_send_again(l, at);
}

struct copy_log *copy_get(struct second_copy *c, struct copy_place *p, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l) {
        l = copy_log_new(p, session);
        p->n_logs++;
        (void)map_set(&c->logs, copy_log_id(l), l);
    }
    return l;
}

void second_copy_add(struct second_copy *c, uint32_t place, struct str session, struct str record,
                     uint32_t number)
{
    struct copy_log *l = copy_get(c, get_place(c, place), session);
    struct copy_role role = {0};
    size_t more;

    if (c->o.read_role)
        role = c->o.read_role(record, l->fragments.n > 0);
    l->place->version = MAX_OF(l->place->version, role.version);
    l->dropping = false;
    more = copy_log_add(l, &role, number);
    l->place->n_behind += more;
    l->rewrite = l->rewrite || l->ended;
    if (l->lost || l->unread) { /* unread: the record comes from the store */
        l->sent = l->numbers.n;
        copy_set_stored(l, l->numbers.n);
    }
    if (more == 0 || l->lost || l->unread)
        return;
    if (l->place->state == COPY_OPEN && c->fresh_bytes.len + record.len <= COPY_FRESH_MAX) {
        *vec_push(&c->fresh) = (struct copy_fresh){
            .log = l, .n = l->numbers.n - 1, .at = c->fresh_bytes.len, .size = record.len};
        buf_add_str(&c->fresh_bytes, record);
    }
    copy_send_later(l);
}

static void remove_log(struct second_copy *c, struct copy_log *l)
{
    l->place->n_logs--;
    (void)map_take(&c->logs, copy_log_id(l));
    copy_log_free(l);
}

void second_copy_forget_session(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l)
        return;
    copy_set_stored(l, l->numbers.n);
    remove_log(c, l);
}

void second_copy_release_call(struct second_copy *c, struct str session, uint64_t call)
{
    struct copy_log *l = copy_find(c, session);

    if (l)
        copy_log_release_call(l, call);
}

void second_copy_end_session(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l || l->numbers.n == 0)
        return;
    l->ended = true;
    vec_last(&l->numbers) = 0; /* the journal counts from 0 again */
    copy_send_later(l);
}

bool second_copy_drop_session(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l)
        return true;
    if (l->unread || l->lost) /* a lost session stays lost, and its log stays */
        return false;
    if (!l->dropping) {
        l->dropping = true;
        copy_send_later(l);
    }
    return false;
}

void copy_mark_lost(struct copy_log *l)
{
    l->lost = true;
    copy_end_reading(l);
    copy_set_stored(l, l->numbers.n);
    list_remove(&l->behind);
}

/* Ends a wait, with an error if `why` is set. copy_run_due calls its function. */
static void end_wait(struct second_copy *c, struct copy_wait *w, const struct err *why)
{
    if (why)
        w->why = *why;
    list_remove(&w->item);
    list_append(&c->due, &w->item);
    w->log = NULL;
}

/* Ends a drop: the store has deleted the log. */
void copy_end_drop(struct copy_log *l)
{
    struct second_copy *c = l->place->copy;

    l->drop_sent = false;
    if (!l->dropping) { /* its id was used again meanwhile */
        copy_send_again(l, 0);
        return;
    }
    for (struct copy_wait *w; (w = LIST_FIRST_OF(&l->waits, struct copy_wait, item));)
        end_wait(c, w, NULL);
    copy_set_stored(l, l->numbers.n);
    for (size_t i = 0; i < c->fresh.n; i++)
        if (c->fresh.at[i].log == l)
            c->fresh.at[i].log = NULL;
    remove_log(c, l);
    copy_run_due(c);
}

uint64_t second_copy_behind(const struct second_copy *c)
{
    uint64_t n = 0;

    for (size_t i = 0; i < c->places.n; i++)
        if (c->places.at[i]->state != COPY_CLOSED)
            n += c->places.at[i]->n_behind;
    return n;
}

/* --- waits --- */

struct place_name {
    char text[16];
};

/* Returns the name of the place in errors. */
static struct place_name name_place(uint32_t index)
{
    struct place_name name = {"d"};

    if (index != FLEET_DISPATCHER)
        (void)snprintf(name.text, sizeof(name.text), "w%u", (unsigned)index);
    return name;
}

static int fail_place(const struct copy_place *p, struct err *e)
{
    struct place_name name = name_place(p->index);

    if (p->state == COPY_CLOSED || p->state == COPY_FENCED)
        return err_set(e, ERR_OWNER_CHANGED,
                       "place %s has another owner, or none: repeat the request", name.text);
    return err_set(e, ERR_STORAGE_UNAVAILABLE,
                   "place %s is being compared with the fleet's store: repeat the request",
                   name.text);
}

static int fail_lost(const struct copy_log *l, struct err *e)
{
    return err_set(e, ERR_SESSION_LOST,
                   "session %.*s is lost: the fleet's store has other records of it",
                   (int)l->id_len, l->id);
}

static int check_place(const struct second_copy *c, uint32_t place, const struct copy_log *l,
                       struct err *e)
{
    const struct copy_place *p = find_place(c, place);

    if (l && l->lost)
        return fail_lost(l, e);
    return p && p->journal && !p->served ? fail_place(p, e) : 0;
}

int second_copy_check(const struct second_copy *c, uint32_t place, struct str session,
                      struct err *e)
{
    const struct copy_log *l = copy_find(c, session);

    if (check_place(c, place, l, e))
        return -1;
    if (!l || !l->unread)
        return 0;
    return err_set(e, ERR_STORAGE_UNAVAILABLE,
                   "the session's records are being read from the fleet's store: repeat the "
                   "request");
}

bool second_copy_is_unread(const struct second_copy *c, struct str session)
{
    const struct copy_log *l = second_copy_unread(c) > 0 ? copy_find(c, session) : NULL;

    return l && l->unread;
}

bool second_copy_fetch(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (!l || !l->unread)
        return false;
    l->wanted = true;
    if (list_holds(&l->unasked)) {
        list_remove(&l->unasked);
        list_prepend(&l->place->unasked, &l->unasked);
    }
    return true;
}

size_t second_copy_unread(const struct second_copy *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->places.n; i++)
        n += c->places.at[i]->n_unread;
    return n;
}

void copy_report_read(struct copy_log *l)
{
    const struct second_copy_options *o = &l->place->copy->o;
    struct err e = {0};

    if (l->lost)
        (void)fail_lost(l, &e);
    else if (l->unread)
        (void)fail_place(l->place, &e);
    else
        copy_mark_doubt(l);
    o->on_read_back(o->ctx, l->place->index, copy_log_id(l), e.kind == ERR_NONE ? NULL : &e);
}

int second_copy_check_read(const struct second_copy *c, uint32_t place, struct str session,
                           struct err *e)
{
    if (check_place(c, place, copy_find(c, session), e))
        return -1;
    if (!find_place(c, place)) /* no such place: the id is unknown */
        return 0;
    if (place_table_may_answer(c->o.table, place, clock_boot_ms()) &&
        place_table_may_read(c->o.table, place, clock_boot_ms(), c->o.lease_ms))
        return 0;
    return err_set(e, ERR_STORAGE_UNAVAILABLE,
                   "this node has not reached the fleet's store for a lease: another node may "
                   "answer for %s by now; repeat the request",
                   name_place(place).text);
}

static bool may_answer(const struct copy_place *p)
{
    return p->state == COPY_OPEN &&
           place_table_may_answer(p->copy->o.table, p->index, clock_boot_ms());
}

bool second_copy_is_level(const struct second_copy *c, uint32_t place)
{
    const struct copy_place *p = find_place(c, place);

    return p && may_answer(p) && (p->level || p->n_behind == 0);
}

static bool is_stored(const struct copy_log *l, size_t n)
{
    return !l->lost && l->stored >= n && may_answer(l->place);
}

bool second_copy_await(struct second_copy *c, struct str session, struct copy_done done)
{
    struct copy_log *l = copy_find(c, session);
    struct copy_wait *w;

    if (!l || is_stored(l, l->numbers.n))
        return true;
    w = mem_zalloc(sizeof(*w));
    *w = (struct copy_wait){.log = l,
                            .n = l->numbers.n,
                            .done = done,
                            .journal = l->place->journal,
                            .since_ms = loop_now_ms(c->o.loop)};
    list_append(&l->waits, &w->item);
    list_append(&c->waits, &w->all);
    if (l->lost || l->place->state == COPY_CLOSED) {
        c->hopeless = true;
        loop_task_post(c->o.loop, &c->work, copy_on_work);
    }
    return false;
}

/* Ends the waits in `due`: calls their functions, which may cancel other waits, make new ones, and
 * add records. */
void copy_run_due(struct second_copy *c)
{
    struct copy_wait *w;

    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while ((w = LIST_FIRST_OF(&c->due, struct copy_wait, item))) {
        struct copy_wait ended = *w; /* NOLINT(clang-analyzer-unix.Malloc): a freed one left */

        list_remove(&w->item); /* NOLINT(clang-analyzer-unix.Malloc) */
        list_remove(&w->all);
        free(w);
        if (ended.why.kind != ERR_NONE)
            ended.done.failed(ended.done.ctx, &ended.why);
        else if (journal_await(ended.journal, ended.done.fn, ended.done.ctx) > 0)
            ended.done.fn(ended.done.ctx);
    }
}

/* Ends the waits of a log whose records are stored, or all of them if the log cannot be stored. */
void copy_check_waits(struct copy_log *l)
{
    struct second_copy *c = l->place->copy;
    struct copy_wait *w = LIST_FIRST_OF(&l->waits, struct copy_wait, item), *next;
    struct err e = {0};

    if (l->lost)
        (void)fail_lost(l, &e);
    else if (l->place->state == COPY_CLOSED)
        (void)fail_place(l->place, &e);
    for (; w; w = next) {
        next = LIST_NEXT_OF(&l->waits, w, struct copy_wait, item);
        if (e.kind != ERR_NONE)
            end_wait(c, w, &e);
        else if (is_stored(l, w->n))
            end_wait(c, w, NULL);
    }
}

/* Fails all waits of a log for a reason that may pass. */
void copy_fail_waits(struct copy_log *l, const struct err *why)
{
    struct second_copy *c = l->place->copy;

    for (struct copy_wait *w; (w = LIST_FIRST_OF(&l->waits, struct copy_wait, item));)
        end_wait(c, w, why);
}

/* Checks all waits, oldest first. */
static void check_all_waits(struct second_copy *c)
{
    uint64_t now = loop_now_ms(c->o.loop);
    struct copy_wait *w = LIST_FIRST_OF(&c->waits, struct copy_wait, all), *next;
    struct err late = {0};

    (void)err_set(&late, ERR_STORAGE_UNAVAILABLE,
                  "the fleet's store has not confirmed the record for %u ms (--fleet-outage); it "
                  "is kept here: repeat the request",
                  c->o.outage_ms);
    for (; w; w = next) {
        next = LIST_NEXT_OF(&c->waits, w, struct copy_wait, all);
        if (w->log && now - w->since_ms >= c->o.outage_ms)
            end_wait(c, w, &late);
        else if (w->log)
            copy_check_waits(w->log);
    }
    copy_run_due(c);
}

void second_copy_forget(struct second_copy *c, void *ctx)
{
    struct copy_wait *w = LIST_FIRST_OF(&c->waits, struct copy_wait, all), *next;

    for (; w; w = next) {
        next = LIST_NEXT_OF(&c->waits, w, struct copy_wait, all);
        if (w->done.ctx != ctx)
            continue;
        list_remove(&w->item);
        list_remove(&w->all);
        free(w);
    }
}

/* --- places --- */

/* Fails the requests that wait for unread sessions of the place. */
static void report_unread(const struct copy_place *p)
{
    struct map_slot *slot;

    for (size_t at = 0; p->n_unread > 0 && (slot = map_next(&p->copy->logs, &at));) {
        struct copy_log *l = slot->value;

        if (l->place == p && l->unread)
            copy_report_read(l);
    }
}

/* Follows the epoch that the keeper has set. */
static void follow_epoch(struct copy_place *p)
{
    uint64_t epoch = place_table_own_epoch(p->copy->o.table, p->index);
    struct fleet_own_place own;

    if (epoch == p->epoch || !p->journal)
        return;
    p->epoch = epoch;
    p->doubt_ms = place_table_find_own(p->copy->o.table, p->index, &own) ? own.doubt_ms : 0;
    p->asked = p->reported_whole = p->reported_empty = false;
    p->marks_last = true;
    p->forgotten = place_table_own_base(p->copy->o.table, p->index) != epoch;
    p->round++;
    p->verifies = true;
    p->served = false;
    p->state = epoch ? COPY_COMPARING : COPY_CLOSED;
    if (!epoch)
        report_unread(p);
}

static bool has_other_logs(const struct copy_place *p)
{
    const struct second_copy *c = p->copy;

    return !c->hooks || c->hooks->has_all(c->hooks_ctx, p->index);
}

/* Reports the place's progress in the place table. */
static void report_place(struct copy_place *p)
{
    struct place_table *t = p->copy->o.table;
    struct fleet_place seen;

    if (p->marks_last && place_table_find(t, p->index, &seen) && seen.epoch == p->epoch)
        p->marks_last = !seen.whole;
    if (p->n_behind != p->reported_behind)
        place_table_report_behind(t, p->index, p->n_behind);
    p->reported_behind = p->n_behind;
    place_table_report_version(t, p->index, p->version);
    if ((!p->reported_whole || p->reported_server != p->server) && p->doubt_ms == 0 &&
        second_copy_is_level(p->copy, p->index) && has_other_logs(p)) {
        place_table_report_whole(t, p->index, p->epoch, p->server);
        p->reported_whole = true;
        p->reported_server = p->server;
    }
    if (p->reported_empty != (p->reported_whole && p->n_logs == 0)) {
        p->reported_empty = !p->reported_empty;
        place_table_report_empty(t, p->index, p->reported_empty ? p->epoch : 0);
    }
}

static void on_tick(struct loop_timer *t)
{
    struct second_copy *c = CONTAINER_OF(t, struct second_copy, tick);

    for (size_t i = 0; i < c->places.n; i++) {
        struct copy_place *p = c->places.at[i];

        follow_epoch(p);
        copy_check_fence(p);
        copy_check_server(p);
        if (p->state == COPY_COMPARING && !p->asked)
            copy_compare(p);
        if (p->state == COPY_OPEN && !list_is_empty(&p->behind))
            loop_task_post(c->o.loop, &c->work, copy_on_work);
        if (p->read_ms > 0)
            copy_read_unread(p);
        if (p->doubt_ms > 0)
            copy_mark_all(p);
        report_place(p);
    }
    check_all_waits(c);
    loop_timer_set(c->o.loop, t, COPY_TICK_MS, on_tick);
}

void copy_on_work(struct loop_task *t)
{
    struct second_copy *c = CONTAINER_OF(t, struct second_copy, work);

    for (size_t i = 0; i < c->places.n; i++)
        if (c->places.at[i]->state == COPY_OPEN)
            copy_send(c->places.at[i]);
    vec_clear(&c->fresh);
    buf_clear(&c->fresh_bytes);
    buf_done_above(&c->fresh_bytes, COPY_FRESH_KEPT);
    if (c->hopeless)
        check_all_waits(c);
    c->hopeless = false;
}

void second_copy_set_hooks(struct second_copy *c, const struct copy_hooks *hooks, void *ctx)
{
    c->hooks = hooks;
    c->hooks_ctx = ctx;
}

void second_copy_resume(struct second_copy *c, struct str session)
{
    struct copy_log *l = copy_find(c, session);

    if (l && has_unsent(l))
        copy_send_later(l);
}

void second_copy_lose(struct second_copy *c, uint32_t place, const char *why)
{
    struct copy_place *p = find_place(c, place);

    if (p)
        copy_lose(p, why);
}

void second_copy_fence(struct second_copy *c, uint32_t place, uint64_t epoch)
{
    struct copy_place *p = find_place(c, place);

    if (p)
        copy_fence(p, epoch);
}

void second_copy_add_place(struct second_copy *c, uint32_t place, struct journal *journal)
{
    get_place(c, place)->journal = journal;
    place_table_report_left(c->o.table, place, 0);
    loop_timer_set(c->o.loop, &c->tick, 1, on_tick);
}

bool second_copy_is_served(const struct second_copy *c)
{
    for (size_t i = 0; i < c->places.n; i++) {
        const struct copy_place *p = c->places.at[i];

        if (place_table_own_epoch(c->o.table, p->index) != 0 &&
            (!p->served ||
             !place_table_may_read(c->o.table, p->index, clock_boot_ms(), c->o.lease_ms)))
            return false;
    }
    return true;
}

/* --- making --- */

struct second_copy *second_copy_new(const struct second_copy_options *o)
{
    struct second_copy *c = mem_zalloc(sizeof(*c));

    c->o = *o;
    return c;
}

/* Reports the places whose records are all in the store, so that another node may own them. */
static void report_left(const struct second_copy *c)
{
    for (size_t i = 0; i < c->places.n; i++) {
        struct copy_place *p = c->places.at[i];

        if (p->state == COPY_OPEN)
            report_place(p); /* the next tick does not come */
        if (p->state == COPY_OPEN && p->reported_whole && p->reported_server == p->server &&
            p->n_behind == 0)
            place_table_report_left(c->o.table, p->index, p->epoch);
    }
}

void second_copy_free(struct second_copy *c)
{
    struct map_slot *slot;
    size_t at = 0;

    if (!c)
        return;
    c->ending = true;
    report_left(c);
    store_free(c->o.store);
    loop_timer_stop(c->o.loop, &c->tick);
    loop_task_cancel(c->o.loop, &c->work);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    for (struct copy_wait *w; (w = LIST_FIRST_OF(&c->waits, struct copy_wait, all));) {
        list_remove(&w->item); /* NOLINT(clang-analyzer-unix.Malloc): a freed one left */
        list_remove(&w->all);  /* NOLINT(clang-analyzer-unix.Malloc) */
        free(w);
    }
    while ((slot = map_next(&c->logs, &at)))
        copy_log_free(slot->value);
    map_done(&c->logs);
    for (size_t i = 0; i < c->places.n; i++)
        free(c->places.at[i]);
    vec_done(&c->places);
    vec_done(&c->fresh);
    buf_done(&c->fresh_bytes);
    free(c);
}
