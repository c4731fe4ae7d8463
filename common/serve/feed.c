/* Events for viewers (feed.h). A change is recorded by its key. A tick renders the recorded keys,
 * oldest first, into one text for all viewers. A key is rendered once however often it has changed.
 * A viewer that reads too slowly gets no further events until it has read everything that was kept
 * for it. Then it gets the event "reset" and fetches all lists again. */

#include "common/serve/feed.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/serve/exchange.h"

/* Limits of one tick, in keys and in bytes. Further keys wait for the next tick. */
enum { TICK_NOTES_MAX = 512, TICK_BYTES_MAX = 512 << 10, ALIVE_MS = 15000 };

/* Pause after a tick with many notes: PAUSE_TIMES the processor time that it took for all viewers.
 * So the events of frequent changes cost a thousandth of a core, whatever changes and however many
 * viewers there are. They are at most PAUSE_MS_MAX older. */
enum { TICK_NOTES_MANY = 16, PAUSE_TIMES = 1000, PAUSE_MS_MAX = 2000 };

struct feed_viewer {
    struct feed *feed;
    struct exchange *x;
    struct list_item item;
    enum reach reach;
    bool behind; /* the viewer has lost events and has not got `reset` yet */
};

struct feed_note {
    struct list_item item;
    struct str key; /* text follows the struct */
};

void feed_event(struct buf *out, const char *name, struct str json)
{
    buf_printf(out, "event: %s\ndata: ", name);
    buf_add_str(out, json);
    buf_puts(out, "\n\n");
}

void feed_init(struct feed *f, struct loop *loop, uint64_t tick_ms)
{
    *f = (struct feed){.loop = loop, .tick_ms = tick_ms, .pause_ms = tick_ms};
}

/* --- viewers --- */

/* Sends a copy of the bytes to one viewer. */
static void send_bytes(struct feed_viewer *v, struct str bytes)
{
    struct buf copy = {0};

    buf_add_str(&copy, bytes);
    exchange_send(v->x, &copy);
    buf_done(&copy);
}

/* The viewer has read everything that was kept for it, so it gets events again. */
static void on_viewer_caught_up(void *ctx)
{
    struct feed_viewer *v = ctx;

    if (!v->behind)
        return;
    v->behind = false;
    send_bytes(v, STR("event: reset\ndata: {\"reason\":\"slow\"}\n\n"));
}

/* Sends bytes to a viewer that keeps up. A viewer that would exceed its limit is marked as behind
 * instead. */
static void send_to_viewer(struct feed_viewer *v, struct str bytes)
{
    if (v->behind)
        return;
    if (exchange_waiting(v->x) + bytes.len <= FEED_BEHIND_BYTES) {
        send_bytes(v, bytes);
        return;
    }
    v->behind = true;
    exchange_on_space(v->x, on_viewer_caught_up, v);
}

/* Sends bytes to all viewers that get events from there. */
static void send_to_all(struct feed *f, struct str bytes, enum reach from)
{
    struct feed_viewer *v, *next;

    LIST_EACH_SAFE(&f->viewers, v, next, struct feed_viewer, item) {
        if (v->reach >= from)
            send_to_viewer(v, bytes);
    }
}

/* Forgets the recorded keys: no viewer is left. */
static void forget_notes(struct feed *f)
{
    struct feed_note *n, *next;

    LIST_EACH_SAFE(&f->waiting, n, next, struct feed_note, item) {
        list_remove(&n->item);
        free(n);
    }
    map_done(&f->noted);
    f->noted = (struct map){0};
    buf_done(&f->ready);
}

static void viewer_free(struct feed_viewer *v)
{
    list_remove(&v->item);
    v->feed->n_viewers--;
    v->feed->n_reach[v->reach]--;
    free(v);
}

static void stop_ticks(struct feed *f)
{
    loop_timer_stop(f->loop, &f->tick);
    loop_timer_stop(f->loop, &f->alive);
    forget_notes(f);
    f->pause_ms = f->tick_ms;
}

/* Removes a viewer that has left. */
static void on_viewer_left(void *ctx, bool delivered)
{
    struct feed_viewer *v = ctx;
    struct feed *f = v->feed;

    (void)delivered;
    viewer_free(v);
    if (f->n_viewers == 0)
        stop_ticks(f);
    if (f->left)
        f->left(f->ctx);
}

/* Sends a comment to silent streams, because proxies and clients close what is silent. */
static void on_alive(struct loop_timer *t)
{
    struct feed *f = CONTAINER_OF(t, struct feed, alive);

    loop_timer_set(f->loop, t, ALIVE_MS, on_alive);
    send_to_all(f, STR(": alive\n\n"), REACH_PROCESS);
}

