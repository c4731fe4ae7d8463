/*
 * Decides which process serves which place. A place is a worker index with its socket and journal,
 * or a router's socket. If its process ends for good, a different process of the role adopts the
 * place. The board records the adopter, so that its successors inherit the place. Journals that are
 * found at the start and are beyond the number of workers are adopted in the same manner.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>

#include "common/base/log.h"
#include "common/fleet/place_table.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "common/proc/place_folder.h"
#include "common/proc/status.h"
#include "supervisor/supervisor_internal.h"

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
                                   .index = router ? place : board_index(s->board, place),
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

/* Passes a place to the worker `to`, unless another node has it or this node gives it up. Without
 * an adopter this node leaves its fleet: what waits in the socket is refused. */
static void pass_place(struct supervisor *s, const struct process *from, struct process *to,
                       const struct heritage_place *given)
{
    if (from->heritage.role == ROLE_WORKER && fleet_places_is_taken(s, given->index))
        fleet_places_forget(s, given->place);
    else if (from->heritage.role == ROLE_WORKER && fleet_places_end(s, given))
        return; /* the keeper releases it */
    else if (to)
        assign_to(s, to, given->place);
    else if (from->heritage.role == ROLE_WORKER)
        listeners_close_worker(&s->listeners, given->place);
}

void adoption_pass_all(struct supervisor *s, struct process *from)
{
    const struct heritage *h = &from->heritage;
    const struct heritage_place own = {.place = h->place, .index = h->index};
    struct process *to = choose_adopter(s, h->role);

    pass_place(s, from, to, &own);
    for (size_t i = 0; i < h->n_adopted; i++)
        pass_place(s, from, to, &h->adopted[i]);
}

void adoption_pass_slot(struct supervisor *s, unsigned slot)
{
    struct process *from = &s->processes[slot];

    if (from->heritage.role == ROLE_WORKER)
        adoption_pass_all(s, from);
    process_done(from);
}

/* Makes a worker serve a place with a journal of this node's own indexes. */
static int assign_leftover(struct supervisor *s, uint32_t index, struct err *e)
{
    int place = s->fleet ? fleet_places_choose(s, index) : (int)(index - s->board->worker_base);

    if (place < 0)
        return err_set(e, ERR_CONFIG, "no place is left for the sessions of worker-%u", index);
    if (listeners_worker(&s->listeners, s->config, (unsigned)place, e))
        return -1;
    assign_to(s, choose_adopter(s, ROLE_WORKER), (unsigned)place);
    return 0;
}

/* Returns true if a worker that is wanted has to serve the folder's index. In a fleet a folder of a
 * place that another node has or had is put aside. Other nodes' indexes get workers of their own.
 */
static bool is_leftover(const struct supervisor *s, uint32_t index)
{
    uint32_t place = index - s->board->worker_base;

    if (!s->fleet)
        return place < BOARD_WORKERS_MAX && !s->processes[BOARD_WORKER0 + place].wanted;
    if (fleet_places_is_taken(s, index) || place_table_is_vacant(s->fleet, index))
        fleet_places_put_aside(s, index);
    else if (place_table_own_epoch(s->fleet, index) == 0)
        log_warn(NULL, "a journal of a place that this node does not own, ignoring",
                 LOG_U("index", index));
    else
        return place < BOARD_WORKERS_MAX && !fleet_places_is_served(s, index);
    return false;
}

int adoption_assign_leftovers(struct supervisor *s, struct err *e)
{
    DIR *d = opendir(s->config->state_dir);
    VEC(uint32_t) indexes = {0};
    struct dirent *entry;
    uint32_t index;
    int rc = 0;

    while (d && (entry = file_next_entry(d)))
        if (worker_folder_parse(entry->d_name, &index))
            *vec_push(&indexes) = index;
    if (d && errno)
        rc = err_sys(e, ERR_IO, "cannot read %s", s->config->state_dir);
    if (d)
        (void)closedir(d);
    for (size_t i = 0; rc == 0 && i < indexes.n; i++)
        if (is_leftover(s, indexes.at[i]))
            rc = assign_leftover(s, indexes.at[i], e);
    vec_done(&indexes);
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
