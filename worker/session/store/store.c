/* The store of sessions: finds sessions, frees them when their time is over, and keeps tombstones.
 *
 *   open -> completed -> finalized ----> unlinked, tombstone stays, and goes after its time
 *      |       `-----------^                ^
 *      `--------> aborted, deleted ---------'
 *
 * A finalized session stays for export_retention_ms, so that its data can be exported; sessions
 * that are held, or whose export a sink still needs, stay longer (is_owed). A session may leave
 * memory before that (session_make_room, evict). For the same time its tombstone makes requests get
 * "has ended" instead of "unknown". Nothing is freed while it is used: plans and pins keep an
 * unlinked session until the last is released (session_maybe_free). */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/session/call/plan.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/remains.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

enum { MAX_NODES_DEFAULT = 65536, HOUR_MS = 3600 * 1000 };

/* Sets the values that apply without any setting. */
void session_defaults_init(struct session_defaults *d)
{
    *d = (struct session_defaults){
        .history = "tree",
        .message_matcher = "canonical",
        .timeline_compare_level = "text",
        .rollback_last_assistant = true,
        .idempotent_retry = true,
        .ignore_tools = true,
        .max_nodes = MAX_NODES_DEFAULT,
        .ttl_ms = (uint64_t)6 * HOUR_MS,
        .tombstone_ttl_ms = (uint64_t)24 * HOUR_MS,
        .export_retention_ms = (uint64_t)24 * HOUR_MS,
    };
}

/* --- the store --- */

static void free_names(struct session_store *st)
{
    free(st->history);
    free(st->matcher);
    free(st->compare_level);
}

/* Called at the start and at a reload. d's texts are copied. Existing sessions keep their
 * options. */
void session_store_configure(struct session_store *st, const struct session_defaults *d)
{
    free_names(st);
    st->defaults = *d;
    st->defaults.history = st->history = mem_strdup(d->history);
    st->defaults.message_matcher = st->matcher = mem_strdup(d->message_matcher);
    st->defaults.timeline_compare_level = st->compare_level =
        mem_strdup(d->timeline_compare_level ? d->timeline_compare_level : "text");
}

struct session_store *session_store_new(const struct model *model, const struct session_defaults *d)
{
    struct session_store *st = mem_zalloc(sizeof(*st));

    st->totals = mem_zalloc(sizeof(*st->totals));
    st->model = model;
    session_store_configure(st, d);
    return st;
}

void session_free_rewards(struct session *s)
{
    vec_done(&s->reward.members);
    for (size_t i = 0; i < s->checkpoint_rewards.n; i++)
        vec_done(&s->checkpoint_rewards.at[i]->members);
    vec_done(&s->checkpoint_rewards);
    map_done(&s->rewards_by_response);
}

/* Frees a session without plans and pins. */
static void session_free(struct session *s)
{
    CHECK(list_is_empty(&s->plans));
    session_free_rewards(s);
    vec_done(&s->chains);
    vec_done(&s->scores);
    session_free_bulks(s);
    session_free_content(s);
    free((char *)(uintptr_t)s->row.p);
    session_set_origin(s, NULL);
    free(s);
}

/* Returns the sum in which the session is counted. */
static uint64_t *counted_as(const struct session *s)
{
    struct session_totals *t = s->store->totals;

    return s->copying > 0 ? &t->copying : &t->phases[s->phase];
}

/* Takes the session out of the store's list and map, so that it cannot be found any more. */
void session_unlink(struct session *s)
{
    struct session_store *st = s->store;

    if (s->unlinked)
        return;
    (*counted_as(s))--;
    session_displace(s);
    s->unlinked = true;
    (void)map_take(&st->sessions, s->id);
    if (st->found == s)
        st->found = NULL;
    list_remove(&s->item);
}

/* Notes that only the session's end is needed in the journal. */
static void note_gone(struct session_store *st, struct str id)
{
    *vec_push(&st->gone) = mem_strndup(id.p, id.len);
}

char *session_take_gone(struct session_store *st)
{
    return st->gone.n > 0 ? vec_pop(&st->gone) : NULL;
}