int feed_join(struct feed *f, struct exchange *x, enum reach reach, struct str hello,
              struct str first, struct err *e)
{
    struct feed_viewer *v;
    struct buf greeting = {0};

    if (f->n_viewers >= FEED_VIEWERS_MAX)
        return err_set(e, ERR_OVERLOADED, "%d viewers already follow these events",
                       FEED_VIEWERS_MAX);
    v = mem_zalloc(sizeof(*v));
    *v = (struct feed_viewer){.feed = f, .x = x, .reach = reach};
    list_append(&f->viewers, &v->item);
    f->n_reach[reach]++;
    if (f->n_viewers++ == 0)
        loop_timer_set(f->loop, &f->alive, ALIVE_MS, on_alive);
    exchange_watch(x, on_viewer_left, v);
    exchange_set_header(x, "Cache-Control", STR("no-store"));
    exchange_set_header(x, "X-Accel-Buffering", STR("no"));
    exchange_start(x, "text/event-stream");
    feed_event(&greeting, "hello", hello.len > 0 ? hello : STR("{}"));
    send_bytes(v, buf_str(&greeting));
    buf_done(&greeting);
    if (first.len > 0)
        send_bytes(v, first);
    return 0;
}

/* --- recorded changes --- */

/* Writes the events of recorded keys into f->ready, up to the limits of a tick. Returns the number
 * of keys. */
static unsigned write_notes(struct feed *f)
{
    struct feed_note *n;
    unsigned i;

    for (i = 0; i < TICK_NOTES_MAX && f->ready.len < TICK_BYTES_MAX; i++) {
        n = LIST_FIRST_OF(&f->waiting, struct feed_note, item);
        if (!n)
            break;
        list_remove(&n->item);
        (void)map_take(&f->noted, n->key);
        f->write(f->ctx, n->key, &f->ready);
        free(n);
    }
    return i;
}

static void on_feed_tick(struct loop_timer *t);

static void set_tick(struct feed *f)
{
    if (!loop_timer_active(&f->tick))
        loop_timer_set(f->loop, &f->tick, f->pause_ms, on_feed_tick);
}

/* Returns the pause that follows a tick with this number of keys and this processor time. */
static uint64_t pause_behind(const struct feed *f, unsigned told, uint64_t cpu_us)
{
    uint64_t pause_ms = cpu_us * PAUSE_TIMES / 1000;

    if (told <= TICK_NOTES_MANY)
        return f->tick_ms;
    return MIN_OF(MAX_OF(pause_ms, f->tick_ms), (uint64_t)PAUSE_MS_MAX);
}

/* Sends the events of recorded keys. Keys beyond the limit wait for the next tick. */
static void on_feed_tick(struct loop_timer *t)
{
    struct feed *f = CONTAINER_OF(t, struct feed, tick);
    uint64_t began_us = clock_thread_cpu_us();
    unsigned told = write_notes(f);
    struct buf out = f->ready;

    f->ready = (struct buf){0};
    if (out.len > 0)
        send_to_all(f, buf_str(&out), REACH_PROCESS);
    buf_done(&out);
    f->pause_ms = pause_behind(f, told, clock_thread_cpu_us() - began_us);
    if (!list_is_empty(&f->waiting))
        set_tick(f);
}

void feed_record(struct feed *f, struct str key)
{
    struct feed_note *n;

    if (!feed_watched(f) || map_get(&f->noted, key))
        return;
    n = mem_alloc(sizeof(*n) + key.len);
    *n = (struct feed_note){.key = str_of((const char *)(n + 1), key.len)};
    memcpy(n + 1, key.p, key.len);
    (void)map_set(&f->noted, n->key, n);
    list_append(&f->waiting, &n->item);
    set_tick(f);
}

struct buf *feed_queue(struct feed *f)
{
    CHECK(feed_watched(f));
    (void)write_notes(f);
    if (f->ready.len > TICK_BYTES_MAX) { /* more than a tick's worth is sent at once */
        struct buf out = f->ready;

        f->ready = (struct buf){0};
        send_to_all(f, buf_str(&out), REACH_PROCESS);
        buf_done(&out);
    }
    set_tick(f);
    return &f->ready;
}

void feed_relay(struct feed *f, struct str events, enum reach from)
{
    send_to_all(f, events, from);
}

void feed_end(struct feed *f)
{
    struct feed_viewer *v, *next;

    LIST_EACH_SAFE(&f->viewers, v, next, struct feed_viewer, item) {
        struct exchange *x = v->x;

        exchange_watch(x, NULL, NULL);
        exchange_on_space(x, NULL, NULL);
        viewer_free(v);
        exchange_end(x);
    }
    stop_ticks(f);
}
