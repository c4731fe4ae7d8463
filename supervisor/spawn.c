/* The children: made, watched, buried and replaced.
 *
 *   spawn_prepare   what the slot is: role, place, name, heritage
 *   spawn_start     socket, control socket, fork; the child goes on in be_child
 *   take_report     ready, failed, adopted (over the status pipe)
 *   spawn_check     kills who does not report or whose heart does not beat
 *   spawn_reap      a death: bury -> after_crash -> again later, or the end
 *
 * Deaths that a request is suspected of (suspects.c) do not count against --max-restarts, so
 * that one poisonous request cannot take the service down. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "common/proc/status.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

static const unsigned first_slots[] = {[ROLE_ROUTER] = BOARD_ROUTER0,
                                       [ROLE_WORKER] = BOARD_WORKER0,
                                       [ROLE_DISPATCHER] = BOARD_DISPATCHER};

static enum heritage_role role_of(unsigned slot)
{
    if (slot >= BOARD_DISPATCHER)
        return ROLE_DISPATCHER;
    return slot < BOARD_WORKER0 ? ROLE_ROUTER : ROLE_WORKER;
}

static bool is_router(unsigned slot)
{
    return role_of(slot) == ROLE_ROUTER;
}

static void set_state(struct supervisor *s, unsigned slot, enum board_state state)
{
    atomic_store_explicit(&s->board->slots[slot].state, state, memory_order_relaxed);
}

static enum board_state get_state(const struct supervisor *s, unsigned slot)
{
    return (enum board_state)atomic_load_explicit(&s->board->slots[slot].state,
                                                  memory_order_relaxed);
}

/* Fills in the slot; nothing is started. */
void spawn_prepare(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];
    struct heritage *h = &p->heritage;

    h->role = role_of(slot);
    h->place = slot - first_slots[h->role];
    h->index = h->place + (h->role == ROLE_WORKER ? (uint32_t)s->config->worker_base : 0);
    h->slot = slot;
    if (h->role == ROLE_DISPATCHER)
        (void)snprintf(h->name, sizeof(h->name), "dispatcher");
    else
        (void)snprintf(h->name, sizeof(h->name), "%s-%u", is_router(slot) ? "router" : "worker",
                       h->index);
    h->config = s->config;
    h->board = s->board;
    h->metrics = s->metrics;
    h->page = metrics_page(s->metrics, slot, h->name);
    h->model = h->role == ROLE_WORKER ? s->model : NULL;
    h->port_kept = s->listeners.kept;
    h->status_fd = s->status_fds[1];
    h->run_dir = s->config->run_dir;
    h->state_dir = s->config->state_dir;
    p->control_fd = -1;
    p->backoff_ms = p->first_ms = 0;
    p->wanted = true;
    set_state(s, slot, BOARD_STARTING);
}

/* --- in the child --- */

/* Whether the process accepts on the descriptor. */
static bool is_served(const struct heritage *h, int fd)
{
    bool mine = fd == h->listen_fd;

    for (size_t i = 0; i < h->n_adopted; i++)
        mine |= fd == h->adopted[i].listen_fd;
    return mine;
}

/* In the child: closes what belongs to the supervisor or to other children. */
static void close_inherited(struct supervisor *s, const struct process *own)
{
    const struct heritage *h = &own->heritage;

    if (h->role == ROLE_ROUTER)
        s->listeners.n_also = 0; /* it accepts on them */

    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++) {
        if (is_served(h, s->listeners.routers[i]))
            s->listeners.routers[i] = -1;
    }
    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (is_served(h, s->listeners.workers[i]))
            s->listeners.workers[i] = -1;
    }
    if (is_served(h, s->listeners.dispatcher))
        s->listeners.dispatcher = -1;
    listeners_close(&s->listeners);
    for (unsigned i = 0; i < BOARD_SLOTS; i++) {
        if (s->processes[i].pid && s->processes[i].control_fd >= 0)
            close(s->processes[i].control_fd);
    }
    for (size_t i = 0; i < s->upgrade.previous.n; i++)
        close(s->upgrade.previous.at[i].control_fd);
    if (s->upgrade.trial.pid)
        close(s->upgrade.trial.said_fd);
    upgrade_done(s);
    close(s->status_fds[0]);
    close(s->signals.io.fd);
    loop_free(s->loop);
}

