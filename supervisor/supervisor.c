/* The supervisor's loop: start, signals, end (supervisor.h). One state machine:
 *
 *   STARTING -- all ready --> SERVING -- stop --> EXECUTOR --> (LEAVING) --> ROUTERS --> WORKERS
 *                                                                        --> KEEPER --> (KILLED)
 *
 * Stopping goes from the outside in: first the executor (its attempts end), then the routers (they
 * finish what they have begun), then workers and dispatcher. Each phase has a deadline, after which
 * the next one begins by force. supervisor_advance goes to the next phase when the present one is
 * over. It is called after every event that may matter.
 *
 * If a start fails, or if too many deaths follow an upgrade, the previous binary runs again
 * (upgrade_undo). */

#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/suspects.h"

enum {
    TICK_MS = 200,
    FLEET_TICK_MS = 20, /* requests wait for the worker of a place that has moved here */
    AFTER_GRACE_MS = 1000,
    WORKERS_MS = 15000, /* a worker may have tens of MB to write, on a busy disk */
    KEEPER_MS = 5000,
    KILLED_MS = 5000,
    EXECUTOR_AFTER_MS = 25000 /* default grace of a runner, between TERM and KILL, and a margin */
};

static struct supervisor *supervisor_of_timer(struct loop_timer *t, size_t offset)
{
    return (struct supervisor *)(void *)((char *)t - offset);
}

/* --- the end --- */

static void on_phase_deadline(struct loop_timer *t);

static void enter_phase(struct supervisor *s, enum supervisor_phase phase, int64_t deadline_ms)
{
    s->phase = phase;
    loop_timer_set(s->loop, &s->deadline, (uint64_t)MAX_OF(deadline_ms, 1), on_phase_deadline);
}

/* Ends the routers. No process is restarted from now on. */
static void end_routers(struct supervisor *s)
{
    atomic_store_explicit(&s->board->draining, 1, memory_order_relaxed);
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        loop_timer_stop(s->loop, &s->processes[slot].respawn);
    if (s->phase == PHASE_LEAVING || s->phase == PHASE_LEFT)
        fleet_places_put_released(s);
    /* Routers close the remaining connections when their own grace is over, and need a moment more
     * for that. */
    enter_phase(s, PHASE_ROUTERS, s->config->grace_ms + AFTER_GRACE_MS);
    listeners_close_tcp(&s->listeners); /* a client must not wait in a queue that nobody serves */
    (void)spawn_signal(s, ROLE_ROUTER, SIGTERM);
}

static void end_workers(struct supervisor *s)
{
    enter_phase(s, PHASE_WORKERS, WORKERS_MS);
    tls_front_end(s, SIGTERM);
    for (int role = ROLE_ROUTER; role < ROLE_KEEPER; role++)
        (void)spawn_signal(s, role, SIGTERM);
}

/* The keeper renews the places of this node until the workers have ended. Without a keeper the
 * workers' deadline remains, and covers whatever else is awaited. */
static void end_keeper(struct supervisor *s)
{
    if (spawn_signal(s, ROLE_KEEPER, SIGTERM) > 0)
        enter_phase(s, PHASE_KEEPER, KEEPER_MS);
    else
        s->phase = PHASE_KEEPER;
}

/* Kills everything in the last phase: what is left does not end by itself. */
static void kill_all(struct supervisor *s)
{
    unsigned left = spawn_signal(s, -1, SIGKILL);

    tls_front_end(s, SIGKILL);
    if (left)
        log_warn(NULL, "killed what did not end in time", LOG_U("processes", left));
    enter_phase(s, PHASE_KILLED, KILLED_MS);
}

/* Ends a phase that took too long. */
static void on_phase_deadline(struct loop_timer *t)
{
    struct supervisor *s = supervisor_of_timer(t, offsetof(struct supervisor, deadline));

    if (s->phase == PHASE_EXECUTOR)
        local_executor_signal(s, SIGKILL); /* the executor's runs die with it */
    else if (s->phase == PHASE_LEAVING || s->phase == PHASE_LEFT)
        end_routers(s);
    else if (s->phase == PHASE_ROUTERS)
        end_workers(s);
    else
        kill_all(s);
    supervisor_advance(s);
}

/* Ends the workers first: their places go to other nodes, to which the routers then send the
 * requests. */
static void begin_leaving(struct supervisor *s)
{
    log_info(NULL, "leaving the fleet", LOG_I("grace_ms", s->config->grace_ms));
    enter_phase(s, PHASE_LEAVING, s->config->grace_ms + WORKERS_MS);
    fleet_places_leave(s);
}

