/*
 * struct loop: one process's event loop over epoll: descriptors, timers, deferred tasks.
 *
 * Descriptors are edge-triggered unless LOOP_LEVEL is given: no second event comes for bytes that
 * were left, so read until EAGAIN or remember that more is there. Handles (struct loop_io,
 * loop_timer, loop_task) are embedded in their owner by value; the loop only links them, never
 * frees them. After loop_del, loop_timer_stop or loop_task_cancel the handle is not called again,
 * not even for fetched events. So the owner may be freed at once, even from its own callback.
 *
 * A turn: wait -> descriptor callbacks -> due timers -> tasks posted before this point -> tasks of
 * loop_task_post_behind. Tasks posted by tasks run in the next turn, which then does not wait.
 * Callbacks that have taken a millisecond end the turn: the next begins with the kind that had no
 * time, and others come between (an outer loop's connections). Those of one kind keep their order.
 * So no turn takes longer than a millisecond and the longest callback (but see loop_serve_all).
 *
 * Alone: loop_run. Inside another loop: loop_embed, then watch loop_fd for readability and call
 * loop_poll(l, 0) each time; timers and tasks do not make it readable (loop_embed).
 *
 * One thread only. Does not own descriptors, does not handle signals (see signals.h).
 */
#ifndef RG_OS_LOOP_H
#define RG_OS_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "common/base/err.h"
#include "common/base/list.h"

/* Interest and event bits. ERR and HUP are always reported, RDHUP (the peer will send no more)
 * only when asked for. */
#define LOOP_IN ((unsigned)EPOLLIN)
#define LOOP_OUT ((unsigned)EPOLLOUT)
#define LOOP_RDHUP ((unsigned)EPOLLRDHUP)
#define LOOP_ERR ((unsigned)EPOLLERR)
#define LOOP_HUP ((unsigned)EPOLLHUP)
#define LOOP_LEVEL (1u << 26) /* interest only: level-triggered */

struct loop;
struct loop_io;
struct loop_timer;
struct loop_task;

/* Callbacks get their handle; CONTAINER_OF finds the owner. */
typedef void (*loop_io_fn)(struct loop_io *io, unsigned events);
typedef void (*loop_timer_fn)(struct loop_timer *t);
typedef void (*loop_task_fn)(struct loop_task *t);

/* A zeroed handle is valid and inactive. Fields are the loop's. */
struct loop_io {
    int fd;
    unsigned mask; /* interest; 0: not in the loop */
    loop_io_fn fn;
};

struct loop_timer {
    loop_timer_fn fn;
    uint64_t due_ms;  /* time at which it fires; may be after heap_ms (moved lazily) */
    uint64_t heap_ms; /* its key in the heap */
    size_t slot;      /* 1 + place in the heap; 0: inactive */
};

struct loop_task {
    loop_task_fn fn;
    struct list_item item; /* in the list of posted tasks */
};

/* NULL and e when the kernel refuses an epoll descriptor. */
struct loop *loop_new(struct err *e);

/* Handles still linked are forgotten, descriptors stay open. NULL is accepted. */
void loop_free(struct loop *l);

/* Adds fd (non-blocking) with the interest `mask`. The handle must be inactive. -1 with ERR_IO when
 * epoll refuses (limit of watches, a plain file). */
RG_MUSTCHECK int loop_add(struct loop *l, struct loop_io *io, int fd, unsigned mask, loop_io_fn fn,
                          struct err *e);

/* Changes the interest. The kernel looks again: what is ready now is reported again, also when it
 * was seen before. Same mask: no system call. */
void loop_mod(struct loop *l, struct loop_io *io, unsigned mask);

/* Replaces the callback (the descriptor changes its owner). */
void loop_set_fn(struct loop_io *io, loop_io_fn fn);

/* Out of the loop; inactive handles are accepted. The descriptor stays open: call this before
 * closing it. */
void loop_del(struct loop *l, struct loop_io *io);

/* Like loop_del, without its system call: for a descriptor that is closed right afterwards and was
 * never duplicated. */
void loop_forget(struct loop *l, struct loop_io *io);

/* Monotonic milliseconds (clock_ms); within a turn as of its start. */
uint64_t loop_now_ms(const struct loop *l);

/* Returns the number of iterations that have begun. */
uint64_t loop_turns(const struct loop *l);

/* Fires fn once, delay_ms from now (at least 1); set again it moves. Putting it off costs no heap
 * work, so one timer per connection may be moved at every read. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms, loop_timer_fn fn);

/* Stops the timer if it is active. */
void loop_timer_stop(struct loop *l, struct loop_timer *t);

static inline bool loop_timer_active(const struct loop_timer *t)
{
    return t->slot != 0;
}

/* When it fires, on the clock of loop_now_ms; UINT64_MAX when inactive. */
static inline uint64_t loop_timer_due_ms(const struct loop_timer *t)
{
    return t->slot != 0 ? t->due_ms : UINT64_MAX;
}

/* Runs fn once at the end of this turn (or of a later one, when posted from a task, or when others
 * take long). Posting a posted task changes nothing. */
void loop_task_post(struct loop *l, struct loop_task *t, loop_task_fn fn);

/* Posts the task after all tasks of loop_task_post. For long work in steps, each of which posts the
 * next, so that short tasks do not wait for it. */
void loop_task_post_behind(struct loop *l, struct loop_task *t, loop_task_fn fn);
void loop_task_cancel(struct loop *l, struct loop_task *t);

/* One turn, waiting at most timeout_ms (-1: until something happens; earlier when a timer is due or
 * a task is posted). Returns the number of callbacks made, 0 on EINTR or timeout. */
int loop_poll(struct loop *l, int timeout_ms);

/* Whether descriptors are ready whose callbacks have not been called yet. */
bool loop_has_events(const struct loop *l);

/* Makes each later turn serve all ready descriptors, however long their callbacks take. For a loop
 * that must see an event before its outer loop does. Timers and tasks still get one call at least.
 */
void loop_serve_all(struct loop *l);

/* Runs turns until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* Milliseconds to the next timer (0 when a task or a callback waits), -1 when there is none. */
int64_t loop_next_timeout_ms(const struct loop *l);

/* Makes it part of an outer loop, which waits for loop_fd, at most loop_next_timeout_ms, and then
 * calls loop_poll_due. `wanted` is called when that timeout becomes 0: a task was posted outside a
 * turn, or a turn left work. NULL: it is independent again. */
typedef void (*loop_wanted_fn)(void *ctx);
void loop_embed(struct loop *l, loop_wanted_fn wanted, void *ctx);

/* Like loop_poll, but does not check descriptors. For an outer loop that knows when one is ready.
 */
int loop_poll_due(struct loop *l);

/* The epoll descriptor; the loop's. */
int loop_fd(const struct loop *l);

/* Calls fn with the time in microseconds for which each turn's callbacks held the loop; turns
 * without callbacks are left out. The owner of an outer loop reports that loop's turns with
 * loop_report_hold. NULL: no calls. */
typedef void (*loop_hold_fn)(void *ctx, uint64_t us);
void loop_on_hold(struct loop *l, loop_hold_fn fn, void *ctx);
void loop_report_hold(struct loop *l, uint64_t us);

/* How late the last due timer fired and how long the last turn's callbacks took, in microseconds:
 * the maxima since the last call, for the loop lag metric. */
uint64_t loop_fetch_lag_us(struct loop *l);

#endif