/* SIGCHLD is for those who have children; the rest stays blocked until struct child asks for it, so
 * that a SIGTERM sent meanwhile waits instead of being lost or killing a half-made process. */
static void reset_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* A worker whose memory ran away is to die before the supervisor and the routers: its sessions are
 * in the journal. Never lowers what the service was started with, which would take a privilege. */
static void be_first_to_die(void)
{
    enum { WORKER_OOM_SCORE = 500 };

    FILE *f = fopen("/proc/self/oom_score_adj", "r+e");
    char had[16] = "";

    if (!f)
        return; /* no /proc here: the kernel chooses */
    if (fgets(had, sizeof(had), f) && strtol(had, NULL, 10) < WORKER_OOM_SCORE) {
        rewind(f);
        (void)fprintf(f, "%d", WORKER_OOM_SCORE);
    }
    if (fclose(f))
        log_warn(NULL, "oom_score_adj cannot be set, ignoring", LOG_T("reason", strerror(errno)));
}

static int (*body_of(const struct supervisor_bodies *b,
                     enum heritage_role role))(const struct heritage *h)
{
    if (role == ROLE_DISPATCHER)
        return b->dispatcher;
    return role == ROLE_ROUTER ? b->router : b->worker;
}

/* Workers only; a limit for machines where one worker must not eat all memory. */
static void limit_address_space(const struct config *c)
{
    const struct rlimit r = {(rlim_t)c->worker_address_space, (rlim_t)c->worker_address_space};

    if (c->worker_address_space > 0 && setrlimit(RLIMIT_AS, &r))
        log_warn(NULL, "--worker-address-space cannot be set, ignoring",
                 LOG_T("reason", strerror(errno)));
}

/* What is left of the way from fork to the role's main: signals, log, user, sandbox. Does not
 * return. */
RG_NORETURN static void be_child(struct supervisor *s, struct process *p, pid_t parent)
{
    struct heritage *h = &p->heritage;
    struct board_slot *slot = &s->board->slots[h->slot];
    struct err e;
    int rc;

    if (h->role == ROLE_WORKER)
        be_first_to_die();
    rc = user_become(s->config, &e);
    /* Follows the thread that forked: the supervisor has only one. Another user loses it. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    close_inherited(s, p);
    reset_signals();
    logs_setup(h->name, s->config, h->page);
    check_set_last_words(slot->last_words, sizeof(slot->last_words));
    if (rc) {
        child_failed(h, e.text);
        _exit(1);
    }
    if (h->role == ROLE_WORKER)
        limit_address_space(s->config);
    if (s->config->sandbox && sandbox_enter(h, &e))
        log_warn(NULL, "the sandbox is not complete, ignoring", LOG_T("reason", e.text));
    rc = body_of(s->bodies, h->role)(h);
    /* What the parent made and the child inherited: freed so that leak checks mean something. */
    for (unsigned i = 0; i < BOARD_SLOTS; i++)
        free(s->processes[i].adopted);
    vec_done(&s->deaths);
    local_executor_done(s);
    if (s->bodies->unload && s->model)
        s->bodies->unload(s->model);
    config_free(s->config);
    metrics_free(s->metrics);
    board_free(s->board);
    free(s);
    exit(rc);
}

/* --- in the supervisor --- */

/* The slot's listening socket, opened now if it was not yet. */
static int open_socket(struct supervisor *s, struct process *p, struct err *e)
{
    struct heritage *h = &p->heritage;

    if (h->role == ROLE_ROUTER) {
        if (listeners_router(&s->listeners, s->config, h->place, e))
            return -1;
        h->listen_fd = s->listeners.routers[h->place];
        h->n_also = s->listeners.n_also;
        memcpy(h->also, s->listeners.also, sizeof(h->also));
        return 0;
    }
    if (h->role == ROLE_DISPATCHER) {
        if (listeners_dispatcher(&s->listeners, s->config, e))
            return -1;
        h->listen_fd = s->listeners.dispatcher;
        return 0;
    }
    if (listeners_worker(&s->listeners, s->config, h->place, e))
        return -1;
    h->listen_fd = s->listeners.workers[h->place];
    return 0;
}

static void on_respawn(struct loop_timer *t);

static void try_later(struct supervisor *s, struct process *p, int64_t lived_ms)
{
    loop_timer_set(s->loop, &p->respawn, (uint64_t)process_backoff(&p->backoff_ms, lived_ms),
                   on_respawn);
}