/* After the executor. */
static void end_services(struct supervisor *s)
{
    if (s->fleet && s->joined && s->leaves)
        begin_leaving(s);
    else
        end_routers(s);
}

/* A node whose start failed, or that gives up, keeps its places for the next start. So does one
 * whose places no other node can take. */
static void supervisor_leave(struct supervisor *s)
{
    if (s->phase == PHASE_SERVING) /* a drain that a worker has accepted is carried out */
        s->leaves = atomic_load(&s->board->leaving) || place_table_has_successor(s->fleet);
    if (s->phase == PHASE_SERVING && !s->leaves)
        log_info(NULL, "no other node can take the places of this one, keeping them");
    supervisor_stop(s, 0);
}

/* May be called several times; the worst exit status counts. */
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
    tls_front_end(s, SIGQUIT);
    if (s->executor.pid) {
        local_executor_signal(s, SIGTERM);
        enter_phase(s, PHASE_EXECUTOR, s->config->grace_ms + EXECUTOR_AFTER_MS);
    } else {
        end_services(s);
    }
    supervisor_advance(s);
}

void supervisor_fail(struct supervisor *s, const char *process, const char *reason)
{
    upgrade_undo(s, reason);
    log_error(NULL, "start failed", LOG_T("process", process), LOG_T("reason", reason));
    atomic_store(&s->board->failed, 1);
    supervisor_stop(s, 1);
}

/* Reports to the service manager that the service is ready. */
static void announce_serving(struct supervisor *s)
{
    s->phase = PHASE_SERVING;
    upgrade_commit(s);
    (void)sd_notifyf(0, "READY=1\nMAINPID=%d\nSTATUS=serving on %s", (int)getpid(),
                     s->listeners.address);
    log_info(NULL, "serving", LOG_T("listen", s->listeners.address));
    terminal_summary_plan(s);
}

/* Reports whether every process is ready that a start waits for. */
static bool all_ready(const struct supervisor *s)
{
    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        if (s->processes[slot].wanted && !board_ready(s->board, slot) &&
            !process_is_foreign(&s->processes[slot]))
            return false;
    }
    return true;
}

/* Carries out a pending reload or upgrade when all processes serve. An upgrade may start while
 * children of the previous binary still finish, which may take as long as their calls. */
static void run_orders(struct supervisor *s)
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

/* The keeper has joined the fleet: the other children start. */
static void start_joined(struct supervisor *s)
{
    struct err e;

    if (supervisor_start_children(s, &e))
        supervisor_fail(s, "supervisor", e.text);
}

void supervisor_advance(struct supervisor *s)
{
    if (s->phase == PHASE_STARTING && !s->joined && board_ready(s->board, BOARD_KEEPER))
        start_joined(s);
    if (s->phase == PHASE_STARTING && s->joined && all_ready(s)) {
        announce_serving(s);
        if (s->upgrade.is_trial)
            supervisor_stop(s, TRIAL_SERVED);
        local_executor_start(s);
        tls_front_start(s);
        run_orders(s);
    }
    if (s->phase == PHASE_EXECUTOR && !s->executor.pid)
        end_services(s);
    if (s->phase == PHASE_LEAVING && fleet_places_are_gone(s))
        enter_phase(s, PHASE_LEFT, s->config->fleet_lease_ms);
    if (s->phase == PHASE_ROUTERS && spawn_signal(s, ROLE_ROUTER, 0) == 0)
        end_workers(s);
    if (s->phase == PHASE_WORKERS && spawn_signal(s, -1, 0) == spawn_signal(s, ROLE_KEEPER, 0))
        end_keeper(s);
    if (s->phase >= PHASE_KEEPER && spawn_signal(s, -1, 0) == 0 && !s->upgrade.trial.pid &&
        !s->executor.pid && !tls_front_lives(s))
        loop_stop(s->loop);
}

/* --- events --- */

/* Handles signals: TERM and INT stop, QUIT stops at once, HUP reloads, USR2 upgrades. USR1, with
 * which other servers open their logs anew, does nothing. */
static void on_supervisor_signal(struct signals *signals, int signo, int sender)
{
    struct supervisor *s = CONTAINER_OF(signals, struct supervisor, signals);

    switch (signo) {
    case SIGCHLD:
        reap_all(s);
        break;
    case SIGTERM:
    case SIGINT:
        log_debug(NULL, "asked to stop", LOG_I("sender", sender));
        if (s->fleet && (s->config->fleet_leave || atomic_load(&s->board->leaving)))
            supervisor_leave(s);
        else
            supervisor_stop(s, 0);
        break;
    case SIGQUIT:
        supervisor_stop(s, 0);
        local_executor_signal(s, SIGKILL);
        tls_front_end(s, SIGKILL);
        (void)spawn_signal(s, -1, SIGKILL);
        s->phase = PHASE_KILLED;
        supervisor_advance(s);
        break;
    case SIGHUP:
        s->asked_reload = true;
        run_orders(s);
        break;
    case SIGUSR1:
        log_warn(NULL, "USR1 has no effect: the log is standard error", LOG_I("sender", sender));
        break;
    case SIGUSR2:
        s->asked_upgrade = true;
        run_orders(s);
        break;
    default:
        break;
    }
}

