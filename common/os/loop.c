/* The event loop (loop.h): one epoll descriptor, a heap of timers, a list of tasks. An iteration
 * waits, delivers the events of ready descriptors, fires due timers, then runs the tasks posted so
 * far, each kind in its order. If its time ends in the middle, the next iteration begins with the
 * kind that had no time. Events of a removed descriptor are not delivered: loop_forget removes them
 * from the fetched ones.
 *
 * A timer that is moved to a later time stays where it is in the heap (heap_ms). Only when its old
 * time comes is it moved to the new one (due_ms). So a timeout that is extended at every byte costs
 * two stores. */

#include "common/os/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

enum { EVENTS_PER_TURN = 256, HEAP_WAYS = 4 };

/* Time of one iteration for all its callbacks; at least one is called. The rest waits for the next
 * iteration. */
enum { SLICE_US = 1000 };

/* The kinds of callbacks, in the order of an iteration. */
enum { EVENTS, TIMERS, TASKS, BEHIND, LAST, KINDS };

struct loop {
    int epoll_fd;
    bool stopped;
    bool in_turn; /* now_ms is up to date */
    int first;    /* kind with which the next iteration begins */
    uint64_t now_ms;
    uint64_t looked_ms; /* when descriptors were looked at last */
    uint64_t until_us;  /* end of the iteration's slice */
    uint64_t n_turns;
    uint64_t lag_us;
    loop_hold_fn on_hold; /* or NULL */
    void *hold_ctx;

    struct epoll_event events[EVENTS_PER_TURN];
    int event_at, event_n; /* fetched events [event_at, event_n) are not delivered yet */

    struct loop_timer **heap; /* 4-ary, ordered by heap_ms */
    size_t heap_n, heap_cap;

    struct list_head tasks[KINDS]; /* by kind; none for EVENTS and TIMERS */
};

/* ------------------------------------------------------------------ life */

struct loop *loop_new(struct err *e)
{
    struct loop *l = mem_zalloc(sizeof(*l));

    l->now_ms = clock_ms();
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0) {
        err_sys(e, ERR_IO, "cannot open an epoll descriptor");
        free(l);
        return NULL;
    }
    return l;
}

void loop_free(struct loop *l)
{
    if (l == NULL)
        return;
    close(l->epoll_fd);
    free(l->heap);
    free(l);
}

uint64_t loop_now_ms(const struct loop *l)
{
    return l->in_turn ? l->now_ms : clock_ms();
}

uint64_t loop_turns(const struct loop *l)
{
    return l->n_turns;
}

/* ------------------------------------------------------------------ descriptors */

/* Makes the event of an interest. It is edge-triggered unless LOOP_LEVEL is asked for. */
static struct epoll_event event_for(struct loop_io *io, unsigned mask)
{
    struct epoll_event ev = {.events = (mask & ~LOOP_LEVEL), .data.ptr = io};

    if (!(mask & LOOP_LEVEL))
        ev.events |= EPOLLET;
    return ev;
}

int loop_add(struct loop *l, struct loop_io *io, int fd, unsigned mask, loop_io_fn fn,
             struct err *e)
{
    struct epoll_event ev = event_for(io, mask);

    CHECK(io->mask == 0 && mask != 0);
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0)
        return err_sys(e, ERR_IO, "cannot watch a descriptor");
    io->fd = fd;
    io->mask = mask;
    io->fn = fn;
    return 0;
}

void loop_mod(struct loop *l, struct loop_io *io, unsigned mask)
{
    struct epoll_event ev = event_for(io, mask);

    CHECK(io->mask != 0 && mask != 0);
    if (io->mask == mask)
        return;
    CHECK(epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev) == 0);
    io->mask = mask;
}

void loop_set_fn(struct loop_io *io, loop_io_fn fn)
{
    io->fn = fn;
}

void loop_forget(struct loop *l, struct loop_io *io)
{
    if (io->mask == 0)
        return;
    io->mask = 0;
    for (int i = l->event_at; i < l->event_n; i++)
        if (l->events[i].data.ptr == io)
            l->events[i].data.ptr = NULL;
}

void loop_del(struct loop *l, struct loop_io *io)
{
    if (io->mask == 0)
        return;
    CHECK(epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL) == 0);
    loop_forget(l, io);
}

/* ------------------------------------------------------------------ timers */