void session_maybe_free(struct session *s)
{
    if (!s->unlinked || !list_is_empty(&s->plans) || s->pins > 0)
        return;
    if (s->phase == SESSION_ABORTED)
        note_gone(s->store, s->id);
    session_free(s);
}

bool session_forget(struct session_store *st, struct str id)
{
    struct session *s = map_get(&st->sessions, id);

    if (s && (s->pins > 0 || !list_is_empty(&s->plans)))
        return false;
    if (s) {
        session_unlink(s);
        session_free(s);
    }
    return true;
}

void session_pin(struct session *s)
{
    s->pins++;
}

void session_unpin(struct session_store *st, struct session *s)
{
    (void)st;
    CHECK(s->pins > 0);
    s->pins--;
    session_maybe_free(s);
}

/* There must be a tombstone. */
static void drop_oldest_tombstone(struct session_store *st)
{
    struct tombstone *t = st->oldest;

    if (st->swept == t)
        st->swept = NULL; /* the next tombstone is the oldest now */
    st->oldest = t->next;
    if (!st->oldest)
        st->newest = NULL;
    if (map_get(&st->tombstones, t->id) == t)
        (void)map_take(&st->tombstones, t->id);
    free(t);
}

/* Remaining plans are freed with their sessions. */
void session_store_free(struct session_store *st)
{
    struct session *s, *next;

    if (!st)
        return;
    LIST_EACH_SAFE(&st->all, s, next, struct session, item) {
        struct plan *p, *after;

        LIST_EACH_SAFE(&s->plans, p, after, struct plan, item)
            plan_free(p);
        session_free(s);
    }
    while (st->oldest)
        drop_oldest_tombstone(st);
    while (st->gone.n > 0)
        free(vec_pop(&st->gone));
    vec_done(&st->gone);
    map_done(&st->sessions);
    map_done(&st->tombstones);
    free_names(st);
    free(st->totals);
    free(st);
}

/* Makes a tombstone. There is at most one for an id. */
static struct tombstone *bury(struct session_store *st, struct str id, uint64_t now_ms)
{
    struct tombstone *t = map_get(&st->tombstones, id);
    char *copy;

    if (t)
        return t;
    t = mem_zalloc(sizeof(*t) + id.len + 1);
    copy = (char *)(t + 1);
    memcpy(copy, id.p, id.len);
    t->id = str_of(copy, id.len);
    t->at_ms = now_ms;
    if (st->newest)
        st->newest->next = t;
    else
        st->oldest = t;
    st->newest = t;
    (void)map_set(&st->tombstones, t->id, t);
    return t;
}

void session_bury(struct session_store *st, struct str id, uint64_t now_ms)
{
    (void)bury(st, id, now_ms);
    note_gone(st, id);
}

void session_set_phase(struct session *s, enum session_phase phase)
{
    (*counted_as(s))--;
    s->phase = phase;
    (*counted_as(s))++;
}

void session_set_copying(struct session *s, uint32_t records)
{
    if (!s->unlinked)
        (*counted_as(s))--;
    s->copying = records;
    if (!s->unlinked)
        (*counted_as(s))++;
}

/* Makes an open session without content. */
struct session *session_new(struct session_store *st, struct str id, uint64_t now_ms)
{
    struct session *s = mem_zalloc(sizeof(*s) + id.len + 1);

    s->store = st;
    memcpy(s->id_text, id.p, id.len);
    s->id = str_of(s->id_text, id.len);
    s->created_ms = s->updated_ms = s->idle_ms = now_ms;
    s->serial = ++st->n_serials;
    list_append(&st->all, &s->item);
    st->totals->phases[SESSION_OPEN]++;
    (void)map_set(&st->sessions, s->id, s);
    st->found = s;
    return s;
}

/* Finds a session, first the one of the last look-up, because a call looks for its session in each
 * step. */
static struct session *look_up(struct session_store *st, struct str id)
{
    if (!st->found || !str_eq(st->found->id, id))
        st->found = map_get(&st->sessions, id);
    return st->found;
}

