/* Living children: their reports, stuck processes, and the consequences of a death.
 *
 *   apply_report   ready, failed, adopted (over the status pipe)
 *   reap_stuck     kills processes without a report or a heartbeat
 *   reap_all       a death: bury -> after_crash -> a restart later, or the end
 *
 * Deaths that a request is suspected of (suspects.c) do not count for --max-restarts, so that one
 * poisonous request cannot end the service. */

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "common/proc/status.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/suspects.h"

/* Reports whether there were more than --max-restarts deaths within the window, this one included.
 */
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

/* Logs one line for a death: process, cause, last words. */
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
        suspects_add_death(s->suspects, s->board, p->heritage.slot, from_outside, clock_ms());
    int64_t lived_ms = (int64_t)clock_ms() - p->started_ms;

    static const enum metric_label_ROLE roles[] = {[ROLE_ROUTER] = METRIC_ROLE_ROUTER,
                                                   [ROLE_WORKER] = METRIC_ROLE_WORKER,
                                                   [ROLE_DISPATCHER] = METRIC_ROLE_DISPATCHER,
                                                   [ROLE_KEEPER] = METRIC_ROLE_KEEPER};
    enum metric_label_ROLE role = roles[p->heritage.role];

    if (clean) /* a SIGTERM from outside: it drained and ended in order */
        log_warn(NULL, "process ended on a signal not sent by the supervisor, replacing it",
                 LOG_T("process", p->heritage.name), LOG_I("ended_pid", pid));
    else
        write_obituary(s, p, pid, wait_status);
    metrics_count_at(s->page, METRIC_restarts, role, 0, 1);
    if (s->phase == PHASE_STARTING && (p->why[0] || p->killed) && !process_is_foreign(p)) {
        supervisor_fail(s, p->heritage.name, p->why[0] ? p->why : "it did not report in time");
        return;
    }
    if (!clean && !of_a_request && !process_is_foreign(p) && too_many_deaths(s)) {
        upgrade_undo(s, "too many processes died");
        log_error(NULL, "too many processes died, giving up", LOG_U("deaths", s->deaths.n),
                  LOG_I("window_ms", s->config->restart_window_ms));
        supervisor_stop(s, 1);
        return;
    }
    p->deaths = clean || lived_ms >= BACKOFF_RESET_MS ? 0 : p->deaths + 1;
    if (s->fleet && (process_is_foreign(p) || p->heritage.role == ROLE_DISPATCHER) &&
        fleet_places_abandon_failed(s, p))
        return;
    spawn_set_state(s, p->heritage.slot, BOARD_STARTING);
    spawn_later(s, p, lived_ms);
}

/* Logs a system call that the sandbox refused: a bug of ours or an intruder's attempt. */
static void log_refused(struct supervisor *s, unsigned slot)
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

/* Handles a death: clears the process on the board and in the metrics. Then, depending on the
 * phase, the process is replaced or its slot becomes empty. */
static void remove_dead(struct supervisor *s, unsigned slot, pid_t pid, int wait_status)
{
    struct process *p = &s->processes[slot];
    bool clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;

    p->pid = 0;
    close(p->control_fd);
    p->control_fd = -1;
    atomic_store_explicit(&s->board->slots[slot].pid, 0, memory_order_relaxed);
    atomic_store_explicit(&s->board->slots[slot].engines_up, 0, memory_order_relaxed);
    board_forget_engines(s->board, slot);
    if (!clean)
        atomic_store(&s->board->slots[slot].died_ms, clock_wall_ms());
    if (slot == BOARD_DISPATCHER)
        atomic_store(&s->board->unreached, 0);
    metrics_reset_gauges(p->heritage.page);
    log_refused(s, slot);
    reap_read_reports(s); /* reports that the process wrote before its death */
    if (s->phase >= PHASE_ROUTERS) {
        if (!clean && s->phase != PHASE_KILLED)
            write_obituary(s, p, pid, wait_status);
        spawn_set_state(s, slot, BOARD_EMPTY);
    } else if (p->wanted) {
        after_crash(s, p, pid, wait_status);
    } else {
        if (!clean)
            write_obituary(s, p, pid, wait_status);
        spawn_set_state(s, slot, BOARD_EMPTY);
        if (p->heritage.role == ROLE_ROUTER || p->heritage.role == ROLE_WORKER)
            adoption_pass_slot(s, slot);
        if (slot == BOARD_DISPATCHER && s->fleet)
            fleet_places_forget_dispatcher(s);
    }
}

