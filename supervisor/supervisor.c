/* The supervisor's loop: start, signals, end (supervisor.h). One state machine:
 *
 *   STARTING -- all ready --> SERVING -- stop --> EXECUTOR --> ROUTERS --> WORKERS --> (KILLED)
 *
 * Stopping goes from the outside in: first the executor (its attempts end), then the routers
 * (they finish what they have begun), then workers and dispatcher. Each phase has a deadline,
 * after which the next one begins by force. supervisor_advance moves on whenever something has
 * ended; it is called after every event that may matter.
 *
 * A start that fails, or too many deaths right after an upgrade, go back to the binary before
 * (upgrade_undo). */

#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "router/router.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

enum {
    TICK_MS = 200,
    AFTER_GRACE_MS = 1000,
    KILL_AFTER_MS = 5000,
    EXECUTOR_AFTER_MS = 25000 /* a runner's own grace, between TERM and KILL, as it is by default */
};

static struct supervisor *the(struct loop_timer *t, size_t offset)
{
    return (struct supervisor *)(void *)((char *)t - offset);
}

/* --- the end --- */

static void on_deadline(struct loop_timer *t);

static void enter(struct supervisor *s, enum supervisor_phase phase, int64_t deadline_ms)
{
    s->phase = phase;
    loop_timer_set(s->loop, &s->deadline, (uint64_t)MAX_OF(deadline_ms, 1), on_deadline);
}

/* Nobody is restarted from now on. */
static void end_routers(struct supervisor *s)
{
    atomic_store_explicit(&s->board->draining, 1, memory_order_relaxed);
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        loop_timer_stop(s->loop, &s->processes[slot].respawn);
    /* Routers close what is left at the end of their own grace; a moment more for that. */
    enter(s, PHASE_ROUTERS, s->config->grace_ms + AFTER_GRACE_MS);
    (void)spawn_signal(s, ROLE_ROUTER, SIGTERM);
}

static void end_workers(struct supervisor *s)
{
    enter(s, PHASE_WORKERS, KILL_AFTER_MS);
    (void)spawn_signal(s, -1, SIGTERM);
}

/* The last phase: what is left does not end by itself. */
static void kill_all(struct supervisor *s)
{
    unsigned left = spawn_signal(s, -1, SIGKILL);

    if (left)
        log_warn(NULL, "killed what did not end in time", LOG_U("processes", left));
    enter(s, PHASE_KILLED, KILL_AFTER_MS);
}

/* The phase took too long. */
static void on_deadline(struct loop_timer *t)
{
    struct supervisor *s = the(t, offsetof(struct supervisor, deadline));

    if (s->phase == PHASE_EXECUTOR)
        local_executor_signal(s, SIGKILL); /* what it ran dies with it */
    else if (s->phase == PHASE_ROUTERS)
        end_workers(s);
    else
        kill_all(s);
    supervisor_advance(s);
}

/* May come several times; the worst exit status stays. */
void supervisor_stop(struct supervisor *s, int exit_status)
{
    s->exit_status = MAX_OF(s->exit_status, exit_status);
    if (s->phase > PHASE_SERVING)
        return;
    trial_kill(&s->upgrade.trial);
    (void)sd_notify(0, "STOPPING=1");
    log_info(NULL, "stopping", LOG_I("grace_ms", s->config->grace_ms),
             LOG_I("exit_status", s->exit_status));
    local_executor_stop(s);
    if (s->executor.pid) {
        local_executor_signal(s, SIGTERM);
        enter(s, PHASE_EXECUTOR, s->config->grace_ms + EXECUTOR_AFTER_MS);
    } else {
        end_routers(s);
    }
    supervisor_advance(s);
}

void supervisor_fail(struct supervisor *s, const char *process, const char *reason)
{
    upgrade_undo(s, reason);
    log_error(NULL, "start failed", LOG_T("process", process), LOG_T("reason", reason));
    supervisor_stop(s, 1);
}

/* Everybody is told that the service is up. */
static void announce(struct supervisor *s)
{
    s->phase = PHASE_SERVING;
    upgrade_settle(s);
    (void)sd_notifyf(0, "READY=1\nMAINPID=%d\nSTATUS=serving on %s", (int)getpid(),
                     s->listeners.address);
    log_info(NULL, "serving", LOG_T("listen", s->listeners.address));
}

/* Every process that is wanted has reported. */
static bool all_ready(const struct supervisor *s)
{
    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        if (s->processes[slot].wanted && !board_ready(s->board, slot))
            return false;
    }
    return true;
}

