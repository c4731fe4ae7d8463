/*
 * Sessions that the fleet has lost. If a place gets a new owner, a node was lost, perhaps with
 * records that no copy has (410 session_lost). After each change of a place, the new owner is asked
 * for the sessions of running attempts, and of members that counted and that no trainer got yet.
 * Meanwhile their group is not offered. What a trainer got never changes.
 *
 *   waiting -> asking -> found: found_epoch of the attempt is the place's
 *                        lost: the attempt ends, or the member is recorded as lost
 *
 * If no answer comes for PATIENCE_MS, the session counts as found: the trainer's own request for
 * its tokens waits, or says that it is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/net/http_fetch.h"
#include "common/proc/heritage.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/workers.h"

enum { ASKING_MAX = 64, AGAIN_MS = 500, PATIENCE_MS = 120000 };

/* One session that is being looked for. */
struct session_search {
    struct desk *desk;
    char attempt[ATTEMPT_ID_LEN + 1];
    bool ended; /* the attempt had ended: its group is not offered meanwhile */
    uint64_t epoch, until_ms;
    struct http_fetch *call;
    struct loop_timer again;
    struct list_item entry; /* in losses.waiting or losses.asking */
};

/* Reports whether a loss of the attempt's session matters. */
static bool is_needed(const struct attempt *a)
{
    const struct rollout *r = a->rollout;

    return a->ended ? r->last == a && r->state == ROLLOUT_SUCCEEDED && !group_is_delivered(r->group)
                    : !a->ending;
}

static struct attempt *attempt_of(const struct session_search *s)
{
    return book_attempt(&s->desk->book, str_cstr(s->attempt));
}

static void ask_next(struct desk *d);
static void seek_session(struct desk *d, struct attempt *a);

static void search_free(struct session_search *s)
{
    struct attempt *a = attempt_of(s);

    if (a) {
        a->sought = false;
        a->rollout->group->sought -= s->ended;
    }
    list_remove(&s->entry);
    loop_timer_stop(s->desk->loop, &s->again);
    http_fetch_cancel(s->call);
    free(s);
}

int losses_record(struct desk *d, const struct attempt *a)
{
    struct str group = a->rollout->group->spec.id;
    struct buf record = {0};
    struct err e;
    int rc;

    log_error(&(struct log_scope){.session = str_cstr(a->session)},
              "the session of a rollout that had succeeded is lost", LOG_S("group", group),
              LOG_U("rollout", a->rollout->index));
    record_lost(a, clock_wall_ms(), &record);
    rc = desk_write(d, group, buf_str(&record), NULL, &e);
    if (rc < 0)
        log_warn(NULL, "a change cannot be recorded", LOG_T("error", e.text));
    buf_done(&record);
    return rc < 0 ? -1 : 0;
}

/* Acts on an answer. Returns -1 if the session must be asked for again. */
static int use_answer(const struct session_search *s, struct attempt *a, int status,
                      struct str body)
{
    if (worker_lost_session(status, body))
        return a->ended ? losses_record(s->desk, a) : ends_session_lost(s->desk, a);
    if ((status < 200 || status >= 300) && (!worker_refuses(status) || status == 421) &&
        clock_ms() < s->until_ms)
        return -1;
    a->found_epoch = s->epoch;
    return 0;
}

/* Lets others be asked first: places without an owner hold their requests. */
static void on_search_retry(struct loop_timer *t)
{
    struct session_search *s = CONTAINER_OF(t, struct session_search, again);

    list_remove(&s->entry);
    list_append(&s->desk->losses.waiting, &s->entry);
    s->desk->losses.n_asking--;
    ask_next(s->desk);
}

static void on_search_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct session_search *s = ctx;
    struct desk *d = s->desk;
    struct attempt *a = attempt_of(s);

    (void)e;
    s->call = NULL;
    if (a && is_needed(a) && (desk_is_refusing(d) || use_answer(s, a, status, body))) {
        loop_timer_set(d->loop, &s->again, AGAIN_MS, on_search_retry);
        return;
    }
    search_free(s);
    d->losses.n_asking--;
    if (a)
        seek_session(d, a); /* its place may have moved again */
    ask_next(d);
    polls_wake(d);
}

static void ask_owner(struct session_search *s, const struct attempt *a)
{
    s->call = worker_ask_session(s->desk->workers, a->session, on_search_answer, s);
}

static void ask_next(struct desk *d)
{
    struct session_search *s;

    while (!desk_is_refusing(d) && d->losses.n_asking < ASKING_MAX &&
           (s = LIST_FIRST_OF(&d->losses.waiting, struct session_search, entry))) {
        const struct attempt *a = attempt_of(s);

        if (!a || !is_needed(a)) {
            search_free(s);
            polls_wake(d);
            continue;
        }
        list_remove(&s->entry);
        list_append(&d->losses.asking, &s->entry);
        d->losses.n_asking++;
        ask_owner(s, a);
    }
}

static void seek_session(struct desk *d, struct attempt *a)
{
    uint64_t epoch = a->sought || !is_needed(a) ? 0 : desk_find_move(d, a);
    struct session_search *s;

    if (epoch == 0 || epoch == a->found_epoch)
        return;
    s = mem_zalloc(sizeof(*s));
    s->desk = d;
    s->epoch = epoch;
    s->ended = a->ended;
    s->until_ms = clock_ms() + PATIENCE_MS;
    memcpy(s->attempt, a->id, sizeof(s->attempt));
    a->sought = true;
    a->rollout->group->sought += a->ended;
    list_append(&d->losses.waiting, &s->entry);
}

static void seek_members(struct desk *d, struct group *g)
{
    for (uint32_t i = 0; g->rollouts && !group_is_delivered(g) && i < group_rollouts(g); i++)
        if (g->rollouts[i].state == ROLLOUT_SUCCEEDED)
            seek_session(d, g->rollouts[i].last);
}

bool losses_seek(struct desk *d, struct group *g)
{
    if (!d->copy)
        return false;
    seek_members(d, g);
    ask_next(d);
    return g->sought > 0;
}

/* Looks for all sessions that matter. Returns false if one of them is of an attempt that is ending
 * now and must be looked at again: it may count, or run on. */
static bool seek_all(struct desk *d)
{
    bool all = true;
    struct attempt *a;
    struct group *g;

    LIST_EACH(&d->book.running, a, struct attempt, entry) {
        seek_session(d, a);
        all = all && !(a->ending && desk_find_move(d, a) > 0);
    }
    LIST_EACH(&d->book.all, g, struct group, all_entry)
        seek_members(d, g);
    return all;
}

void losses_look(struct desk *d)
{
    uint32_t changes = d->copy ? place_table_place_changes(d->heritage->fleet) : 0;

    if (!d->copy || desk_is_refusing(d))
        return;
    if (changes != d->losses.place_changes && seek_all(d))
        d->losses.place_changes = changes;
    ask_next(d);
}

void losses_end(struct desk *d)
{
    struct session_search *s, *next;

    LIST_EACH_SAFE(&d->losses.waiting, s, next, struct session_search, entry)
        search_free(s);
    LIST_EACH_SAFE(&d->losses.asking, s, next, struct session_search, entry)
        search_free(s);
}