/* Starts the workers that waited for a process of the binary before an upgrade. */
static void start_waiting(struct supervisor *s)
{
    for (unsigned slot = BOARD_WORKER0; slot < BOARD_SLOTS; slot++) { /* includes the dispatcher */
        struct process *p = &s->processes[slot];

        if (p->wanted && !p->pid && !loop_timer_active(&p->respawn))
            spawn_start(s, slot); /* does nothing if the slot still waits for a different process */
    }
}

/* Handles the end of a child of the binary before an upgrade. A process that waited for its journal
 * may start. */
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

void reap_all(struct supervisor *s)
{
    int wait_status;
    pid_t pid;

    /* One signal may stand for several deaths. */
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        if (pid == s->upgrade.trial.pid) {
            upgrade_continue(s, wait_status);
            continue;
        }
        if (local_executor_bury(s, pid, wait_status) || tls_front_bury(s, pid, wait_status))
            continue;
        bury_previous(s, pid);
        for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
            if (s->processes[slot].pid == pid) {
                remove_dead(s, slot, pid, wait_status);
                break;
            }
        }
    }
    supervisor_advance(s);
}

/* Handles a report, which has slot and pid. A report of a process that has died meanwhile is
 * ignored. */
static void apply_report(struct supervisor *s, const struct status *r)
{
    struct process *p;

    if (r->slot < BOARD_ROUTER0 || r->slot >= BOARD_SLOTS)
        return;
    p = &s->processes[r->slot];
    switch ((enum status_kind)r->kind) {
    case STATUS_READY:
        if (p->pid != r->pid || spawn_state(s, r->slot) != BOARD_STARTING)
            return; /* the reporting process has died meanwhile */
        spawn_set_state(s, r->slot, p->wanted ? BOARD_READY : BOARD_RETIRING);
        log_info(NULL, "process serves", LOG_T("process", p->heritage.name),
                 LOG_I("ready_pid", r->pid), LOG_I("start_ms", (int64_t)clock_ms() - p->started_ms),
                 LOG_T("remark", r->text));
        break;
    case STATUS_FAILED:
        (void)snprintf(p->why, sizeof(p->why), "%s", r->text);
        break;
    case STATUS_ADOPTED:
        log_info(NULL, "sessions adopted", LOG_T("process", p->heritage.name),
                 LOG_U("from_index", board_index(s->board, r->value)));
        break;
    }
}

void reap_read_reports(struct supervisor *s)
{
    struct status r;

    while (status_receive(s->status_fds[0], &r) > 0)
        apply_report(s, &r);
}

static void end_stuck(struct process *p, const char *what, int64_t for_ms)
{
    log_error(NULL, what, LOG_T("process", p->heritage.name), LOG_I("stuck_pid", p->pid),
              LOG_I("for_ms", for_ms));
    p->killed = true;
    (void)kill(p->pid, SIGKILL);
}

/* Fails the start if a child dies again and again without a report. (reap_stuck ends a child that
 * lives without a report.) */
static void check_start(struct supervisor *s, struct process *p, int64_t now)
{
    if (s->phase != PHASE_STARTING || !p->wanted || p->pid || !p->first_ms ||
        process_is_foreign(p) || now - p->first_ms <= s->config->start_timeout_ms)
        return;
    supervisor_fail(s, p->heritage.name, "it died again and again and never reported");
}

void reap_stuck(struct supervisor *s)
{
    int64_t now = (int64_t)clock_ms();

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct process *p = &s->processes[slot];
        int64_t beat;

        log_refused(s, slot);
        check_start(s, p, now);
        if (!p->pid || p->killed)
            continue;
        beat = (int64_t)atomic_load_explicit(&s->board->slots[slot].beat_ms, memory_order_relaxed);
        if (spawn_state(s, slot) == BOARD_STARTING && p->wanted) {
            if (now - p->started_ms > s->config->start_timeout_ms)
                end_stuck(p, "process does not report", now - p->started_ms);
        } else if (beat && s->config->hang_timeout_ms && now - beat > s->config->hang_timeout_ms) {
            end_stuck(p, "process is stuck", now - beat);
        }
    }
}
