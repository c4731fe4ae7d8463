/* Forks the children.
 *
 *   spawn_prepare   describes the slot: role, place, name, heritage
 *   spawn_start     socket, control socket, fork; the child continues in child_body.c
 *
 * Their reports and their ends: reap.c. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

static const unsigned first_slots[] = {[ROLE_ROUTER] = BOARD_ROUTER0,
                                       [ROLE_WORKER] = BOARD_WORKER0,
                                       [ROLE_DISPATCHER] = BOARD_DISPATCHER,
                                       [ROLE_KEEPER] = BOARD_KEEPER};

static enum heritage_role role_of(unsigned slot)
{
    if (slot >= BOARD_DISPATCHER)
        return slot == BOARD_KEEPER ? ROLE_KEEPER : ROLE_DISPATCHER;
    return slot < BOARD_WORKER0 ? ROLE_ROUTER : ROLE_WORKER;
}

static bool is_router(unsigned slot)
{
    return role_of(slot) == ROLE_ROUTER;
}

void spawn_set_state(struct supervisor *s, unsigned slot, enum board_state state)
{
    atomic_store_explicit(&s->board->slots[slot].state, state, memory_order_relaxed);
}

enum board_state spawn_state(const struct supervisor *s, unsigned slot)
{
    return (enum board_state)atomic_load_explicit(&s->board->slots[slot].state,
                                                  memory_order_relaxed);
}

/* Fills in the slot. Starts nothing. */
void spawn_prepare(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];
    struct heritage *h = &p->heritage;

    h->role = role_of(slot);
    h->place = slot - first_slots[h->role];
    h->index = h->role == ROLE_WORKER ? board_index(s->board, h->place) : h->place;
    h->slot = slot;
    if (h->role == ROLE_DISPATCHER)
        (void)snprintf(h->name, sizeof(h->name), "dispatcher");
    else if (h->role == ROLE_KEEPER)
        (void)snprintf(h->name, sizeof(h->name), "keeper");
    else
        (void)snprintf(h->name, sizeof(h->name), "%s-%u", is_router(slot) ? "router" : "worker",
                       h->index);
    h->config = s->config;
    h->board = s->board;
    h->metrics = s->metrics;
    h->page = metrics_page(s->metrics, slot, h->name);
    h->model = h->role == ROLE_WORKER ? s->model : NULL;
    h->fleet = s->fleet;
    if (h->role == ROLE_KEEPER && s->bodies->describe)
        s->bodies->describe(s->model, &h->build);
    h->upgraded = s->upgrade.previous.n > 0;
    h->port_kept = s->listeners.kept;
    h->status_fd = s->status_fds[1];
    h->run_dir = s->config->run_dir;
    h->state_dir = s->config->state_dir;
    p->control_fd = -1;
    p->backoff_ms = p->first_ms = 0;
    p->deaths = 0;
    p->wanted = true;
    spawn_set_state(s, slot, BOARD_STARTING);
}

/* Opens the slot's listening socket, unless it is open. */
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
    if (h->role == ROLE_KEEPER) {
        h->listen_fd = -1; /* it serves nobody */
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

void spawn_later(struct supervisor *s, struct process *p, int64_t lived_ms)
{
    loop_timer_set(s->loop, &p->respawn, (uint64_t)process_backoff(&p->backoff_ms, lived_ms),
                   on_respawn);
}

/* Reports whether a worker of the binary before an upgrade still has the journal of the slot, as
 * its own or adopted. The slot cannot start until that worker has ended. */
static bool has_previous(const struct supervisor *s, unsigned slot)
{
    const struct heritage *h = &s->processes[slot].heritage;

    if (is_router(slot) || h->role == ROLE_KEEPER)
        return false;
    for (size_t i = 0; i < s->upgrade.previous.n; i++) {
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

/* If the start fails, it is tried again later. */
void spawn_start(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];
    struct board_slot *board = &s->board->slots[slot];
    pid_t parent = getpid(), pid;
    int pair[2] = {-1, -1};
    struct err e;

    if (has_previous(s, slot))
        return; /* bury_previous starts the slot later */
    spawn_set_state(s, slot, BOARD_STARTING);
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
        spawn_be_child(s, p, parent);
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
    spawn_later(s, p, 0);
}

static struct supervisor *the_supervisor(struct process *p)
{
    return CONTAINER_OF(p - p->heritage.slot, struct supervisor, processes);
}

/* Starts the process again after the pause. */
static void on_respawn(struct loop_timer *t)
{
    struct process *p = CONTAINER_OF(t, struct process, respawn);
    struct supervisor *s = the_supervisor(p);

    if (p->wanted && !p->pid)
        spawn_start(s, p->heritage.slot);
}

/* Sends a signal to all children of a role (-1: any), including those of the binary before an
 * upgrade. Returns their number. Signal 0 only counts. */
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