/* Reads reports of children. */
static void on_report(struct loop_io *io, unsigned events)
{
    struct supervisor *s = CONTAINER_OF(io, struct supervisor, status_io);

    (void)events;
    reap_read_reports(s);
    supervisor_advance(s);
}

/* Starts and ends workers as places move to this node and away. */
static void on_fleet_tick(struct loop_timer *t)
{
    struct supervisor *s = supervisor_of_timer(t, offsetof(struct supervisor, fleet_tick));

    fleet_places_follow(s);
    if (s->phase == PHASE_SERVING && atomic_load(&s->board->leaving))
        supervisor_leave(s);
    if (s->phase == PHASE_LEAVING)
        supervisor_advance(s);
    loop_timer_set(s->loop, t, FLEET_TICK_MS, on_fleet_tick);
}

/* Checks the children's heartbeats and feeds systemd's watchdog. */
static void on_heart_tick(struct loop_timer *t)
{
    struct supervisor *s = supervisor_of_timer(t, offsetof(struct supervisor, tick));
    int64_t now = (int64_t)clock_ms();

    reap_stuck(s);
    terminal_summary_advance(s);
    tls_front_watch(s);
    supervisor_measure_disk(s);
    if (s->watchdog_ms && now >= s->watchdog_next && s->phase != PHASE_STARTING) {
        (void)sd_notify(0, "WATCHDOG=1");
        s->watchdog_next = now + s->watchdog_ms / 3;
    }
    loop_timer_set(s->loop, &s->tick, TICK_MS, on_heart_tick);
}

/* --- the loop --- */

int supervisor_open_loop(struct supervisor *s, struct err *e)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, 0};

    s->loop = loop_new(e);
    if (!s->loop)
        return -1;
    /* The signals are set up before any child can die. */
    if (signals_init(&s->signals, s->loop, watched, on_supervisor_signal, e))
        return -1;
    if (pipe2(s->status_fds, O_CLOEXEC | O_NONBLOCK))
        return err_sys(e, ERR_IO, "pipe");
    return loop_add(s->loop, &s->status_io, s->status_fds[0], LOOP_IN, on_report, e);
}

/* Frees everything, for leak checks. */
static void free_supervisor(struct supervisor *s)
{
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        process_done(&s->processes[slot]);
    vec_done(&s->deaths);
    local_executor_done(s);
    tls_front_done(s);
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
    place_table_free(s->fleet);
    free(s->suspects);
    free(s);
}

void supervisor_forget(struct supervisor *s)
{
    for (unsigned i = 0; i < BOARD_SLOTS; i++)
        free(s->processes[i].adopted);
    vec_done(&s->deaths);
    local_executor_done(s);
    tls_front_done(s);
    if (s->bodies->unload && s->model)
        s->bodies->unload(s->model);
    config_free(s->config);
    metrics_free(s->metrics);
    board_free(s->board);
    place_table_free(s->fleet);
    free(s->suspects);
    free(s);
}

/* Runs from the start to the exit status. */
int supervisor_serve(struct config *c, const struct supervisor_bodies *bodies)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    struct err e = {0};
    int rc;

    logs_setup("supervisor", c, NULL);
    s->config = c;
    s->bodies = bodies;
    s->suspects = mem_zalloc(sizeof(*s->suspects));
    s->status_fds[0] = s->status_fds[1] = -1;
    listeners_init(&s->listeners);
    for (unsigned slot = 0; slot < BOARD_SLOTS; slot++)
        s->processes[slot].control_fd = -1;
    upgrade_init(s);
    if (supervisor_start(s, &e)) {
        upgrade_undo(s, e.text);
        log_error(NULL, "cannot start", LOG_T("reason", e.text));
        s->exit_status = 1;
    } else {
        reap_all(s); /* handles children that died during an upgrade */
        on_heart_tick(&s->tick);
        if (s->fleet)
            on_fleet_tick(&s->fleet_tick);
        loop_run(s->loop);
        log_info(NULL, "stopped", LOG_I("exit_status", s->exit_status));
    }
    rc = s->exit_status;
    free_supervisor(s);
    return rc;
}
