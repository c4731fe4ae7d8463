/* The supervisor's start: board, metrics, model, and the first children. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/os/file_lock.h"
#include "common/os/process_title.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

/* Raises the soft limit of descriptors, which is a default for programs that use select(), to the
 * hard limit. Returns the limit. */
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

/* Makes a random name of this run, which distinguishes metrics and logs of restarts. */
static int make_instance(struct supervisor *s, struct err *e)
{
    struct ids *ids = ids_new(e);

    if (!ids)
        return -1;
    ids_hex(ids, s->board->instance, 16);
    ids_free(ids);
    return 0;
}

/* Fills the slots of workers with the given upstreams, which always count as ready. */
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
    if (s->fleet)
        fleet_places_want_block(s);
    for (unsigned i = 0; !s->fleet && i < (unsigned)s->config->workers; i++)
        spawn_prepare(s, BOARD_WORKER0 + i);
    if (s->config->dispatcher && s->bodies->dispatcher && !s->fleet)
        spawn_prepare(s, BOARD_DISPATCHER);
}

/* Children of the binary before an upgrade. */
static void end_previous(struct supervisor *s)
{
    for (size_t i = 0; i < s->upgrade.previous.n; i++)
        (void)kill(s->upgrade.previous.at[i].pid, SIGTERM);
}

int supervisor_start_children(struct supervisor *s, struct err *e)
{
    s->joined = true;
    if (s->fleet && fleet_places_take_block(s, e))
        return -1;
    want_children(s);
    if (adoption_serve_given(s, e))
        return -1;
    if (s->config->durability != DURABILITY_NONE && s->config->upstream.n == 0 &&
        adoption_assign_leftovers(s, e))
        return -1;
    if (s->fleet)
        fleet_places_want(s);
    end_previous(s);
    for (unsigned slot = BOARD_SLOTS; slot-- > BOARD_ROUTER0;) { /* workers before routers */
        if (s->processes[slot].wanted && slot != BOARD_KEEPER)
            spawn_start(s, slot);
    }
    return 0;
}

/* Order of the start: board and metrics, loop, sockets, model, process table, adopted places, then
 * the children, workers before routers. In a fleet the keeper first. */
int supervisor_start(struct supervisor *s, struct err *e)
{
    uint64_t descriptors = raise_descriptors();
    const char *usec = getenv("WATCHDOG_USEC");
    struct buf remark = {0};
    uint64_t watchdog = 0;
    int rc = -1;

    process_title_set(s->upgrade.is_trial ? "rollgate: trial of a new binary"
                                          : "rollgate: supervisor");
    process_title_name_thread("rollgate");
    (void)signal(SIGPIPE, SIG_IGN);
    file_lock_allow_none(s->config->unlocked_state);
    s->board = board_new();
    upgrade_restore_orders(s->board);
    s->board->worker_base = (uint32_t)s->config->worker_base;
    upgrade_restore_indexes(s->board);
    if (s->upgrade.previous.n == 0)
        atomic_store(&s->board->started_ms, clock_wall_ms());
    s->metrics = metrics_new(BOARD_SLOTS);
    s->page = metrics_page(s->metrics, BOARD_SUPERVISOR, "supervisor");
    logs_setup("supervisor", s->config, s->page);
    supervisor_publish_limits(s);
    if (usec && !str_to_u64(str_cstr(usec), INT64_MAX, &watchdog))
        s->watchdog_ms = (int64_t)(watchdog / 1000);
    if (supervisor_open_loop(s, e) || make_instance(s, e) || supervisor_claim_folders(s, e))
        goto out;
    if (s->bodies->load && s->bodies->load(s->config, &s->model, &remark, e))
        goto out;
    supervisor_announce(s, descriptors, buf_str(&remark));
    if (s->config->fleet) {
        if (fleet_places_start_keeper(s, e))
            goto out;
    } else if (supervisor_start_children(s, e)) {
        goto out;
    }
    rc = 0;
out:
    buf_done(&remark);
    return rc;
}
