/* A worker process (worker.h): its two loops, its timer, its end.
 *
 * Start: the state (worker_state.c: journal replayed, engines, keys, sinks), then the server, then
 * "ready". Once a second: sweeps sessions, checks journals, publishes figures. End: SIGTERM drains:
 * long polls are handed back, the server accepts nothing new, and calls may run for --grace. Then
 * they are ended, one more second is left for their answers, and everything is closed in the
 * reverse order.
 *
 * A worker may adopt the places (journals and sockets) of workers that are scaled away. */

#include "worker/worker.h"

#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "common/serve/server.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/control/control.h"
#include "worker/residency/residency.h"
#include "worker/worker_figures.h"
#include "worker/worker_state.h"

enum { TICK_MS = 1000, DRAIN_TICK_MS = 20, RESERVED_DESCRIPTORS = 64 };

enum { DESCRIPTORS = 65536 }; /* size of the table of descriptors from the start */

struct worker {
    const struct heritage *h;
    struct child child;
    struct loop *loop;
    struct server *server;
    struct worker_state state;
    struct loop_timer tick, drain;
    uint64_t drain_until_ms;
};

/* Replays the adopted place's journal before its socket is served. */
static void on_adopt(struct child *c, const struct heritage_place *place)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);
    struct err e = {0};

    if (worker_state_open_place(&w->state, place->index, &e)) {
        log_error(NULL, "cannot adopt a place", LOG_U("index", place->index),
                  LOG_T("error", e.text));
        return;
    }
    worker_fleet_serve_place(&w->state, place->index);
    server_listen(w->server, place->listen_fd);
    child_adopted(c, place->place);
}

/* --- once a second --- */

/* Returns the bytes of requests, for the residency (`requests`). */
static uint64_t request_bytes(void *ctx)
{
    const struct worker *w = ctx;
    const struct call_env *env = &w->state.service.calls;
    struct server_bytes b = server_bytes(w->server);

    return b.bodies + b.answers + atomic_load_explicit(&env->request_bytes, memory_order_relaxed) +
           atomic_load_explicit(&env->export_bytes, memory_order_relaxed) +
           dispatch_held_bytes(&w->state.service) + worker_state_table_bytes(&w->state);
}

static void publish(struct worker *w)
{
    worker_figures_publish(&w->state, server_bytes(w->server));
}

/* Publishes the figures at once, so that /ready follows the engines. */
static void on_health(void *ctx)
{
    struct worker *w = ctx;

    worker_engines_changed(&w->state);
    publish(w);
}

/* Runs once a second. */
static void on_tick(struct loop_timer *timer)
{
    struct worker *w = CONTAINER_OF(timer, struct worker, tick);
    loop_timer_set(w->loop, timer, TICK_MS, on_tick);
    control_sweep(&w->state.service);
    dispatch_sweep(&w->state.service);
    worker_state_tick(&w->state);
    publish(w);
    call_memory_held(&w->state.service.calls, request_bytes(w));
}

/* --- the end --- */

/* Ends the server when no request is in progress, or when the time is over. */
static void on_drain_tick(struct loop_timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, drain);
    bool late = clock_ms() >= w->drain_until_ms;

    if (late)
        model_call_end_all(&w->state.service.calls);
    if (server_busy(w->server) == 0 && worker_state_idle(&w->state, late)) {
        server_stop(w->server);
        return;
    }
    /* One more second for the answers of calls that were just ended. */
    if (clock_ms() >= w->drain_until_ms + 1000) {
        server_stop(w->server);
        return;
    }
    loop_timer_set(w->loop, t, DRAIN_TICK_MS, on_drain_tick);
}

/* Handles the supervisor's order to end. */
static void on_drain(struct child *c)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);

    w->drain_until_ms = clock_ms() + (uint64_t)w->h->config->grace_ms;
    if (!w->server) {
        exit(0); /* still starting: nothing was served */
    }
    server_drain(w->server); /* first: what is handed back must not come to this worker again */
    control_drain(&w->state.service);
    loop_timer_set(w->loop, &w->drain, 1, on_drain_tick);
}

/* Reports the bytes of bodies that are being received, for the limit on their sum. */
static void on_unfinished(void *ctx, size_t bytes, bool refused)
{
    const struct service *service = ctx;
    struct metrics_page *page = service->calls.page;

    metrics_set(page, METRIC_unfinished_body_bytes, bytes);
    if (refused)
        metrics_count_at(page, METRIC_refusals, METRIC_REFUSAL_BODIES, 0, 1);
}