static void heap_put(struct loop *l, size_t i, struct loop_timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

/* Moves the timer at i towards the root. */
static void heap_up(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap[i];

    while (i > 0) {
        size_t parent = (i - 1) / HEAP_WAYS;

        if (l->heap[parent]->heap_ms <= t->heap_ms)
            break;
        heap_put(l, i, l->heap[parent]);
        i = parent;
    }
    heap_put(l, i, t);
}

/* Moves the timer at i towards the leaves. */
static void heap_down(struct loop *l, size_t i)
{
    struct loop_timer *t = l->heap[i];

    for (;;) {
        size_t first = i * HEAP_WAYS + 1, least = first;

        if (first >= l->heap_n)
            break;
        for (size_t c = first + 1; c < first + HEAP_WAYS && c < l->heap_n; c++)
            if (l->heap[c]->heap_ms < l->heap[least]->heap_ms)
                least = c;
        if (l->heap[least]->heap_ms >= t->heap_ms)
            break;
        heap_put(l, i, l->heap[least]);
        i = least;
    }
    heap_put(l, i, t);
}

/* The delay is at least 1 ms, so that a timer that sets itself cannot fire twice in one iteration.
 */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms, loop_timer_fn fn)
{
    uint64_t due_ms = loop_now_ms(l) + (delay_ms ? delay_ms : 1);

    t->fn = fn;
    t->due_ms = due_ms;
    if (t->slot != 0 && due_ms >= t->heap_ms)
        return; /* the heap moves the timer when its old time comes */
    t->heap_ms = due_ms;
    if (t->slot == 0) {
        if (l->heap_n == l->heap_cap) {
            l->heap_cap = l->heap_cap ? l->heap_cap * 2 : 64;
            l->heap = mem_realloc_array(l->heap, l->heap_cap, sizeof(*l->heap));
        }
        heap_put(l, l->heap_n++, t);
    }
    heap_up(l, t->slot - 1);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
    size_t i = t->slot;
    struct loop_timer *last;

    if (i-- == 0)
        return;
    t->slot = 0;
    last = l->heap[--l->heap_n];
    if (last == t)
        return;
    heap_put(l, i, last);
    heap_up(l, i);
    heap_down(l, last->slot - 1);
}

static bool is_over(const struct loop *l, int calls)
{
    return calls > 0 && clock_us() >= l->until_us;
}

static bool has_due_timer(const struct loop *l, uint64_t now_ms)
{
    return l->heap_n > 0 && l->heap[0]->heap_ms <= now_ms;
}

/* Fires timers that were due when the iteration began, until its time is over, and moves postponed
 * ones. Timers that callbacks set are at least 1 ms later, so the loop ends. */
static int run_timers(struct loop *l)
{
    uint64_t now_ms = l->now_ms;
    int calls = 0;

    while (has_due_timer(l, now_ms) && !is_over(l, calls)) {
        struct loop_timer *t = l->heap[0];

        if (t->due_ms > t->heap_ms) {
            t->heap_ms = t->due_ms;
            heap_down(l, 0);
            continue;
        }
        if ((now_ms - t->due_ms) * 1000 > l->lag_us)
            l->lag_us = (now_ms - t->due_ms) * 1000;
        loop_timer_stop(l, t);
        t->fn(t);
        calls++;
    }
    return calls;
}

/* ------------------------------------------------------------------ tasks */

/* A task that is posted already keeps its position. */
static void post_task(struct loop *l, int kind, struct loop_task *t, loop_task_fn fn)
{
    t->fn = fn;
    if (!list_holds(&t->item))
        list_append(&l->tasks[kind], &t->item);
}

void loop_task_post(struct loop *l, struct loop_task *t, loop_task_fn fn)
{
    post_task(l, TASKS, t, fn);
}

void loop_task_post_behind(struct loop *l, struct loop_task *t, loop_task_fn fn)
{
    post_task(l, BEHIND, t, fn);
}

void loop_task_post_last(struct loop *l, struct loop_task *t, loop_task_fn fn)
{
    post_task(l, LAST, t, fn);
}

static bool has_tasks(const struct loop *l)
{
    return !list_is_empty(&l->tasks[TASKS]) || !list_is_empty(&l->tasks[BEHIND]) ||
           !list_is_empty(&l->tasks[LAST]);
}

void loop_task_cancel(struct loop *l, struct loop_task *t)
{
    (void)l;
    list_remove(&t->item);
}

/* Runs the tasks posted so far, until the time is over. A marker ends the batch, because any task
 * may be cancelled meanwhile. */
static int run_tasks(struct loop *l, int kind)
{
    struct loop_task marker = {0}, *t;
    int calls = 0;

    post_task(l, kind, &marker, NULL);
    for (;;) {
        t = LIST_FIRST_OF(&l->tasks[kind], struct loop_task, item);
        if (!t || t == &marker || is_over(l, calls))
            break;
        loop_task_cancel(l, t);
        t->fn(t);
        calls++;
    }
    loop_task_cancel(l, &marker);
    return calls;
}