/* Reload and upgrade, as soon as all serve: an upgrade starts while the children of the old binary
 * finish, which may take as long as their calls. */
static void obey(struct supervisor *s)
{
    if (s->phase == PHASE_STARTING && (s->asked_reload || s->asked_upgrade))
        log_info(NULL, "reload or upgrade waits until all serve");
    if (s->phase != PHASE_SERVING)
        return;
    if (s->asked_reload)
        reload_config(s);
    s->asked_reload = false;
    if (s->asked_upgrade)
        upgrade_begin(s);
    s->asked_upgrade = false;
}

/* Goes to the next phase as soon as the one at hand is over. */
void supervisor_advance(struct supervisor *s)
{
    if (s->phase == PHASE_STARTING && all_ready(s)) {
        announce(s);
        if (s->upgrade.is_trial)
            supervisor_stop(s, TRIAL_SERVED);
        local_executor_start(s);
        obey(s);
    }
    if (s->phase == PHASE_EXECUTOR && !s->executor.pid)
        end_routers(s);
    if (s->phase == PHASE_ROUTERS && spawn_signal(s, ROLE_ROUTER, 0) == 0)
        end_workers(s);
    if (s->phase >= PHASE_WORKERS && spawn_signal(s, -1, 0) == 0 && !s->upgrade.trial.pid &&
        !s->executor.pid)
        loop_stop(s->loop);
}

/* --- events --- */

/* TERM and INT stop, QUIT stops at once, HUP reloads, USR2 upgrades. */
static void on_signal(struct signals *signals, int signo, int sender)
{
    struct supervisor *s = CONTAINER_OF(signals, struct supervisor, signals);

    switch (signo) {
    case SIGCHLD:
        spawn_reap(s);
        break;
    case SIGTERM:
    case SIGINT:
        log_debug(NULL, "asked to stop", LOG_I("sender", sender));
        supervisor_stop(s, 0);
        break;
    case SIGQUIT:
        supervisor_stop(s, 0);
        local_executor_signal(s, SIGKILL);
        (void)spawn_signal(s, -1, SIGKILL);
        s->phase = PHASE_KILLED;
        supervisor_advance(s);
        break;
    case SIGHUP:
        s->asked_reload = true;
        obey(s);
        break;
    case SIGUSR2:
        s->asked_upgrade = true;
        obey(s);
        break;
    default:
        break;
    }
}

/* A child has reported. */
static void on_report(struct loop_io *io, unsigned events)
{
    struct supervisor *s = CONTAINER_OF(io, struct supervisor, status_io);

    (void)events;
    spawn_take_reports(s);
    supervisor_advance(s);
}

/* Looks at the children's hearts and feeds systemd's watchdog. */
static void on_tick(struct loop_timer *t)
{
    struct supervisor *s = the(t, offsetof(struct supervisor, tick));
    int64_t now = (int64_t)clock_ms();

    spawn_check(s);
    if (s->watchdog_ms && now >= s->watchdog_next && s->phase != PHASE_STARTING) {
        (void)sd_notify(0, "WATCHDOG=1");
        s->watchdog_next = now + s->watchdog_ms / 3;
    }
    loop_timer_set(s->loop, &s->tick, TICK_MS, on_tick);
}

/* --- the start --- */

/* The soft limit of descriptors is a default for programs that use select(); ours is the hard one.
 */
static uint64_t raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

/* Loop, signals, status pipe. */
static int make_loop(struct supervisor *s, struct err *e)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR2, 0};

    s->loop = loop_new(e);
    if (!s->loop)
        return -1;
    /* The reaper stands before there is anything to reap. */
    if (signals_init(&s->signals, s->loop, watched, on_signal, e))
        return -1;
    if (pipe2(s->status_fds, O_CLOEXEC | O_NONBLOCK))
        return err_sys(e, ERR_IO, "pipe");
    return loop_add(s->loop, &s->status_io, s->status_fds[0], LOOP_IN, on_report, e);
}

/* A random name of this run, by which metrics and logs of restarts are told apart. */
static int make_instance(struct supervisor *s, struct err *e)
{
    struct ids *ids = ids_new(e);

    if (!ids)
        return -1;
    ids_hex(ids, s->board->instance, 16);
    ids_free(ids);
    return 0;
}

/* Routers over given upstreams: these stand in the workers' slots, always ready. */
static void fill_upstreams(struct supervisor *s)
{
    for (size_t i = 0; i < s->config->upstream.n && i < BOARD_WORKERS_MAX; i++) {
        atomic_store(&s->board->slots[BOARD_WORKER0 + i].state, BOARD_READY);
        atomic_store(&s->board->slots[BOARD_WORKER0 + i].engines_up, 1);
    }
    atomic_store(&s->board->workers, (uint32_t)s->config->upstream.n);
}