struct session *session_find(struct session_store *st, struct str id, bool *ret_ended)
{
    struct session *s = look_up(st, id);

    *ret_ended = s ? session_has_ended(s) : map_get(&st->tombstones, id) != NULL;
    return *ret_ended ? NULL : s;
}

struct session *session_find_any(struct session_store *st, struct str id, bool *ret_ended)
{
    struct session *s = map_get(&st->sessions, id);

    *ret_ended = !s && map_get(&st->tombstones, id) != NULL;
    return s;
}

bool session_is_kept(struct session_store *st, struct str id)
{
    const struct tombstone *t = map_get(&st->tombstones, id);

    return map_get(&st->sessions, id) || (t && t->exportable);
}

void session_complete(struct session *s, uint64_t now_ms)
{
    s->completed_ms = now_ms;
    session_set_phase(s, SESSION_COMPLETED);
}

/* Ends the session in any way. Deleted and aborted sessions leave at once, finalized ones after
 * export_retention_ms. */
void session_finish(struct session *s, enum session_end how, uint64_t now_ms)
{
    bool drop = how == SESSION_END_ABORT || how == SESSION_END_DELETE;
    struct session_store *st = s->store;

    if (!session_reads(s)) {
        struct tombstone *t = bury(st, s->id, now_ms);

        t->exportable = !drop;
        t->label_names = s->label_names;
    }
    session_set_phase(s, drop ? SESSION_ABORTED : SESSION_FINALIZED);
    s->expired = how == SESSION_END_EXPIRE;
    s->held = how == SESSION_END_HOLD;
    s->ended_ms = s->read_ms = now_ms;
    if (!session_reads(s) && (drop || (st->defaults.export_retention_ms == 0 && !s->held)))
        session_unlink(s);
}

/* Reports whether a sink waits for the session's export, or its trainer holds it. */
static bool is_owed(const struct session *s)
{
    return s->held || (s->sink == SESSION_SINK_DUE && s->store->defaults.keeps_due);
}

/* Reports whether the session is finalized, and nobody holds it or waits for its export. */
static bool can_leave(const struct session *s)
{
    return s->phase == SESSION_FINALIZED && s->pins == 0 && !is_owed(s);
}

static void leave(struct session *s)
{
    session_unlink(s);
    session_maybe_free(s);
}

enum { ENDS_PASSED = 4096 }; /* most ends of aborted sessions that one call skips */

static struct tombstone *end_after(struct session_store *st, const struct session_past *p)
{
    struct tombstone *t = p->id.len ? map_get(&st->tombstones, p->id) : NULL;

    if (t)
        return t->next;
    t = st->oldest; /* the ends that were forgotten meanwhile were the oldest */
    while (t && t->at_ms < p->ended_ms)
        t = t->next;
    return t;
}

bool session_next_past(struct session_store *st, uint64_t now_ms, struct session_past *p)
{
    uint64_t keeps_ms = st->defaults.export_retention_ms;
    struct tombstone *t = st->evicts ? end_after(st, p) : NULL;

    for (int i = 0; t; t = t->next, i++) {
        p->kept = t->exportable && t->at_ms + keeps_ms > now_ms;
        if (!p->kept && i < ENDS_PASSED)
            continue;
        p->id = t->id;
        p->ended_ms = t->at_ms;
        p->label_names = t->label_names;
        return true;
    }
    return false;
}

void session_leave_again(struct session *s)
{
    if (can_leave(s))
        leave(s);
}

uint64_t session_last_serial(const struct session_store *st)
{
    return st->n_serials;
}

/* A finalized session that nobody has read for a while leaves the store: soon if a journal has it
 * for later readers (session_revive), otherwise as late as an idle session ends. With the option
 * `hold` it keeps its entry and loses only its content. */
bool session_leave_late(struct session *s, uint64_t now_ms)
{
    uint64_t evict_after_ms = s->store->defaults.evict_after_ms;
    uint64_t after = evict_after_ms ? evict_after_ms : s->options.ttl_ms;

    if (s->phase != SESSION_FINALIZED || !after || s->read_ms + after > now_ms)
        return false;
    if (can_leave(s)) {
        leave(s);
        return true;
    }
    if (s->held)
        session_rest(s);
    return s->held;
}

