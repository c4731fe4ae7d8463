/* SIGHUP: the settings are read again, checked, applied and told to the children, and the number
 * of routers and workers is brought to what they say.
 *
 * Scaling down never loses a session: a place (a worker index with its socket and journal, or a
 * router's socket) is given to another process of the role, which adopts it. The supervisor
 * notes who has which place (adopter), so that successors inherit it. Journals that are found at
 * the start beyond the number of workers are given away in the same manner. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/keys.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "common/proc/status.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

extern char **environ;

static struct process *worker_at(struct supervisor *s, unsigned place)
{
    return &s->processes[BOARD_WORKER0 + place];
}

/* --- places: who serves which --- */

/* The process of the role that stays and has the fewest places so far; NULL when none stays. */
static struct process *choose_adopter(struct supervisor *s, enum heritage_role role)
{
    struct process *best = NULL;

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct process *p = &s->processes[slot];

        if (p->wanted && p->heritage.role == role &&
            (!best || p->heritage.n_adopted < best->heritage.n_adopted))
            best = p;
    }
    return best;
}

/* From now on `to` serves the place: its successors inherit it, the living process is told. */
static void give(struct supervisor *s, struct process *to, unsigned place)
{
    bool router = to->heritage.role == ROLE_ROUTER;
    struct heritage_place given = {.place = place,
                                   .index = router ? place : s->board->worker_base + place,
                                   .listen_fd = router ? s->listeners.routers[place]
                                                       : s->listeners.workers[place]};
    struct order order = {.kind = ORDER_ADOPT, .place = place};
    struct err e;

    if (place == to->heritage.place || !process_add_place(to, &given))
        return;
    if (!router)
        atomic_store_explicit(&s->board->slots[BOARD_WORKER0 + place].adopter,
                              1 + to->heritage.place, memory_order_relaxed);
    log_info(NULL, "place handed over", LOG_T("kind", router ? "router" : "worker"),
             LOG_U("index", given.index), LOG_T("to", to->heritage.name));
    /* A process that cannot take the order is about to be replaced by one that inherits the place.
     */
    if (to->pid && order_send(to->control_fd, &order, given.listen_fd, &e)) {
        log_warn(NULL, "order not taken, replacing the process",
                 LOG_T("process", to->heritage.name), LOG_T("reason", e.text));
        (void)kill(to->pid, SIGKILL);
    }
}

/* Gives a process's own place and those that it had adopted to one other process. */
static void give_all(struct supervisor *s, struct process *from)
{
    struct process *to = choose_adopter(s, from->heritage.role);

    if (!to)
        return;
    give(s, to, from->heritage.place);
    for (size_t i = 0; i < from->heritage.n_adopted; i++)
        give(s, to, from->heritage.adopted[i].place);
}

/* After a retired worker has ended: its journal is closed now. */
void reload_give_place(struct supervisor *s, unsigned slot)
{
    struct process *from = &s->processes[slot];

    if (from->heritage.role == ROLE_WORKER)
        give_all(s, from);
    process_done(from);
}

/* "worker-12" -> place 12 - base; -1 when the name is something else or beyond our range. */
static int place_of_folder(const struct supervisor *s, const char *name)
{
    static const struct str head = STR_LIT("worker-");
    struct str text = str_cstr(name);
    uint64_t index;

    if (!str_starts(text, head) || str_to_u64(str_sub(text, head.len, SIZE_MAX), 999999, &index))
        return -1;
    if (index < s->board->worker_base || index - s->board->worker_base >= BOARD_WORKERS_MAX)
        return -1;
    return (int)(index - s->board->worker_base);
}

/* Folders of journals that no wanted worker has. */
int reload_adopt_leftovers(struct supervisor *s, struct err *e)
{
    DIR *d = opendir(s->config->state_dir);
    struct dirent *entry;
    int rc = 0;

    while (d && rc == 0 && (entry = readdir(d))) {
        int place = place_of_folder(s, entry->d_name);

        if (place < 0 || worker_at(s, (unsigned)place)->wanted)
            continue;
        rc = listeners_worker(&s->listeners, s->config, (unsigned)place, e);
        if (rc == 0)
            give(s, choose_adopter(s, ROLE_WORKER), (unsigned)place);
    }
    if (d)
        (void)closedir(d);
    return rc;
}

/* More given sockets than routers: the others are served by those that run. */
int reload_serve_given(struct supervisor *s, struct err *e)
{
    for (unsigned i = (unsigned)s->config->routers; i < s->listeners.n_given; i++) {
        if (listeners_router(&s->listeners, s->config, i, e))
            return -1;
        give(s, choose_adopter(s, ROLE_ROUTER), i);
    }
    return 0;
}

/* --- scaling --- */