/* ------------------------------------------------------------------ iterations */

static int64_t next_timeout_ms(const struct loop *l, uint64_t now_ms)
{
    if (has_tasks(l) || l->event_at < l->event_n || has_due_timer(l, now_ms))
        return 0;
    return l->heap_n == 0 ? -1 : (int64_t)(l->heap[0]->heap_ms - now_ms);
}

int64_t loop_next_timeout_ms(const struct loop *l)
{
    return next_timeout_ms(l, clock_ms());
}

/* Returns the time to wait, at most an hour, so that it fits an int. */
static int wait_ms(const struct loop *l, int timeout_ms, uint64_t now_ms)
{
    int64_t next = timeout_ms == 0 ? 0 : next_timeout_ms(l, now_ms);

    if (next < 0 || (timeout_ms >= 0 && timeout_ms < next))
        return timeout_ms;
    return next > 3600000 ? 3600000 : (int)next;
}

/* Delivers fetched events. Events of removed descriptors are NULL by now. */
static int run_events(struct loop *l)
{
    int calls = 0;

    while (l->event_at < l->event_n && !is_over(l, calls)) {
        struct epoll_event *ev = &l->events[l->event_at++];
        struct loop_io *io = ev->data.ptr;

        if (io == NULL)
            continue;
        io->fn(io, ev->events);
        calls++;
    }
    return calls;
}

/* Fetches events, unless the last iteration left some. Between tasks that post others it looks once
 * a millisecond. Returns whether it has looked. */
static bool fetch_events(struct loop *l, int timeout_ms, uint64_t now_ms)
{
    int wait, n;

    if (l->event_at < l->event_n)
        return false;
    wait = wait_ms(l, timeout_ms, now_ms);
    if (wait == 0 && timeout_ms != 0 && now_ms == l->looked_ms)
        return false;
    n = epoll_wait(l->epoll_fd, l->events, EVENTS_PER_TURN, wait);
    l->event_at = 0;
    l->event_n = n > 0 ? n : 0;
    return true;
}

bool loop_has_time(const struct loop *l)
{
    return l->event_at == l->event_n && clock_us() < l->until_us;
}

static int run_kind(struct loop *l, int kind)
{
    switch (kind) {
    case EVENTS:
        return run_events(l);
    case TIMERS:
        return run_timers(l);
    default:
        return run_tasks(l, kind);
    }
}

static bool has_kind(const struct loop *l, int kind)
{
    switch (kind) {
    case EVENTS:
        return l->event_at < l->event_n;
    case TIMERS:
        return has_due_timer(l, l->now_ms);
    default:
        return !list_is_empty(&l->tasks[kind]);
    }
}

/* Runs the kinds one after the other until the time is over. A kind that had no time is first in
 * the next iteration. */
static int run_kinds(struct loop *l)
{
    int first = l->first, calls = 0;

    l->first = EVENTS;
    for (int i = 0; i < KINDS; i++) {
        int kind = (first + i) % KINDS;

        if (!has_kind(l, kind))
            continue;
        if (is_over(l, calls)) {
            l->first = kind;
            break;
        }
        calls += run_kind(l, kind);
    }
    return calls;
}

/* Runs one iteration, whose wait begins at now_ms. */
static int run_turn(struct loop *l, int timeout_ms, uint64_t now_ms)
{
    bool looked = fetch_events(l, timeout_ms, now_ms);
    uint64_t start_us = clock_us(), end_us;
    int calls;

    l->now_ms = start_us / 1000;
    if (looked)
        l->looked_ms = l->now_ms;
    l->until_us = start_us + SLICE_US;
    l->n_turns++;
    l->in_turn = true;
    calls = run_kinds(l);
    l->in_turn = false;
    end_us = clock_us();
    l->now_ms = end_us / 1000;
    l->lag_us = MAX_OF(l->lag_us, end_us - start_us);
    if (l->on_hold && calls > 0)
        l->on_hold(l->hold_ctx, end_us - start_us);
    return calls;
}

int loop_poll(struct loop *l, int timeout_ms)
{
    return run_turn(l, timeout_ms, clock_ms());
}

void loop_run(struct loop *l)
{
    l->stopped = false;
    l->now_ms = clock_ms();
    while (!l->stopped)
        (void)run_turn(l, -1, l->now_ms);
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
}

void loop_on_hold(struct loop *l, loop_hold_fn fn, void *ctx)
{
    l->on_hold = fn;
    l->hold_ctx = ctx;
}

uint64_t loop_fetch_lag_us(struct loop *l)
{
    uint64_t lag_us = l->lag_us;

    l->lag_us = 0;
    return lag_us;
}