/* A journal belongs to the worker of before an upgrade until that has ended: its own, and those
 * that it had adopted. */
static bool has_previous(const struct supervisor *s, unsigned slot)
{
    const struct heritage *h = &s->processes[slot].heritage;

    for (size_t i = 0; i < s->upgrade.previous.n && !is_router(slot); i++) {
        const struct previous *old = &s->upgrade.previous.at[i];

        if (old->slot == slot)
            return true;
        if (h->role != ROLE_WORKER)
            continue;
        if (old->places[h->place / 64] >> h->place % 64 & 1)
            return true;
        for (size_t k = 0; k < h->n_adopted; k++) {
            if (old->places[h->adopted[k].place / 64] >> h->adopted[k].place % 64 & 1)
                return true;
        }
    }
    return false;
}

/* On failure the slot is tried again later. */
void spawn_start(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];
    struct board_slot *board = &s->board->slots[slot];
    pid_t parent = getpid(), pid;
    int pair[2] = {-1, -1};
    struct err e;

    if (has_previous(s, slot))
        return; /* bury_previous starts it */
    set_state(s, slot, BOARD_STARTING);
    atomic_store_explicit(&board->beat_ms, 0, memory_order_relaxed);
    board->last_words[0] = 0;
    board_forget_works(s->board, slot);
    p->why[0] = 0;
    p->killed = false;
    if (open_socket(s, p, &e))
        goto fail;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) {
        err_sys(&e, ERR_IO, "socketpair");
        goto fail;
    }
    p->heritage.control_fd = pair[1];
    pid = fork();
    if (pid < 0) {
        err_sys(&e, ERR_IO, "fork");
        goto fail;
    }
    if (pid == 0) {
        close(pair[0]);
        be_child(s, p, parent);
    }
    close(pair[1]);
    p->pid = pid;
    p->control_fd = pair[0];
    p->started_ms = (int64_t)clock_ms();
    if (!p->first_ms)
        p->first_ms = p->started_ms;
    atomic_store_explicit(&board->pid, pid, memory_order_relaxed);
    return;
fail:
    if (pair[0] >= 0) {
        close(pair[0]);
        close(pair[1]);
    }
    log_error(NULL, "cannot start a process", LOG_T("process", p->heritage.name),
              LOG_T("reason", e.text));
    try_later(s, p, 0);
}

static struct supervisor *the_supervisor(struct process *p)
{
    return CONTAINER_OF(p - p->heritage.slot, struct supervisor, processes);
}

/* The pause after a death is over. */
static void on_respawn(struct loop_timer *t)
{
    struct process *p = CONTAINER_OF(t, struct process, respawn);
    struct supervisor *s = the_supervisor(p);

    if (p->wanted && !p->pid)
        spawn_start(s, p->heritage.slot);
}

/* More than --max-restarts within the window, this one included. */
static bool too_many_deaths(struct supervisor *s)
{
    int64_t now = (int64_t)clock_ms();
    size_t kept = 0;

    *vec_push(&s->deaths) = now;
    for (size_t i = 0; i < s->deaths.n; i++) {
        if (s->deaths.at[i] > now - s->config->restart_window_ms)
            s->deaths.at[kept++] = s->deaths.at[i];
    }
    s->deaths.n = kept;
    return (int64_t)kept > s->config->max_restarts;
}

/* One line per death: who, how, last words. */
static void write_obituary(struct supervisor *s, struct process *p, pid_t pid, int wait_status)
{
    struct board_slot *board = &s->board->slots[p->heritage.slot];
    char how[96], words[BOARD_WORDS_MAX];

    process_death(wait_status, how, sizeof(how));
    memcpy(words, board->last_words, sizeof(words));
    words[sizeof(words) - 1] = 0;
    words[strcspn(words, "\n")] = 0;
    log_error(NULL, "process died", LOG_T("process", p->heritage.name), LOG_I("died_pid", pid),
              LOG_T("how", how), LOG_T("last_words", p->why[0] ? p->why : words));
}

