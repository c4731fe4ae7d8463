/*
 * Sessions that must end or be delivered. Sessions of failed attempts are aborted, those of
 * acknowledged groups are deleted. Sinks receive the sessions of attempts that count after their
 * end is recorded, so that a losing attempt is never delivered. The worker is called when the
 * records that decide it are durable. So after a power cut no group returns whose sessions are
 * gone. Aborting does not change a finalized session. So a deletion follows, which also frees held
 * sessions that do not count. If a worker is away, the request is repeated until it answers. After
 * a restart the sweep repeats the requests, and finds sessions whose making was not recorded. If no
 * known attempt has a session, the sweep ends it only if the dispatcher made it (option
 * `dispatched`). A trainer's own session may have a label `attempt`, and forks and imports have the
 * label of their origin.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/desk.h"
#include "dispatcher/workers.h"

enum {
    AGAIN_MS = 500,
    AGAIN_MAX_MS = 30 * 1000,
    SWEEP_AGAIN_MS = 2000,
    SWEEP_AGAIN_MAX_MS = 60 * 1000
};

/* Number of failed pages, one per AGAIN_MS, after which a failure is logged, and then logged again.
 */
enum { SWEEP_LOG_FIRST = 20, SWEEP_LOG_EVERY = 120 };

/* PAGE: rows of a page. FEWER_MAX: how often a page may be reduced to a quarter. */
enum { PAGE = 1000, FEWER_MAX = 4 };

struct closing {
    struct desk *desk;
    char session[SESSION_ID_MAX];
    enum closing_kind kind;
    char *deliver; /* options of the export for sinks; NULL: the sinks have it or must not get it */
    char *group;   /* id of the group that owes the session to the sinks; NULL if `deliver` is */
    bool waits;    /* waits for the records that decide it to be durable */
    struct http_fetch *call;
    uint64_t again_ms; /* delay before the next request */
    struct loop_timer again;
    struct list_item entry;
};

/* Called when the sinks have the session, or will never get it. */
static void closing_paid(struct closing *c)
{
    if (c->group)
        desk_paid(c->desk, str_cstr(c->group));
    free(c->deliver);
    free(c->group);
    c->deliver = c->group = NULL;
}

static void closing_free(struct closing *c)
{
    list_remove(&c->entry);
    if (c->waits)
        desk_forget(c->desk, c);
    loop_timer_stop(c->desk->loop, &c->again);
    http_fetch_cancel(c->call);
    closing_paid(c);
    free(c);
}

static void ask_worker(struct closing *c);

static void on_closing_retry(struct loop_timer *t)
{
    ask_worker(CONTAINER_OF(t, struct closing, again));
}

static bool is_gone(int status)
{
    return status == 404 || status == 410;
}

/* Schedules the next request. The delay grows, because a session may be owed to the sinks for
 * hours. */
static void ask_later(struct closing *c)
{
    loop_timer_set(c->desk->loop, &c->again, c->again_ms, on_closing_retry);
    c->again_ms = MIN_OF(c->again_ms * 2, AGAIN_MAX_MS);
}

/* Handles the answer. Every answer about the session itself ends the request: 2xx, gone, or
 * unknown. */
static void on_closing_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct closing *c = ctx;

    (void)body;
    (void)e;
    c->call = NULL;
    if (c->kind == CLOSING_ABORT && status >= 200 && status < 300) {
        c->kind = CLOSING_FORGET; /* the session is finalized, but still held */
        ask_worker(c);
    } else if ((status >= 200 && status < 300) || is_gone(status)) {
        closing_free(c);
    } else {
        ask_later(c);
    }
}

static void on_delivered(void *ctx, int status, struct str body, const struct err *e)
{
    struct closing *c = ctx;
    bool refused = worker_refuses(status);

    (void)e;
    c->call = NULL;
    if (refused && (!is_gone(status) || worker_lost_session(status, body)))
        log_error(&(struct log_scope){.session = str_cstr(c->session)},
                  "a session is not delivered to the sinks", LOG_I("status", status),
                  LOG_S("answer", str_sub(body, 0, 300)));
    if (!refused && (status < 200 || status >= 300)) {
        ask_later(c);
        return;
    }
    closing_paid(c);
    if (c->kind == CLOSING_DELIVER)
        closing_free(c);
    else
        ask_worker(c);
}

/* Calls the worker, unless a different node may have the dispatcher, which may need the session. */
static void ask_worker(struct closing *c)
{
    static const char *const methods[] = {[CLOSING_ABORT] = "POST", [CLOSING_FORGET] = "DELETE"};
    static const char *const tails[] = {[CLOSING_ABORT] = "/abort", [CLOSING_FORGET] = ""};
    char path[96];

    if (desk_is_refusing(c->desk)) {
        loop_timer_set(c->desk->loop, &c->again, AGAIN_MS, on_closing_retry);
        return;
    }
    (void)snprintf(path, sizeof(path), "/sessions/%s%s", c->session,
                   c->deliver ? "/deliver" : tails[c->kind]);
    c->call =
        worker_call(c->desk->workers, str_cstr(c->session), c->deliver ? "POST" : methods[c->kind],
                    str_cstr(path), c->deliver ? str_cstr(c->deliver) : STR(""),
                    c->deliver ? on_delivered : on_closing_answer, c);
}

