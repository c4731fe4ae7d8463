/*
 * struct child: a child's side of the contract in heritage.h, on the child's own loop: signals,
 * the supervisor's orders, the readiness report, and once a second the heartbeat and the process
 * metrics.
 *
 *     child_init(&c, loop, heritage, on_drain, &e);
 *     ... open everything ...
 *     child_ready(&c, "");
 *     loop_run(loop);        // on_drain makes it stop once nothing runs any more
 *     child_done(&c);
 *
 * on_drain is called once, at the first SIGTERM or SIGINT; later ones change nothing. SIGQUIT and
 * the end of the supervisor end the process on the spot: the journal makes that safe.
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

/* The worker gets one more place (heritage.h); listen_fd becomes its own. It answers with
 * child_adopted once it serves the place. */
typedef void (*child_adopt_fn)(struct child *c, const struct heritage_place *place);

/* The settings that a reload may change have changed (in place, in heritage->config). */
typedef void (*child_reload_fn)(struct child *c);

/* How long the process's thread has been on a processor, read now and then; and the most that one
 * round of the loop took of it. */
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
    child_adopt_fn on_adopt;   /* set it after child_init; NULL: orders to adopt are refused */
    child_reload_fn on_reload; /* set it after child_init; may be NULL */
    bool draining;
    bool told;            /* readiness was reported */
    uint64_t held_max_us; /* longest round of the loop so far */
    struct held_cpu cpu;
};

/* The heritage must outlive the child. -1 with ERR_IO. */
RG_MUSTCHECK int child_init(struct child *c, struct loop *l, const struct heritage *h,
                            child_drain_fn on_drain, struct err *e);
void child_done(struct child *c);

/* Reports that the process serves; once. A remark goes into the supervisor's log. */
void child_ready(struct child *c, const char *remark);

/* Reports that the sessions of a place that came by on_adopt are served now. */
void child_adopted(struct child *c, uint32_t place);

/* Reports why the process cannot start; it ends afterwards with a non-zero status. */
void child_failed(const struct heritage *h, const char *why);

#endif
