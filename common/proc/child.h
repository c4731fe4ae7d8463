/*
 * struct child: a child's side of the contract in heritage.h, on the child's own loop: signals,
 * orders of the supervisor, the readiness report, and once a second the heartbeat and the process
 * metrics.
 *
 *     child_init(&c, loop, heritage, on_drain, &e);
 *     ... open everything ...
 *     child_ready(&c, "");
 *     loop_run(loop);        // on_drain makes it stop when nothing runs any longer
 *     child_done(&c);
 *
 * on_drain is called once, at the first SIGTERM or SIGINT; later ones change nothing. SIGQUIT and
 * the end of the supervisor end the process immediately, which is safe because of the journal.
 */
#ifndef RG_PROC_CHILD_H
#define RG_PROC_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/os/loop.h"
#include "common/os/signals.h"

struct child;
struct heritage;
struct heritage_place;
struct loop;
typedef void (*child_drain_fn)(struct child *c);

/* Adds a place to the worker (heritage.h). The callee owns listen_fd, and calls child_adopted when
 * it serves the place. */
typedef void (*child_adopt_fn)(struct child *c, const struct heritage_place *place);

/* Called after a reload has changed live settings, in place, in heritage->config. */
typedef void (*child_reload_fn)(struct child *c);

/* Processor time of the process's thread, read at intervals, and the most that one loop iteration
 * used. */
struct held_cpu {
    uint64_t read_us, used_us, max_us;
};

struct child {
    const struct heritage *heritage;
    struct loop *loop;
    struct signals signals;
    struct loop_io control;
    struct loop_timer beat;
    child_drain_fn on_drain;
    child_adopt_fn on_adopt;   /* NULL: orders to adopt are refused. Set it after child_init */
    child_reload_fn on_reload; /* may be NULL. Set it after child_init */
    child_reload_fn on_leave;  /* keeper: the node leaves its fleet. Set it after child_init */
    bool draining;
    bool told;            /* readiness was reported */
    uint64_t held_max_us; /* longest loop iteration so far */
    struct held_cpu cpu;
};

/* Sets up the child's side. The heritage must outlive the child. Returns -1 with ERR_IO on failure.
 */
RG_MUSTCHECK int child_init(struct child *c, struct loop *l, const struct heritage *h,
                            child_drain_fn on_drain, struct err *e);
void child_done(struct child *c);

/* Reports that the process serves; later calls do nothing. The remark is written to the
 * supervisor's log. */
void child_ready(struct child *c, const char *remark);

/* Reports that the worker now serves the sessions of a place that it got by on_adopt. */
void child_adopted(struct child *c, uint32_t place);

/* Reports why the process cannot start. The process must end afterwards with a non-zero status. */
void child_failed(const struct heritage *h, const char *why);

#endif
