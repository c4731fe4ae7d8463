/* GET /events and /sessions/{id}/events (events.h): server-sent events for viewers. There are two
 * kinds of feeds (common/serve/feed): one for all sessions of the gateway, and one for each session
 * that is viewed. Changes are noted by session id and written once a tick, each session at most
 * once. The row is read when it is written, so it is the newest. Tokens of running calls are sent
 * only to the session's feed.
 *
 *   ledger.changed, call_watch  ->  on_changed, on_call, on_tokens  ->  feeds  ->  viewers
 *   other workers, dispatcher   ->  event_sources.c                 ->  the feed for all
 *
 * The hooks are set while there is at least one viewer, and NULL otherwise. */

#include "worker/plane/control/events.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/serve/exchange.h"
#include "common/serve/feed.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/control/event_texts.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"

enum { ALL_TICK_MS = 250, SESSION_TICK_MS = 50 };

/* The streams of one session. */
struct session_stream {
    struct watching *watching;
    struct list_item item;
    struct feed feed;
    char id[ID_TEXT_MAX];
};

struct watching {
    struct service *service;
    struct feed all;
    struct event_sources *sources;
    struct list_head sessions; /* list of struct session_stream */
    struct call_watch calls;
};

/* --- events that are written --- */

/* Writes the session's row, as GET /sessions lists it. An evicted session without a row was changed
 * without being read back; its event is written when it is read back. */
static void write_session(void *ctx, struct str id, struct buf *out)
{
    struct watching *w = ctx;
    bool ended = false;
    struct session *s = session_find_any(w->service->calls.store, id, &ended);
    struct buf row = {0};

    if (!s) {
        event_put_gone(id, ended, out);
        return;
    }
    if (session_copying(s))
        return; /* the copy's last record will cause the event */
    if (session_resident(s))
        session_write_row(s, &row);
    else if (session_kept_row(s).p)
        buf_add_str(&row, session_kept_row(s));
    if (row.len > 0)
        feed_event(out, "session", buf_str(&row));
    buf_done(&row);
}

static void write_stream(void *ctx, struct str id, struct buf *out)
{
    struct session_stream *t = ctx;

    write_session(t->watching, id, out);
}

/* --- hooks --- */

/* Finds the session's feed if it has viewers. */
static struct session_stream *stream_of(struct watching *w, struct str id)
{
    struct session_stream *t;

    LIST_EACH(&w->sessions, t, struct session_stream, item) {
        if (str_eq(str_cstr(t->id), id) && feed_watched(&t->feed))
            return t;
    }
    return NULL;
}

/* Hook of the ledger: a session's state changed. */
static void on_changed(void *ctx, struct str id)
{
    struct watching *w = ctx;
    struct session_stream *t = stream_of(w, id);

    feed_record(&w->all, id);
    if (t)
        feed_record(&t->feed, id);
}

/* Hook of the calls: a call began or ended. */
static void on_call(void *ctx, struct str id, const struct call_place *c, bool ended)
{
    struct watching *w = ctx;
    struct session_stream *t = stream_of(w, id);

    feed_record(&w->all, id); /* because the session's row contains the number of running calls */
    if (t)
        event_put_call(c, ended, feed_queue(&t->feed));
}

/* Sends new tokens of a sample, or all so far to a viewer that joined late. */
static void on_tokens(void *ctx, const struct call_tokens *k)
{
    struct watching *w = ctx;
    struct session_stream *t = stream_of(w, k->session_id);

    if (t)
        event_put_tokens(model_tokenizer(w->service->calls.model), k, feed_queue(&t->feed));
}

/* Sets or clears the hooks, because they cost time and are needed only while there are viewers. */
static void set_hooks(struct watching *w)
{
    struct call_env *env = &w->service->calls;
    bool watched = feed_watched(&w->all) || !list_is_empty(&w->sessions);

    env->watch = watched ? &w->calls : NULL;
    env->ledger->changed = watched ? on_changed : NULL;
    env->ledger->changed_ctx = w;
}

/* --- viewers join and leave --- */

/* Leaves the sources that no viewer reaches any more. */
static void on_left(void *ctx)
{
    struct watching *w = ctx;
    enum reach reach = REACH_FLEET;

    while (reach > REACH_PROCESS && w->all.n_reach[reach] == 0)
        reach--;
    event_sources_leave(w->sources, reach);
    set_hooks(w);
}