static void on_closing_durable(void *ctx)
{
    struct closing *c = ctx;

    c->waits = false;
    ask_worker(c);
}

/* Returns the options of the group's export for sinks; NULL: the sinks must not get its sessions.
 */
static char *delivery_options(const struct desk *d, const struct group *g)
{
    struct buf options = {0};

    if (!g || d->heritage->config->sink.n == 0 || !group_goes_to_sinks(g))
        return NULL;
    group_write_export(g, false, &options);
    return buf_take(&options);
}

void closing_start(struct desk *d, const char *session, enum closing_kind kind,
                   const struct group *g)
{
    char *deliver = kind == CLOSING_ABORT ? NULL : delivery_options(d, g);
    struct closing *c;

    if (!session[0] || (kind == CLOSING_DELIVER && !deliver))
        return;
    c = mem_zalloc(sizeof(*c));
    c->again_ms = AGAIN_MS;
    c->desk = d;
    c->kind = kind;
    c->deliver = deliver;
    memcpy(c->session, session, strlen(session) + 1);
    if (deliver) {
        c->group = mem_strndup(g->spec.id.p, g->spec.id.len);
        desk_owe(d, g->spec.id);
    }
    list_append(&d->closings, &c->entry);
    c->waits = desk_await(d, &(struct desk_done){on_closing_durable, c, NULL}) == 0;
    if (!c->waits)
        ask_worker(c);
}

void closings_end(struct desk *d)
{
    struct closing *c, *next;

    LIST_EACH_SAFE(&d->closings, c, next, struct closing, entry)
        closing_free(c);
}

/* --- sessions without an attempt --- */

static void sweep_ask(struct desk *d);

static void on_sweep_again(struct loop_timer *t)
{
    sweep_ask(CONTAINER_OF(t, struct desk, sweep.again));
}

static bool is_closing(const struct desk *d, const char *session)
{
    const struct closing *c;

    LIST_EACH(&d->closings, c, struct closing, entry) {
        if (strcmp(c->session, session) == 0)
            return true;
    }
    return false;
}

/* Judges a session with the label of an attempt. It is kept while the attempt runs or its group
 * must be delivered. A session of an acknowledged group may still be owed to the sinks. */
static void judge_session(struct desk *d, const struct json *row)
{
    struct str label = json_string(json_get(json_get(row, "labels"), "attempt"));
    struct str phase = json_string(json_get(row, "phase"));
    struct str id = json_string(json_get(row, "session_id"));
    const struct attempt *a = book_attempt(&d->book, label);
    const struct attempt *gone = book_gone_attempt(&d->book, label);
    bool over = str_eq_c(phase, "finalized") || str_eq_c(phase, "expired");
    char session[SESSION_ID_MAX];

    if (label.len != ATTEMPT_ID_LEN || !id.p || id.len >= sizeof(session) ||
        str_eq_c(phase, "aborted") || map_get(&d->claiming, label))
        return;
    memcpy(session, id.p, id.len);
    session[id.len] = '\0';
    if (is_closing(d, session))
        return;
    if (a && str_eq_c(id, a->session) && !a->ended)
        return;
    if (a && str_eq_c(id, a->session) && a->verdict == ROLLOUT_SUCCEEDED)
        closing_start(d, session, CLOSING_DELIVER, a->rollout->group);
    else if (gone && str_eq_c(id, gone->session))
        closing_start(d, session, CLOSING_FORGET, gone->rollout->group);
    else if (json_is_true(json_get(row, "dispatched")))
        closing_start(d, session, over ? CLOSING_FORGET : CLOSING_ABORT, NULL);
}

static void on_sweep_anew(struct loop_timer *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, sweep.again);

    d->sweep.partial = d->sweep.missed = d->sweep.anew = d->sweep.pauses = false;
    sweep_ask(d);
}

static void sweep_pause(struct desk *d, uint64_t pause_ms)
{
    d->sweep.pauses = true;
    loop_timer_set(d->loop, &d->sweep.again, pause_ms, on_sweep_anew);
}

/* Chooses the pause before the next pass. In a fleet it grows, because a place may have no owner
 * for days. */
static void choose_pause(struct desk *d)
{
    uint64_t pause_ms = SWEEP_AGAIN_MS;

    if (d->copy && d->sweep.partial && !d->sweep.anew)
        pause_ms = MIN_OF(MAX_OF(d->sweep.pause_ms * 2, pause_ms), SWEEP_AGAIN_MAX_MS);
    d->sweep.pause_ms = pause_ms;
}

