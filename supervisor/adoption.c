/*
 * Decides which process serves which place. A place is a worker index with its socket and journal,
 * or a router's socket. If its process ends for good, a different process of the role adopts the
 * place. The board records the adopter, so that its successors inherit the place. Journals that are
 * found at the start and are beyond the number of workers are adopted in the same manner.
 */
#include <dirent.h>
#include <signal.h>

#include "common/base/log.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "common/proc/status.h"
#include "supervisor/supervisor_internal.h"

static struct process *worker_at(struct supervisor *s, unsigned place)
{
    return &s->processes[BOARD_WORKER0 + place];
}

/* Returns the process of the role that remains and has the fewest places; NULL if none remains. */
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

/* Makes `to` serve the place. The living process gets an order to adopt it, and its successors
 * inherit it. */
static void assign_to(struct supervisor *s, struct process *to, unsigned place)
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
    /* If the process cannot receive the order, its successor inherits the place. */
    if (to->pid && order_send(to->control_fd, &order, given.listen_fd, &e)) {
        log_warn(NULL, "order not taken, replacing the process",
                 LOG_T("process", to->heritage.name), LOG_T("reason", e.text));
        (void)kill(to->pid, SIGKILL);
    }
}

void adoption_pass_all(struct supervisor *s, struct process *from)
{
    struct process *to = choose_adopter(s, from->heritage.role);

    if (!to)
        return;
    assign_to(s, to, from->heritage.place);
    for (size_t i = 0; i < from->heritage.n_adopted; i++)
        assign_to(s, to, from->heritage.adopted[i].place);
}

void adoption_pass_slot(struct supervisor *s, unsigned slot)
{
    struct process *from = &s->processes[slot];

    if (from->heritage.role == ROLE_WORKER)
        adoption_pass_all(s, from);
    process_done(from);
}

/* Parses "worker-12" to the place 12 - base. Returns -1 for any other name, or an index beyond our
 * range: in a fleet, that of a block which this node had before. */
static int parse_worker_folder(const struct supervisor *s, const char *name)
{
    static const struct str head = STR_LIT("worker-");
    struct str text = str_cstr(name);
    uint64_t index;

    if (!str_starts(text, head) || str_to_u64(str_sub(text, head.len, SIZE_MAX), 999999, &index))
        return -1;
    if (index < s->board->worker_base || index - s->board->worker_base >= BOARD_WORKERS_MAX) {
        if (s->fleet)
            log_error(NULL, "this node does not have the index of a folder of sessions, ignoring",
                      LOG_T("folder", name), LOG_U("first_index", s->board->worker_base));
        return -1;
    }
    return (int)(index - s->board->worker_base);
}

bool adoption_is_foreign(const struct supervisor *s, unsigned slot)
{
    struct fleet_place p;

    return s->fleet && slot >= BOARD_WORKER0 &&
           place_table_find(s->fleet, s->board->worker_base + slot - BOARD_WORKER0, &p) &&
           p.node != FLEET_NO_NODE && p.node != place_table_self(s->fleet);
}

int adoption_assign_leftovers(struct supervisor *s, struct err *e)
{
    DIR *d = opendir(s->config->state_dir);
    struct dirent *entry;
    int rc = 0;

    while (d && rc == 0 && (entry = readdir(d))) {
        int place = parse_worker_folder(s, entry->d_name);

        if (place < 0 || worker_at(s, (unsigned)place)->wanted)
            continue;
        if (s->fleet && !place_table_own_epoch(s->fleet, s->board->worker_base + (uint32_t)place)) {
            log_warn(NULL, "a journal of a place that this node does not own, ignoring",
                     LOG_U("index", s->board->worker_base + (uint32_t)place));
            continue;
        }
        rc = listeners_worker(&s->listeners, s->config, (unsigned)place, e);
        if (rc == 0)
            assign_to(s, choose_adopter(s, ROLE_WORKER), (unsigned)place);
    }
    if (d)
        (void)closedir(d);
    return rc;
}

int adoption_serve_given(struct supervisor *s, struct err *e)
{
    for (unsigned i = (unsigned)s->config->routers; i < s->listeners.n_given; i++) {
        if (listeners_router(&s->listeners, s->config, i, e))
            return -1;
        assign_to(s, choose_adopter(s, ROLE_ROUTER), i);
    }
    return 0;
}