/* Decides what a death means: start failed, too many deaths, or a restart. */
static void after_crash(struct supervisor *s, struct process *p, pid_t pid, int wait_status)
{
    bool clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    bool from_outside = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL && !p->killed;
    bool of_a_request =
        suspects_take(&s->suspects, s->board, p->heritage.slot, from_outside, clock_ms());
    int64_t lived_ms = (int64_t)clock_ms() - p->started_ms;

    static const enum metric_label_ROLE roles[] = {[ROLE_ROUTER] = METRIC_ROLE_ROUTER,
                                                   [ROLE_WORKER] = METRIC_ROLE_WORKER,
                                                   [ROLE_DISPATCHER] = METRIC_ROLE_DISPATCHER};
    enum metric_label_ROLE role = roles[p->heritage.role];

    if (clean) /* somebody sent it a SIGTERM: it drained and ended as it should */
        log_warn(NULL, "process ended on a signal not sent by the supervisor, replacing it",
                 LOG_T("process", p->heritage.name), LOG_I("ended_pid", pid));
    else
        write_obituary(s, p, pid, wait_status);
    metrics_count_at(s->page, METRIC_restarts, role, 0, 1);
    if (s->phase == PHASE_STARTING && (p->why[0] || p->killed)) {
        supervisor_fail(s, p->heritage.name, p->why[0] ? p->why : "it did not report in time");
        return;
    }
    if (!clean && !of_a_request && too_many_deaths(s)) {
        upgrade_undo(s, "too many processes died");
        log_error(NULL, "too many processes died, giving up", LOG_U("deaths", s->deaths.n),
                  LOG_I("window_ms", s->config->restart_window_ms));
        supervisor_stop(s, 1);
        return;
    }
    set_state(s, p->heritage.slot, BOARD_STARTING);
    try_later(s, p, lived_ms);
}

/* A call that the sandbox refused is a bug of ours or an intruder's attempt. */
static void tell_refused(struct supervisor *s, unsigned slot)
{
    uint32_t call =
        atomic_exchange_explicit(&s->board->slots[slot].refused_call, 0, memory_order_relaxed);
    char name[64];

    if (call == 0)
        return;
    sandbox_call_name((int)call - 1, name, sizeof(name));
    log_error(NULL, "the sandbox refused a system call",
              LOG_T("process", s->processes[slot].heritage.name), LOG_T("call", name));
}

/* The board and metrics forget the process; then by phase: replaced, or gone. */
static void bury(struct supervisor *s, unsigned slot, pid_t pid, int wait_status)
{
    struct process *p = &s->processes[slot];
    bool clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;

    p->pid = 0;
    close(p->control_fd);
    p->control_fd = -1;
    atomic_store_explicit(&s->board->slots[slot].pid, 0, memory_order_relaxed);
    atomic_store_explicit(&s->board->slots[slot].engines_up, 0, memory_order_relaxed);
    board_forget_engines(s->board, slot);
    metrics_reset_gauges(p->heritage.page);
    tell_refused(s, slot);
    spawn_take_reports(s); /* what it said before it died */
    if (s->phase >= PHASE_ROUTERS) {
        if (!clean && s->phase != PHASE_KILLED)
            write_obituary(s, p, pid, wait_status);
        set_state(s, slot, BOARD_EMPTY);
    } else if (p->wanted) {
        after_crash(s, p, pid, wait_status);
    } else {
        if (!clean)
            write_obituary(s, p, pid, wait_status);
        set_state(s, slot, BOARD_EMPTY);
        if (p->heritage.role != ROLE_DISPATCHER)
            reload_give_place(s, slot);
    }
}

/* Starts the workers that waited for one of before the upgrade. */
static void start_waiting(struct supervisor *s)
{
    for (unsigned slot = BOARD_WORKER0; slot < BOARD_SLOTS; slot++) { /* and the dispatcher */
        struct process *p = &s->processes[slot];

        if (p->wanted && !p->pid && !loop_timer_active(&p->respawn))
            spawn_start(s, slot); /* or goes on waiting for another one */
    }
}

/* A child of the binary before an upgrade has ended; who waited for its journal may start. */
static void bury_previous(struct supervisor *s, pid_t pid)
{
    for (size_t i = 0; i < s->upgrade.previous.n; i++) {
        struct previous old = s->upgrade.previous.at[i];

        if (old.pid != pid)
            continue;
        close(old.control_fd);
        s->upgrade.previous.at[i] = s->upgrade.previous.at[--s->upgrade.previous.n];
        if (s->phase <= PHASE_SERVING)
            start_waiting(s);
        return;
    }
}