/* Asks a process to end and not to be replaced. */
static void retire(struct supervisor *s, unsigned slot)
{
    struct process *p = &s->processes[slot];

    p->wanted = false;
    loop_timer_stop(s->loop, &p->respawn);
    atomic_store_explicit(&s->board->slots[slot].state, BOARD_RETIRING, memory_order_relaxed);
    log_info(NULL, "process retires", LOG_T("process", p->heritage.name));
    /* A router's socket stays in the SO_REUSEPORT group, because leaving it would lose what the
     * kernel queues there at that moment: another router accepts on it from now on. A worker's goes
     * on when its journal is closed. */
    if (p->heritage.role == ROLE_ROUTER)
        give_all(s, p);
    if (p->pid) {
        (void)kill(p->pid, SIGTERM);
    } else {
        atomic_store_explicit(&s->board->slots[slot].state, BOARD_EMPTY, memory_order_relaxed);
        reload_give_place(s, slot);
    }
}

/* Processes of n slots that are to run. */
static unsigned count_wanted(const struct supervisor *s, unsigned first, unsigned n)
{
    unsigned wanted = 0;

    for (unsigned i = 0; i < n; i++)
        wanted += s->processes[first + i].wanted;
    return wanted;
}

/* Places that were given away are not used again while we run: their sessions live elsewhere. */
static bool is_free(struct supervisor *s, unsigned slot)
{
    return !s->processes[slot].wanted && !s->processes[slot].pid &&
           atomic_load_explicit(&s->board->slots[slot].adopter, memory_order_relaxed) == 0;
}

/* Starts or retires until `target` processes are wanted; the highest places retire first. */
static void scale(struct supervisor *s, unsigned first, unsigned n, unsigned target)
{
    unsigned wanted = count_wanted(s, first, n);

    for (unsigned i = 0; i < n && wanted < target; i++) {
        if (is_free(s, first + i)) {
            spawn_prepare(s, first + i);
            spawn_start(s, first + i);
            wanted++;
        }
    }
    if (wanted < target)
        log_warn(NULL, "no place is left for more processes, ignoring", LOG_U("wanted", target));
    for (unsigned i = n; i-- > 0 && wanted > target;) {
        if (s->processes[first + i].wanted) {
            retire(s, first + i);
            wanted--;
        }
    }
}

/* --- SIGHUP --- */

/* One line in the log for each. */
static void tell_mistakes(const struct buf *mistakes)
{
    struct str rest = buf_str(mistakes);

    while (rest.len) {
        size_t end = str_find(rest, STR("\n"), 0);

        log_error(NULL, "configuration not reloaded", LOG_S("mistake", str_sub(rest, 0, end)));
        rest = end == SIZE_MAX ? str_of("", 0) : str_sub(rest, end + 1, SIZE_MAX);
    }
}

/* Children read the shared settings again when they are told. */
static void tell_children(struct supervisor *s)
{
    struct order order = {.kind = ORDER_RELOAD};

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct err e;

        if (s->processes[slot].pid && order_send(s->processes[slot].control_fd, &order, -1, &e))
            log_warn(NULL, "reload order not taken, ignoring",
                     LOG_T("process", s->processes[slot].heritage.name), LOG_T("reason", e.text));
    }
}

/* A reload may change keys, never take them away: the port may be reachable from anywhere. */
static void check_keys(const struct config *old, const struct config *fresh, struct buf *mistakes)
{
    struct keys *keys = NULL;
    struct err e;

    if (old->admin_key_file && !fresh->admin_key_file)
        buf_puts(mistakes, "admin-key-file: keys cannot be switched off while the service runs\n");
    if (keys_load(fresh->admin_key_file, fresh->key_secret_file, fresh->state_dir, &keys, &e))
        buf_printf(mistakes, "%s\n", e.text);
    keys_free(keys);
}

/* NULL when anything is wrong: then nothing at all changes. */
static struct config *load_fresh(struct supervisor *s, struct buf *mistakes)
{
    struct config *fresh = config_load_again(s->config, mistakes);

    if (fresh && s->config->upstream.n == 0)
        check_keys(s->config, fresh, mistakes);
    if (fresh && s->bodies->check)
        s->bodies->check(fresh, mistakes);
    if (mistakes->len == 0)
        return fresh;
    config_free(fresh);
    return NULL;
}

/* See the head of this file. Settings that need a restart are named and left as they were. */
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
        supervisor_tell_limits(s);
        atomic_store(&s->board->routers, (uint32_t)s->config->routers);
        atomic_fetch_add(&s->board->generation, 1);
        tell_children(s);
        scale(s, BOARD_ROUTER0, BOARD_ROUTERS_MAX, (unsigned)s->config->routers);
        if (s->config->upstream.n == 0) {
            atomic_store(&s->board->workers, (uint32_t)s->config->workers);
            scale(s, BOARD_WORKER0, BOARD_WORKERS_MAX, (unsigned)s->config->workers);
        }
        local_executor_signal(s, SIGHUP);
        metrics_count(s->page, METRIC_reloads, 1);
        log_info(NULL, "configuration reloaded", LOG_I("workers", s->config->workers),
                 LOG_I("routers", s->config->routers));
    }
    (void)sd_notify(0, "READY=1");
    config_free(fresh);
    buf_done(&mistakes);
    buf_done(&fixed);
}