/* Applies the settings, which have been read again already (worker_state_reload). */
static void on_reload(struct child *c)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);

    worker_state_reload(&w->state);
    server_limit_bodies(w->server, (size_t)w->h->config->max_body_bytes,
                        (size_t)w->h->config->max_worker_body_bytes);
}

/* --- the start --- */

/* Returns the most connections: the call of a connection needs one more descriptor, for its engine,
 * and journals and other files need some, too. */
static size_t connection_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return MAX_OF((size_t)r.rlim_cur, (size_t)RESERVED_DESCRIPTORS + 32) / 2 -
           RESERVED_DESCRIPTORS / 2;
}

/* Enlarges the process's table of descriptors before there are threads. Otherwise the kernel
 * enlarges it when needed, and a process with threads must then wait for all processors: ten
 * milliseconds and more. */
static void make_descriptors(int fd)
{
    struct rlimit r;
    int last;

    if (getrlimit(RLIMIT_NOFILE, &r))
        return;
    last = fcntl(fd, F_DUPFD_CLOEXEC, (int)MIN_OF(r.rlim_cur, (rlim_t)DESCRIPTORS) - 1);
    if (last >= 0)
        (void)close(last);
}

/* Counts a request that arrived without a relay. */
static void on_lent(void *ctx)
{
    const struct service *s = ctx;

    metrics_count(s->calls.page, METRIC_lent_requests, 1);
}

/* Listens on the worker's own socket and those of adopted places. */
static int open_server(struct worker *w, struct err *e)
{
    struct residency *r = w->state.service.calls.residency;
    struct server_options o = {.max_body_bytes = (size_t)w->h->config->max_body_bytes,
                               .max_connections = connection_limit(),
                               .max_unfinished_bytes = (size_t)w->h->config->max_worker_body_bytes,
                               .packs = dispatch_packs,
                               .owner = dispatch_owner,
                               .finishes = dispatch_finishes,
                               .on_lent = on_lent,
                               .on_unfinished = on_unfinished};

    if (server_new(w->loop, &o, dispatch_request, &w->state.service, &w->server, e))
        return -1;
    r->requests_ctx = w;
    r->requests = request_bytes;
    worker_state_begin(&w->state);
    server_listen(w->server, w->h->listen_fd);
    for (size_t i = 0; i < w->h->n_adopted; i++)
        server_listen(w->server, w->h->adopted[i].listen_fd);
    return 0;
}

/* Returns how many helper threads did not end; memory that they may use is not freed. */
static unsigned close_all(struct worker *w)
{
    unsigned lost;

    loop_timer_stop(w->loop, &w->tick);
    loop_timer_stop(w->loop, &w->drain);
    lost = worker_state_stop(&w->state);
    server_free(w->server);
    worker_state_close(&w->state, lost > 0);
    if (lost == 0)
        dispatch_done(&w->state.service);
    return lost;
}

/* The main function of the process. Returns its exit status. */
int worker_run(const struct heritage *h)
{
    struct worker *w = mem_zalloc(sizeof(*w));
    struct err e = {0};
    unsigned lost;
    int status = 1;

    w->h = h;
    w->state.h = h;
    /* A call's arena and buffers have some hundred kilobytes, and are allocated and freed with
     * every call: taken from the heap, not mapped each time (page faults were a fifth of a call's
     * time). A helper returns free heap memory to the system (call_memory_held), because that takes
     * eight milliseconds for 64 MB. */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)signal(SIGPIPE, SIG_IGN);
    make_descriptors(h->control_fd);
    w->loop = loop_new(&e);
    w->state.loop = w->loop;
    if (!w->loop || child_init(&w->child, w->loop, h, on_drain, &e))
        goto out;
    w->child.on_adopt = on_adopt;
    w->child.on_reload = on_reload;
    if (worker_state_open(&w->state, on_health, w, &e) || open_server(w, &e))
        goto out;
    publish(w);
    loop_timer_set(w->loop, &w->tick, TICK_MS, on_tick);
    child_ready(&w->child, "");
    server_run(w->server);
    status = 0;
out:
    if (status)
        child_failed(h, e.text);
    lost = close_all(w);
    child_done(&w->child);
    if (lost > 0)
        _exit(status); /* helper threads may still use the model, so it is not freed */
    loop_free(w->loop);
    free(w);
    return status;
}