/* Fills the process table; nothing is started. */
static void want_children(struct supervisor *s)
{
    s->board->worker_base = (uint32_t)s->config->worker_base;
    atomic_store(&s->board->routers, (uint32_t)s->config->routers);
    for (unsigned i = 0; i < (unsigned)s->config->routers; i++)
        spawn_prepare(s, BOARD_ROUTER0 + i);
    if (s->config->upstream.n) {
        fill_upstreams(s);
        return;
    }
    atomic_store(&s->board->workers, (uint32_t)s->config->workers);
    for (unsigned i = 0; i < (unsigned)s->config->workers; i++)
        spawn_prepare(s, BOARD_WORKER0 + i);
    if (s->config->dispatcher && s->bodies->dispatcher)
        spawn_prepare(s, BOARD_DISPATCHER);
}

/* Limits as metrics, so that a graph can show figures against them. */
void supervisor_tell_limits(struct supervisor *s)
{
    const struct config *c = s->config;

    const struct {
        unsigned limit;
        int64_t value;
    } all[] = {
        {METRIC_LIMIT_SESSIONS, c->max_sessions},
        {METRIC_LIMIT_TOKENS, c->max_live_tokens},
        {METRIC_LIMIT_MEMORY, c->max_worker_memory},
        {METRIC_LIMIT_NODES, c->max_nodes},
        {METRIC_LIMIT_INFLIGHT, c->max_inflight},
        {METRIC_LIMIT_SESSION_INFLIGHT, c->max_session_inflight},
        {METRIC_LIMIT_QUEUE, c->max_queue},
        {METRIC_LIMIT_SESSION_QUEUE, c->max_session_queue},
        {METRIC_LIMIT_QUEUE_TIME, c->queue_timeout_ms / 1000},
        {METRIC_LIMIT_CONNECTIONS, c->max_connections},
        {METRIC_LIMIT_ADDRESS_CONNECTIONS, c->max_address_connections},
        {METRIC_LIMIT_KEY_CONNECTIONS, c->max_key_connections},
        {METRIC_LIMIT_KEY_BODIES, c->max_key_body_bytes},
        {METRIC_LIMIT_ADDRESS_BODIES, c->max_address_body_bytes},
        {METRIC_LIMIT_WORKER_BODIES, c->max_worker_body_bytes},
        {METRIC_LIMIT_BODY_RATE, c->min_body_rate},
        {METRIC_LIMIT_HEADER, c->max_header_bytes},
        {METRIC_LIMIT_BODY, c->max_body_bytes},
        {METRIC_LIMIT_LOG, c->log_rate},
        {METRIC_LIMIT_REQUEST_MEMORY, c->max_request_memory},
        {METRIC_LIMIT_REQUEST_GROWTH, c->max_request_growth},
        {METRIC_LIMIT_TOOLS, c->max_tools},
        {METRIC_LIMIT_STOPS, c->max_stops},
        {METRIC_LIMIT_MESSAGES, c->max_messages},
        {METRIC_LIMIT_SCHEMA, c->max_schema_bytes},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        metrics_set_at(s->page, METRIC_limit, all[i].limit, (uint64_t)all[i].value);
}

/* One line with all that one asks first when something is odd. */
static void log_start(struct supervisor *s, uint64_t descriptors, const struct buf *remark)
{
    const struct config *c = s->config;

    log_info(
        NULL, "rollgate starts", LOG_T("version", RG_VERSION),
        LOG_I("cores", sysconf(_SC_NPROCESSORS_ONLN)), LOG_U("nofile", descriptors),
        LOG_U("connections_per_router", router_capacity((size_t)descriptors)),
        LOG_T("listen", s->listeners.address), LOG_I("workers", c->upstream.n ? 0 : c->workers),
        LOG_I("routers", c->routers),
        LOG_T("durability", ((const char *const[]){"none", "process", "power"})[c->durability]),
        LOG_T("keys", c->admin_key_file ? "on" : "off"), LOG_T("sandbox", sandbox_describe(c)),
        LOG_T("landlock", sandbox_landlock(c)), LOG_S("model", buf_str(remark)));
    if (geteuid() == 0 && !c->user)
        log_warn(NULL, "started as root without --user: routers and workers keep root's user id");
    if (c->insecure && !c->admin_key_file)
        log_warn(NULL, "--insecure: anybody who reaches the port may do everything");
}

/* Key files are read once before there are children: mistakes in them are told at once, and a
 * secret that is missing is made by one who may write files. */
static int check_keys(const struct config *c, struct err *e)
{
    struct keys *keys = NULL;
    struct buf secret = {0};
    bool made;
    int rc;

    if (c->upstream.n > 0 && !c->admin_key_file)
        return 0;
    buf_printf(&secret, "%s/key-secret", c->state_dir);
    made = access(secret.p, F_OK) != 0;
    rc = keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, e);
    keys_free(keys);
    if (rc == 0 && made && access(secret.p, F_OK) == 0)
        rc = user_give(c, secret.p, e);
    buf_done(&secret);
    return rc;
}