/* Frees finalized sessions, oldest first, until so many tokens are freed. Returns how many were
 * freed. */
uint64_t session_make_room(struct session_store *st, uint64_t tokens)
{
    struct session *s, *next;
    uint64_t freed = 0;

    if (st->totals->phases[SESSION_FINALIZED] == 0)
        return 0;
    LIST_EACH_SAFE(&st->all, s, next, struct session, item) {
        if (freed >= tokens)
            break;
        if (can_leave(s)) {
            freed += s->share.tokens;
            leave(s);
        }
    }
    return freed;
}

enum { LEAVING = 16 }; /* an end whose session leaves counts as so many ends without a session */

/* Frees ends whose export is not kept any longer, with their sessions. Because sessions end in the
 * order of their tombstones, the front of the queue decides for both; ends after a tombstone that
 * stays are younger. */
static bool sweep_exports(struct session_store *st, uint64_t now_ms, size_t max)
{
    struct tombstone *t = st->swept ? st->swept->next : st->oldest;

    for (; t && t->at_ms + st->defaults.export_retention_ms <= now_ms; t = t->next) {
        struct session *s = map_get(&st->sessions, t->id);

        if (max == 0)
            return true;
        st->swept = t;
        max--;
        if (s && session_has_ended(s) && !is_owed(s)) {
            leave(s);
            max -= MIN_OF(max, (size_t)LEAVING);
        }
    }
    return false;
}

bool session_sweep_ends(struct session_store *st, uint64_t now_ms, size_t max)
{
    if (sweep_exports(st, now_ms, max))
        return true;
    while (st->oldest && st->oldest->at_ms + st->defaults.tombstone_ttl_ms <= now_ms &&
           st->oldest->at_ms + st->defaults.export_retention_ms <= now_ms) {
        if (max-- == 0)
            return true;
        drop_oldest_tombstone(st);
    }
    /* start from the front, because sessions that were owed may not be so any more */
    st->swept = NULL;
    return false;
}

void session_sweep(struct session_store *st, uint64_t now_ms)
{
    struct session *s, *next;

    LIST_EACH_SAFE(&st->all, s, next, struct session, item)
        (void)session_leave_late(s, now_ms);
    (void)session_sweep_ends(st, now_ms, SIZE_MAX);
}

uint64_t session_serial(const struct session *s)
{
    return s->serial;
}

struct session *session_next(struct session_store *st, const struct session *at)
{
    return at ? LIST_NEXT_OF(&st->all, at, struct session, item)
              : LIST_FIRST_OF(&st->all, struct session, item);
}

bool session_expired(const struct session *s, uint64_t now_ms)
{
    return !session_has_ended(s) && list_is_empty(&s->plans) && s->residence != LOADING &&
           s->options.ttl_ms && s->idle_ms + s->options.ttl_ms <= now_ms;
}

/* Moves the times from which deadlines are computed with a step of the wall clock. */
void session_clock_stepped(struct session_store *st, int64_t by_ms)
{
    struct session *s;

    LIST_EACH(&st->all, s, struct session, item) {
        s->idle_ms += (uint64_t)by_ms;
        s->read_ms += (uint64_t)by_ms;
    }
    /* the tombstone of a last word has no time */
    for (struct tombstone *t = st->oldest; t; t = t->next)
        t->at_ms = by_ms < 0 && t->at_ms < 0 - (uint64_t)by_ms ? 0 : t->at_ms + (uint64_t)by_ms;
}

void session_store_totals(const struct session_store *st, struct session_totals *ret)
{
    *ret = *st->totals;
    ret->sessions = ret->phases[SESSION_OPEN] + ret->phases[SESSION_COMPLETED] + ret->copying;
}

void session_count_fork(struct session_store *st, enum session_cause cause)
{
    st->totals->forks[cause]++;
}
