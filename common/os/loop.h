/*
 * struct loop: one process's event loop over epoll: descriptors, timers, deferred tasks.
 *
 * Descriptors are edge-triggered unless LOOP_LEVEL is given. No second event comes for bytes that
 * were left, so read until EAGAIN or remember that bytes are left. Handles (struct loop_io,
 * loop_timer, loop_task) are embedded in their owner by value; the loop only links them, never
 * frees them. After loop_del, loop_timer_stop or loop_task_cancel the handle is not called again,
 * not even for fetched events. So the owner may be freed at once, even from its own callback.
 *
 * An iteration (turn): wait -> descriptor callbacks -> due timers -> tasks posted before this point
 * -> tasks of loop_task_post_behind -> tasks of loop_task_post_last. Tasks that are posted to their
 * own kind run in the next iteration, which then does not wait, and looks at descriptors only if
 * the last look is a millisecond ago. Callbacks that have taken a millisecond end the iteration.
 * The next one begins with the kind that had no time. Callbacks of one kind keep their order. So no
 * iteration takes longer than a millisecond and the longest callback.
 *
 * One thread only. The loop does not own descriptors and does not handle signals (see signals.h).
 */
#ifndef RG_OS_LOOP_H
#define RG_OS_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "common/base/err.h"
#include "common/base/list.h"

/* Bits of interests and events. ERR and HUP are always reported. RDHUP (the peer will send no more)
 * is reported only if asked for. */
#define LOOP_IN ((unsigned)EPOLLIN)
#define LOOP_OUT ((unsigned)EPOLLOUT)
#define LOOP_RDHUP ((unsigned)EPOLLRDHUP)
#define LOOP_ERR ((unsigned)EPOLLERR)
#define LOOP_HUP ((unsigned)EPOLLHUP)
#define LOOP_LEVEL (1u << 26) /* in interests only: level-triggered */

struct loop;
struct loop_io;
struct loop_timer;
struct loop_task;

/* Callbacks get their handle. CONTAINER_OF finds its owner. */
typedef void (*loop_io_fn)(struct loop_io *io, unsigned events);
typedef void (*loop_timer_fn)(struct loop_timer *t);
typedef void (*loop_task_fn)(struct loop_task *t);

/* A zeroed handle is valid and inactive. Only the loop uses the fields. */
struct loop_io {
    int fd;
    unsigned mask; /* interest; 0: not in the loop */
    loop_io_fn fn;
};

struct loop_timer {
    loop_timer_fn fn;
    uint64_t due_ms;  /* time at which it fires; may be after heap_ms (moved lazily) */
    uint64_t heap_ms; /* key of the timer in the heap */
    size_t slot;      /* 1 + index in the heap; 0: inactive */
};

struct loop_task {
    loop_task_fn fn;
    struct list_item item; /* in the list of posted tasks */
};

/* Makes a loop. Returns NULL and e if the kernel refuses an epoll descriptor. */
struct loop *loop_new(struct err *e);

/* Frees the loop. Handles that are still linked are forgotten, and descriptors stay open. Accepts
 * NULL. */
void loop_free(struct loop *l);

/* Adds fd (non-blocking) with the interest `mask`. The handle must be inactive. Returns -1 with
 * ERR_IO if epoll refuses (limit of watches, a plain file). */
RG_MUSTCHECK int loop_add(struct loop *l, struct loop_io *io, int fd, unsigned mask, loop_io_fn fn,
                          struct err *e);

/* Changes the interest. Present readiness is reported again, even if it was reported before. The
 * same mask costs no system call. */
void loop_mod(struct loop *l, struct loop_io *io, unsigned mask);

/* Replaces the callback, when the descriptor changes its owner. */
void loop_set_fn(struct loop_io *io, loop_io_fn fn);

/* Removes the handle from the loop; inactive handles are accepted. The descriptor stays open: call
 * this before closing it. */
void loop_del(struct loop *l, struct loop_io *io);

/* Like loop_del, but without the system call: for a descriptor that is closed right afterwards and
 * was never duplicated. */
void loop_forget(struct loop *l, struct loop_io *io);

/* Returns monotonic milliseconds (clock_ms). Within an iteration the value does not change. */
uint64_t loop_now_ms(const struct loop *l);

/* Returns the number of iterations that have begun. */
uint64_t loop_turns(const struct loop *l);

/* Calls fn once, delay_ms from now (at least 1). If the timer is set already, moves it. Moving it
 * to a later time costs no heap work, so one timer per connection may be moved at every read. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms, loop_timer_fn fn);

/* Stops the timer if it is active. */
void loop_timer_stop(struct loop *l, struct loop_timer *t);

static inline bool loop_timer_active(const struct loop_timer *t)
{
    return t->slot != 0;
}

/* Returns the time at which the timer fires, on the clock of loop_now_ms; UINT64_MAX if it is
 * inactive. */
static inline uint64_t loop_timer_due_ms(const struct loop_timer *t)
{
    return t->slot != 0 ? t->due_ms : UINT64_MAX;
}

/* Runs fn once at the end of this iteration (or of a later one, if posted from a task or if others
 * take long). A task that is posted already is not changed. */
void loop_task_post(struct loop *l, struct loop_task *t, loop_task_fn fn);

/* Posts the task to run after all tasks of loop_task_post. For long work in steps, each of which
 * posts the next, so that short tasks do not wait for it. */
void loop_task_post_behind(struct loop *l, struct loop_task *t, loop_task_fn fn);

/* Posts the task to run at the end of this iteration, after all others. For work that callbacks of
 * this iteration have prepared together. */
void loop_task_post_last(struct loop *l, struct loop_task *t, loop_task_fn fn);
void loop_task_cancel(struct loop *l, struct loop_task *t);

/* Runs one iteration. Waits at most timeout_ms (-1: until something happens), less if a timer is
 * due or a task is posted. Returns the number of callbacks that were called, 0 on EINTR or timeout.
 */
int loop_poll(struct loop *l, int timeout_ms);

/* Reports whether a callback may begin more work in this iteration: its millisecond is not over,
 * and no other ready descriptor waits for its callback. */
bool loop_has_time(const struct loop *l);

/* Runs iterations until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* Returns the milliseconds to the next timer, 0 if a task or a callback waits, -1 if there is no
 * timer. */
int64_t loop_next_timeout_ms(const struct loop *l);

/* Calls fn with the time in microseconds for which each iteration's callbacks held the loop.
 * Iterations without callbacks are not reported. NULL: no calls. */
typedef void (*loop_hold_fn)(void *ctx, uint64_t us);
void loop_on_hold(struct loop *l, loop_hold_fn fn, void *ctx);

/* Returns the largest delay of a timer and the longest time of an iteration's callbacks since the
 * last call, in microseconds, for the loop lag metric. */
uint64_t loop_fetch_lag_us(struct loop *l);

#endif