/* Folders, keys, sockets. */
static int take_place(struct supervisor *s, struct err *e)
{
    bool alone = s->config->upstream.n > 0; /* routers alone keep nothing */

    if (user_check(s->config, e) || (!alone && listeners_folders(s->config, e)) ||
        check_keys(s->config, e))
        return -1;
    if (s->upgrade.is_trial)
        trial_move_aside(s->config);
    s->listeners.aside = s->upgrade.is_trial;
    return listeners_open(&s->listeners, s->config, e);
}

/* The order: board and metrics, loop, sockets, model, process table, adopted places, then the
 * children, workers before routers. */
static int start(struct supervisor *s, struct err *e)
{
    uint64_t descriptors = raise_descriptors();
    const char *usec = getenv("WATCHDOG_USEC");
    struct buf remark = {0};
    uint64_t watchdog = 0;
    int rc = -1;

    (void)signal(SIGPIPE, SIG_IGN);
    s->board = board_new();
    upgrade_take_orders(s->board);
    s->metrics = metrics_new(BOARD_SLOTS);
    s->page = metrics_page(s->metrics, BOARD_SUPERVISOR, "supervisor");
    logs_setup("supervisor", s->config, s->page);
    supervisor_tell_limits(s);
    if (usec && !str_to_u64(str_cstr(usec), INT64_MAX, &watchdog))
        s->watchdog_ms = (int64_t)(watchdog / 1000);
    if (make_loop(s, e) || make_instance(s, e) || take_place(s, e))
        goto out;
    if (s->bodies->load && s->bodies->load(s->config, &s->model, &remark, e))
        goto out;
    log_start(s, descriptors, &remark);
    want_children(s);
    if (reload_serve_given(s, e))
        goto out;
    if (s->config->durability != DURABILITY_NONE && s->config->upstream.n == 0 &&
        reload_adopt_leftovers(s, e))
        goto out;
    (void)spawn_signal(s, -1, SIGTERM);                          /* those of before an upgrade */
    for (unsigned slot = BOARD_SLOTS; slot-- > BOARD_ROUTER0;) { /* workers before routers */
        if (s->processes[slot].wanted)
            spawn_start(s, slot);
    }
    spawn_reap(s); /* what died during an upgrade */
    on_tick(&s->tick);
    rc = 0;
out:
    buf_done(&remark);
    return rc;
}

/* Frees everything, for leak checks. */
static void release(struct supervisor *s)
{
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        process_done(&s->processes[slot]);
    vec_done(&s->deaths);
    local_executor_done(s);
    upgrade_done(s);
    if (s->bodies->unload && s->model)
        s->bodies->unload(s->model);
    listeners_close(&s->listeners);
    for (int i = 0; i < 2; i++) {
        if (s->status_fds[i] >= 0)
            close(s->status_fds[i]);
    }
    signals_done(&s->signals);
    loop_free(s->loop);
    metrics_free(s->metrics);
    board_free(s->board);
    free(s);
}

/* The process's main loop from the start to the exit status. */
int supervisor_serve(struct config *c, const struct supervisor_bodies *bodies)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    struct err e = {0};
    int rc;

    logs_setup("supervisor", c, NULL);
    s->config = c;
    s->bodies = bodies;
    s->status_fds[0] = s->status_fds[1] = -1;
    listeners_init(&s->listeners);
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        s->processes[slot].control_fd = -1;
    upgrade_init(s);
    if (start(s, &e)) {
        upgrade_undo(s, e.text);
        log_error(NULL, "cannot start", LOG_T("reason", e.text));
        s->exit_status = 1;
    } else {
        loop_run(s->loop);
        log_info(NULL, "stopped", LOG_I("exit_status", s->exit_status));
    }
    rc = s->exit_status;
    release(s);
    return rc;
}
