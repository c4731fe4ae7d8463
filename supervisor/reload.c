/* SIGHUP: the settings are read again, checked, applied and announced to the children. Then the
 * numbers of routers and workers are adjusted to them.
 *
 * Scaling down never loses a session: other processes adopt the places (adoption.c). */

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "common/proc/status.h"
#include "supervisor/fleet_settings.h"
#include "supervisor/key_files.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

extern char **environ;

/* --- scaling --- */

void reload_retire(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];

    p->wanted = false;
    loop_timer_stop(s->loop, &p->respawn);
    atomic_store_explicit(&s->board->slots[slot].state, BOARD_RETIRING, memory_order_relaxed);
    log_info(NULL, "process retires", LOG_T("process", p->heritage.name));
    /* A router's socket stays in the SO_REUSEPORT group, because leaving it would lose connections
     * that the kernel queues there at that moment. A different router accepts on it from now on. A
     * worker's place is adopted when the worker's journal is closed. */
    if (p->heritage.role == ROLE_ROUTER)
        adoption_pass_all(s, p);
    if (p->pid) {
        (void)kill(p->pid, SIGTERM);
    } else {
        atomic_store_explicit(&s->board->slots[slot].state, BOARD_EMPTY, memory_order_relaxed);
        adoption_pass_slot(s, slot);
    }
}

/* Reports whether scaling is about the slot: workers of other nodes' places do not count. */
static bool is_scaled(const struct supervisor *s, unsigned slot)
{
    return slot < BOARD_WORKER0 || !board_is_foreign(s->board, slot - BOARD_WORKER0);
}

/* Counts the wanted processes of n slots. */
static unsigned count_wanted(const struct supervisor *s, unsigned first, unsigned n)
{
    unsigned wanted = 0;

    for (unsigned i = 0; i < n; i++)
        wanted += s->processes[first + i].wanted && is_scaled(s, first + i);
    return wanted;
}

/* Reports whether a new process can use the slot. Adopted places are not used again while we run,
 * because their sessions are served by their adopters. */
static bool is_free(struct supervisor *s, unsigned slot)
{
    uint32_t place = slot - BOARD_WORKER0;

    if (slot >= BOARD_WORKER0 &&
        (board_place(s->board, s->board->worker_base + place) != (int)place ||
         fleet_places_is_taken(s, s->board->worker_base + place)))
        return false; /* other nodes, or other slots, have the index */
    return !s->processes[slot].wanted && !s->processes[slot].pid &&
           atomic_load_explicit(&s->board->slots[slot].adopter, memory_order_relaxed) == 0;
}

/* Starts or retires until `target` processes are wanted; the highest places retire first. */
static void scale_role(struct supervisor *s, unsigned first, unsigned n, unsigned target)
{
    unsigned wanted = count_wanted(s, first, n);

    for (unsigned i = 0; i < n && wanted < target; i++) {
        if (is_free(s, first + i)) {
            if (first == BOARD_WORKER0)
                fleet_places_put_vacant(s, s->board->worker_base + i);
            spawn_prepare(s, first + i);
            spawn_start(s, first + i);
            wanted++;
        }
    }
    if (wanted < target)
        log_warn(NULL, "no place is left for more processes, ignoring", LOG_U("wanted", target));
    for (unsigned i = n; i-- > 0 && wanted > target;) {
        if (s->processes[first + i].wanted && is_scaled(s, first + i)) {
            reload_retire(s, first + i);
            wanted--;
        }
    }
}

void reload_scale_workers(struct supervisor *s)
{
    scale_role(s, BOARD_WORKER0, BOARD_WORKERS_MAX, (unsigned)s->config->workers);
}

/* --- SIGHUP --- */

/* Logs one line for each mistake. */
static void tell_mistakes(const struct buf *mistakes)
{
    struct str rest = buf_str(mistakes);

    while (rest.len)
        log_error(NULL, "configuration not reloaded", LOG_S("mistake", str_cut(&rest, '\n')));
}

/* Asks the children to read the shared settings again. */
static void notify_children(struct supervisor *s)
{
    struct order order = {.kind = ORDER_RELOAD};

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct err e;

        if (s->processes[slot].pid && order_send(s->processes[slot].control_fd, &order, -1, &e))
            log_warn(NULL, "reload order not taken, ignoring",
                     LOG_T("process", s->processes[slot].heritage.name), LOG_T("reason", e.text));
    }
}

/* Loads and checks the new settings. Returns NULL if anything is wrong; then nothing changes. */
static struct config *load_fresh(struct supervisor *s, struct buf *mistakes)
{
    struct config *fresh = config_load_again(s->config, mistakes);

    if (fresh)
        fleet_settings_keep(s->config, fresh, mistakes);
    if (fresh && s->config->upstream.n == 0)
        key_files_check_change(s->config, fresh, mistakes);
    if (fresh && s->bodies->check)
        s->bodies->check(fresh, mistakes);
    if (mistakes->len == 0)
        return fresh;
    config_free(fresh);
    return NULL;
}

/* See the head of this file. Settings that need a restart are named and not changed. */
void reload_config(struct supervisor *s)
{
    struct buf mistakes = {0}, fixed = {0};
    struct config *fresh = load_fresh(s, &mistakes);

    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)clock_us());
    if (!fresh) {
        tell_mistakes(&mistakes);
    } else {
        config_unreloadable(s->config, fresh, &fixed);
        if (fixed.len)
            log_warn(NULL, "settings that need a restart have changed, ignoring",
                     LOG_S("settings", buf_str(&fixed)));
        config_apply(s->config, fresh);
        logs_setup("supervisor", s->config, s->page);
        supervisor_publish_limits(s);
        atomic_store(&s->board->routers, (uint32_t)s->config->routers);
        atomic_fetch_add(&s->board->generation, 1);
        notify_children(s);
        scale_role(s, BOARD_ROUTER0, BOARD_ROUTERS_MAX, (unsigned)s->config->routers);
        if (s->config->upstream.n == 0) {
            atomic_store(&s->board->workers, (uint32_t)s->config->workers);
            reload_scale_workers(s);
        }
        local_executor_signal(s, SIGHUP);
        tls_front_reload(s);
        metrics_count(s->page, METRIC_reloads, 1);
        log_info(NULL, "configuration reloaded", LOG_I("workers", s->config->workers),
                 LOG_I("routers", s->config->routers));
    }
    (void)sd_notify(0, "READY=1");
    config_free(fresh);
    buf_done(&mistakes);
    buf_done(&fixed);
}