void events_sweep(struct service *a)
{
    struct watching *w = a->watching;
    struct session_stream *t, *next;

    if (!w || list_is_empty(&w->sessions))
        return;
    LIST_EACH_SAFE(&w->sessions, t, next, struct session_stream, item) {
        if (feed_watched(&t->feed))
            continue;
        list_remove(&t->item);
        free(t);
    }
    set_hooks(w);
}

static void on_relay(void *ctx, struct str events, enum reach from)
{
    struct watching *w = ctx;

    feed_relay(&w->all, events, from);
}

/* Handles the loss of a worker or node that is being replaced: its last events may be lost. */
static void on_lost(void *ctx, enum reach from)
{
    on_relay(ctx, STR("event: reset\ndata: {\"reason\":\"worker\"}\n\n"), from);
}

/* Returns the service's struct watching, which is made for the first viewer. */
static struct watching *watching_of(struct service *a)
{
    struct watching *w = a->watching;

    if (w)
        return w;
    w = mem_zalloc(sizeof(*w));
    w->service = a;
    w->calls = (struct call_watch){.ctx = w, .call = on_call, .tokens = on_tokens};
    feed_init(&w->all, a->calls.loop, ALL_TICK_MS);
    w->all.write = write_session;
    w->all.left = on_left;
    w->all.ctx = w;
    w->sources = event_sources_new(a, on_relay, on_lost, w);
    a->watching = w;
    return w;
}

static int refuse_drain(const struct service *a, struct err *e)
{
    return a->draining ? err_set(e, ERR_DRAINING, "the worker ends: ask again") : 0;
}

/* Answers GET /events with the events within the reach of the request. */
void events_get(struct service_request *r)
{
    struct watching *w = watching_of(r->service);
    enum reach reach = reach_of_request(r->x);
    struct exchange *x = r->x;
    struct buf hello = {0};
    struct err e = {0};

    if (refuse_drain(r->service, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    if (reach != REACH_PROCESS)
        event_sources_follow(w->sources, x, reach);
    siblings_write_lost(r->service->heritage, reach == REACH_FLEET, &hello);
    if (feed_join(&w->all, x, reach, buf_str(&hello), (struct str){0}, &e)) {
        respond_error(r, NULL, &e);
    } else {
        respond_count(r->service, r->dialect, 200);
        set_hooks(w);
    }
    buf_done(&hello);
}

/* Returns the session's feed, and makes it if it does not exist. */
static struct session_stream *stream_made(struct watching *w, struct str id)
{
    struct session_stream *t = stream_of(w, id);

    if (t)
        return t;
    t = mem_zalloc(sizeof(*t));
    t->watching = w;
    memcpy(t->id, id.p, MIN_OF(id.len, sizeof(t->id) - 1));
    feed_init(&t->feed, w->service->calls.loop, SESSION_TICK_MS);
    t->feed.write = write_stream;
    t->feed.ctx = t;
    list_append(&w->sessions, &t->item);
    return t;
}

/* The stream begins with the session's row and what its running calls have sampled so far. */
void session_events_get(struct service_request *r)
{
    struct watching *w = watching_of(r->service);
    struct buf first = {0};
    struct session_stream *t;
    struct err e = {0};

    if (!control_find(r, true, &e) || refuse_drain(r->service, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    t = stream_made(w, r->id);
    write_session(w, r->id, &first);
    if (feed_join(&t->feed, r->x, REACH_PROCESS, STR(""), buf_str(&first), &e)) {
        respond_error(r, NULL, &e);
    } else {
        respond_count(r->service, r->dialect, 200);
        set_hooks(w);
        call_watch_repeat(&r->service->calls,
                          r->id); /* running calls, for a viewer that joins late */
    }
    buf_done(&first);
}

/* --- the end of the worker --- */

/* Ends the streams; viewers reconnect to the worker's successor. */
void events_end(struct service *a)
{
    struct watching *w = a->watching;
    struct session_stream *t, *next;

    if (!w)
        return;
    event_sources_leave(w->sources, REACH_PROCESS);
    feed_end(&w->all);
    LIST_EACH_SAFE(&w->sessions, t, next, struct session_stream, item) {
        feed_end(&t->feed);
        list_remove(&t->item);
        free(t);
    }
    set_hooks(w);
}

/* Frees everything. May be called before or after events_end. */
void events_free(struct service *a)
{
    struct watching *w = a->watching;

    if (!w)
        return;
    events_end(a);
    event_sources_free(w->sources);
    free(w);
    a->watching = NULL;
}