/* Ends a pass of the sweep. Removed groups are needed until a pass has reached all workers. */
static void sweep_over(struct desk *d)
{
    d->swept = true;
    if (!d->sweep.partial)
        book_forget_gone(&d->book);
    if (!d->sweep.missed)
        d->sweep.fewer = 0; /* a worker that was away may have been the only reason */
    d->sweep.runs = d->sweep.partial || d->sweep.anew;
    if (d->sweep.runs) {
        choose_pause(d);
        sweep_pause(d, d->sweep.pause_ms);
    }
    polls_wake(d);
}

/* Reduces the size of pages. Rows contain the metadata of their group, so an answer may be longer
 * than what is read here, or by the worker that asks a different worker. */
static void ask_for_fewer(struct desk *d)
{
    d->sweep.fewer = MIN_OF(d->sweep.fewer + 1, FEWER_MAX);
}

/* Records that a worker did not answer. Until a first pass has ended, no attempt begins. A failure
 * is logged only if it lasts: a worker that is starting causes no line. */
static void mark_failure(struct desk *d, int status, const struct err *e)
{
    (void)snprintf(d->sweep.why, sizeof(d->sweep.why),
                   "the sessions of before the start cannot be read: %.90s%.0d",
                   status ? "status " : e->text, status);
    if (d->sweep.failures++ % SWEEP_LOG_EVERY == SWEEP_LOG_FIRST)
        log_error(NULL, "no attempt begins, trying again", LOG_T("reason", d->sweep.why));
}

/* Reports whether a worker serves the index, as far as is known. In a fleet a place may have no
 * owner. */
static bool has_owner(const struct desk *d, const struct json *index)
{
    struct fleet_place place;
    int64_t n;

    return !d->copy || (json_to_i64(index, &n) == 0 &&
                        place_table_find(d->heritage->fleet, (uint32_t)n, &place) &&
                        place.node != FLEET_NO_NODE);
}

/* Reads `unreachable`: indexes of workers, and names of peers. Peers have no attempts of this
 * dispatcher, but other nodes of a fleet do. A worker's rows may have been too long. */
static void read_unreachable(struct desk *d, const struct json *list)
{
    bool missed = false;

    for (size_t i = 0; list && i < list->n; i++) {
        bool is_index = json_is(json_at(list, i), JSON_NUMBER);

        d->sweep.partial |= is_index || d->copy;
        missed |= is_index && has_owner(d, json_at(list, i));
    }
    if (missed)
        ask_for_fewer(d);
    d->sweep.missed |= missed;
}

static void on_page(void *ctx, int status, struct str body, const struct err *e)
{
    struct desk *d = ctx;
    struct arena a = {0};
    const struct json *page = NULL, *rows;
    struct str cursor;
    struct err bad;

    d->sweep.call = NULL;
    if (desk_is_refusing(d)) { /* a different node may have begun attempts by now */
        loop_timer_set(d->loop, &d->sweep.again, AGAIN_MS, on_sweep_again);
        return;
    }
    if (status != 200 || json_parse(&a, body, &page, &bad)) {
        arena_done(&a);
        mark_failure(d, status, e);
        if (e->kind == ERR_INTERNAL)
            ask_for_fewer(d);
        loop_timer_set(d->loop, &d->sweep.again, AGAIN_MS, on_sweep_again);
        return;
    }
    d->sweep.failures = 0;
    d->sweep.why[0] = '\0';
    rows = json_get(page, "sessions");
    for (size_t i = 0; rows && i < rows->n; i++)
        judge_session(d, json_at(rows, i));
    read_unreachable(d, json_get(page, "unreachable"));
    cursor = json_string(json_get(page, "next_cursor"));
    (void)snprintf(d->sweep.cursor, sizeof(d->sweep.cursor), "%.*s", (int)cursor.len,
                   cursor.p ? cursor.p : "");
    arena_done(&a);
    if (d->sweep.cursor[0])
        sweep_ask(d);
    else
        sweep_over(d);
}

/* Asks for the next page, unless a different node may have the dispatcher. */
static void sweep_ask(struct desk *d)
{
    char path[320];

    if (desk_is_refusing(d)) {
        loop_timer_set(d->loop, &d->sweep.again, AGAIN_MS, on_sweep_again);
        return;
    }
    (void)snprintf(path, sizeof(path), "/sessions?%slabel=attempt&archived=false&limit=%d%s%s",
                   d->copy ? "" : "here=1&", PAGE >> (2 * d->sweep.fewer),
                   d->sweep.cursor[0] ? "&cursor=" : "", d->sweep.cursor);
    d->sweep.call =
        worker_call(d->workers, (struct str){0}, "GET", str_cstr(path), STR(""), on_page, d);
}

void sweep_start(struct desk *d)
{
    if (d->sweep.runs) {
        if (d->sweep.pauses && !d->sweep.anew)
            sweep_pause(d, SWEEP_AGAIN_MS);
        d->sweep.anew = true;
        return;
    }
    d->sweep.runs = true;
    d->sweep.pause_ms = 0;
    sweep_ask(d);
}

void sweep_end(struct desk *d)
{
    loop_timer_stop(d->loop, &d->sweep.again);
    http_fetch_cancel(d->sweep.call);
    d->sweep.call = NULL;
}