/* Takes all deaths that have happened. */
void spawn_reap(struct supervisor *s)
{
    int wait_status;
    pid_t pid;

    /* Several deaths may have come as one signal. */
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == s->upgrade.trial.pid) {
            upgrade_go_on(s, wait_status);
            continue;
        }
        if (local_executor_bury(s, pid, wait_status))
            continue;
        bury_previous(s, pid);
        for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
            if (s->processes[slot].pid == pid) {
                bury(s, slot, pid, wait_status);
                break;
            }
        }
    }
    supervisor_advance(s);
}

/* Reports name the slot and the pid; one from a process that died meanwhile is ignored. */
static void take_report(struct supervisor *s, const struct status *r)
{
    struct process *p;

    if (r->slot < BOARD_ROUTER0 || r->slot >= BOARD_SLOTS)
        return;
    p = &s->processes[r->slot];
    switch ((enum status_kind)r->kind) {
    case STATUS_READY:
        if (p->pid != r->pid || get_state(s, r->slot) != BOARD_STARTING)
            return; /* from a process that has died meanwhile */
        set_state(s, r->slot, p->wanted ? BOARD_READY : BOARD_RETIRING);
        log_info(NULL, "process serves", LOG_T("process", p->heritage.name),
                 LOG_I("ready_pid", r->pid), LOG_I("start_ms", (int64_t)clock_ms() - p->started_ms),
                 LOG_T("remark", r->text));
        break;
    case STATUS_FAILED:
        (void)snprintf(p->why, sizeof(p->why), "%s", r->text);
        break;
    case STATUS_ADOPTED:
        log_info(NULL, "sessions adopted", LOG_T("process", p->heritage.name),
                 LOG_U("from_index", s->board->worker_base + r->value));
        break;
    }
}

void spawn_take_reports(struct supervisor *s)
{
    struct status r;

    while (status_receive(s->status_fds[0], &r) > 0)
        take_report(s, &r);
}

static void end_stuck(struct process *p, const char *what, int64_t for_ms)
{
    log_error(NULL, what, LOG_T("process", p->heritage.name), LOG_I("stuck_pid", p->pid),
              LOG_I("for_ms", for_ms));
    p->killed = true;
    (void)kill(p->pid, SIGKILL);
}

/* A child that dies again and again and never reports. (One that lives and does not is ended by
 * spawn_check.) */
static void check_start(struct supervisor *s, struct process *p, int64_t now)
{
    if (s->phase != PHASE_STARTING || !p->wanted || p->pid || !p->first_ms ||
        now - p->first_ms <= s->config->start_timeout_ms)
        return;
    supervisor_fail(s, p->heritage.name, "it died again and again and never reported");
}

/* Every tick. */
void spawn_check(struct supervisor *s)
{
    int64_t now = (int64_t)clock_ms();

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct process *p = &s->processes[slot];
        int64_t beat;

        tell_refused(s, slot);
        check_start(s, p, now);
        if (!p->pid || p->killed)
            continue;
        beat = (int64_t)atomic_load_explicit(&s->board->slots[slot].beat_ms, memory_order_relaxed);
        if (get_state(s, slot) == BOARD_STARTING && p->wanted) {
            if (now - p->started_ms > s->config->start_timeout_ms)
                end_stuck(p, "process does not report", now - p->started_ms);
        } else if (beat && s->config->hang_timeout_ms && now - beat > s->config->hang_timeout_ms) {
            end_stuck(p, "process is stuck", now - beat);
        }
    }
}

/* To all children of a role (-1: of any), those of before an upgrade included; how many there
 * are. Signal 0 only counts. */
unsigned spawn_signal(struct supervisor *s, int role, int signo)
{
    unsigned n = 0;

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct process *p = &s->processes[slot];

        if (!p->pid || (role >= 0 && (int)p->heritage.role != role))
            continue;
        n++;
        if (signo)
            (void)kill(p->pid, signo);
    }
    for (size_t i = 0; i < s->upgrade.previous.n; i++) {
        if (role >= 0 && (int)role_of(s->upgrade.previous.at[i].slot) != role)
            continue;
        n++;
        if (signo)
            (void)kill(s->upgrade.previous.at[i].pid, signo);
    }
    return n;
}
