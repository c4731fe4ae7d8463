/*
 * Which workers serve the places that this node owns. The keeper decides what it owns; the
 * supervisor looks at the place table when that has changed.
 *
 *   a new place     gets a worker, in a free place of the board. New sessions go to workers of
 *                   this node's own block only
 *   a lost place    its worker ends. Its folder is put aside, because the owner continues from the
 *                   store's records; a new worker of the block replaces the one that ended
 *   an empty place  came from another node, and its sessions have ended: its worker ends, and the
 *                   keeper releases it. A place whose worker died again and again is released, too
 *
 * The dispatcher runs on the node that owns its place, in the same way. A dispatcher that died
 * again and again gives its place up, too.
 */
#include <signal.h>

#include "common/base/log.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "common/proc/place_folder.h"
#include "common/proc/status.h"
#include "supervisor/fleet_settings.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

enum { DEATHS_MAX = 5 /* of a dispatcher, or a worker of another node's place, in a row */ };

/* Finds a place that this node owns. */
static bool find_owned(const struct supervisor *s, uint32_t index, struct fleet_own_place *ret)
{
    return place_table_find_own(s->fleet, index, ret) && ret->epoch > 0;
}

static bool is_abandoned(const struct fleet_own_place *own)
{
    return own->abandoned_epoch == own->epoch;
}

/* --- start --- */

int fleet_places_start_keeper(struct supervisor *s, struct err *e)
{
    if (fleet_settings_resolve(s->config, s->listeners.address, e))
        return -1;
    s->fleet = place_table_new();
    atomic_store(&s->board->workers, (uint32_t)s->config->workers);
    spawn_prepare(s, BOARD_KEEPER);
    spawn_start(s, BOARD_KEEPER);
    return 0;
}

int fleet_places_take_block(struct supervisor *s, struct err *e)
{
    struct fleet_node self;

    if (!place_table_node(s->fleet, place_table_self(s->fleet), &self))
        return err_set(e, ERR_INTERNAL, "the keeper has joined the fleet without indexes");
    s->config->worker_base = (int64_t)self.block * FLEET_BLOCK_SIZE;
    s->config->worker_base_given = true;
    return 0;
}

bool fleet_places_is_taken(const struct supervisor *s, uint32_t index)
{
    struct fleet_place p;

    return s->fleet && place_table_own_epoch(s->fleet, index) == 0 &&
           place_table_find(s->fleet, index, &p) && p.node != place_table_self(s->fleet);
}

/* --- places of the board --- */

static bool is_unused(const struct supervisor *s, uint32_t place)
{
    const struct process *p = &s->processes[BOARD_WORKER0 + place];

    return !p->wanted && !p->pid &&
           atomic_load(&s->board->slots[BOARD_WORKER0 + place].adopter) == 0;
}

bool fleet_places_is_served(const struct supervisor *s, uint32_t index)
{
    int place = board_place(s->board, index);

    return place >= 0 && !is_unused(s, (uint32_t)place);
}

/* After an upgrade an index keeps its place, whose journal a process of the binary before may
 * have. Otherwise the lowest unused one is chosen. */
int fleet_places_choose(struct supervisor *s, uint32_t index)
{
    int usual = board_place(s->board, index);

    if (s->upgrade.previous.n > 0 && usual >= 0 && is_unused(s, (uint32_t)usual))
        return usual;
    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (!is_unused(s, place))
            continue;
        board_set_index(s->board, place, index);
        board_set_came(s->board, place, false);
        return (int)place;
    }
    return -1;
}

/* The first owned index gets the first place, whatever the index is. */
void fleet_places_want_block(struct supervisor *s)
{
    unsigned wanted = 0;

    for (uint32_t i = 0; i < BOARD_WORKERS_MAX && wanted < (unsigned)s->config->workers; i++) {
        uint32_t index = s->board->worker_base + i;
        int place = place_table_own_epoch(s->fleet, index) ? fleet_places_choose(s, index) : -1;

        if (place < 0)
            continue;
        spawn_prepare(s, BOARD_WORKER0 + (unsigned)place);
        wanted++;
    }
}

/* --- folders --- */

void fleet_places_put_aside(const struct supervisor *s, uint32_t index)
{
    (void)place_folder_put_aside(s->config->state_dir, index, PLACE_FOLDER_LOST);
}

void fleet_places_put_vacant(const struct supervisor *s, uint32_t index)
{
    if (s->fleet && place_table_is_vacant(s->fleet, index))
        fleet_places_put_aside(s, index);
}

/* Reports whether no process can have the folder of a released place. While this node serves, a
 * dispatcher that has ended may be replaced, unless it gave its place up. */
static bool has_free_folder(const struct supervisor *s, const struct fleet_own_place *own)
{
    const struct process *p = &s->processes[BOARD_DISPATCHER];

    if (s->phase != PHASE_SERVING)
        return true;
    return own->index == FLEET_DISPATCHER
               ? own->abandoned_epoch == own->left_epoch && !p->wanted && !p->pid
               : !fleet_places_is_served(s, own->index);
}

void fleet_places_put_released(const struct supervisor *s)
{
    struct fleet_own_place own;

    for (size_t at = 0; place_table_next_own(s->fleet, &at, &own);)
        if (own.epoch == 0 && own.left_epoch > 0 && has_free_folder(s, &own))
            (void)place_folder_put_aside(s->config->state_dir, own.index, PLACE_FOLDER_RELEASED);
}

/* Frees a place of the board. */
static void free_place(struct supervisor *s, uint32_t place)
{
    listeners_close_worker(&s->listeners, place);
    board_set_index(s->board, place, s->board->worker_base + place);
    board_set_came(s->board, place, false);
    atomic_store(&s->board->slots[BOARD_WORKER0 + place].adopter, 0);
}

void fleet_places_forget(struct supervisor *s, uint32_t place)
{
    fleet_places_put_aside(s, board_index(s->board, place));
    free_place(s, place);
}

/* --- places that are given up --- */

/* Reports whether the store has every record of the place that was answered: under this epoch all
 * were sent, or there are none of before. */
static bool has_all(const struct fleet_own_place *own)
{
    return own->left_epoch == own->epoch || own->base == own->epoch;
}

bool fleet_places_end(struct supervisor *s, const struct heritage_place *given)
{
    struct fleet_own_place own;
    bool abandoned, leaves = atomic_load(&s->board->leaving) != 0;

    if (!s->fleet || !find_owned(s, given->index, &own))
        return false;
    abandoned = is_abandoned(&own);
    if (!abandoned && !leaves)
        return false;
    if (has_all(&own))
        place_table_report_left(s->fleet, own.index, own.epoch);
    else
        place_table_abandon(s->fleet, own.index, 0, false); /* it gets a worker again */
    if (abandoned)
        free_place(s, given->place);
    return abandoned;
}

bool fleet_places_abandon_failed(struct supervisor *s, const struct process *p)
{
    bool is_dispatcher = p->heritage.role == ROLE_DISPATCHER;
    uint32_t index = is_dispatcher ? FLEET_DISPATCHER : p->heritage.index;
    struct fleet_own_place own;

    if (s->phase != PHASE_SERVING || p->deaths < DEATHS_MAX || !find_owned(s, index, &own) ||
        !has_all(&own) || !place_table_has_successor(s->fleet))
        return false;
    log_error(NULL,
              is_dispatcher
                  ? "the dispatcher died again and again, giving up its place"
                  : "the worker of another node's place died again and again, giving up the place",
              place_table_log("index", index), LOG_U("deaths", p->deaths));
    place_table_abandon(s->fleet, index, own.epoch, true);
    reload_retire(s, p->heritage.slot);
    if (is_dispatcher)
        fleet_places_forget_dispatcher(s);
    return true;
}

/* Ends the workers of empty places that came from other nodes. */
static void end_empty(struct supervisor *s)
{
    struct fleet_own_place own;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (!s->processes[BOARD_WORKER0 + place].wanted || !board_is_foreign(s->board, place) ||
            !find_owned(s, board_index(s->board, place), &own) || own.empty_epoch != own.epoch)
            continue;
        log_info(NULL, "the sessions of another node's place have ended, giving it up",
                 LOG_U("index", own.index));
        place_table_abandon(s->fleet, own.index, own.epoch, false);
        reload_retire(s, BOARD_WORKER0 + place);
    }
}

/* --- changes --- */

/* Prepares a worker for an owned place that has none. */
static void want_worker(struct supervisor *s, uint32_t index)
{
    int place = fleet_places_choose(s, index);
    struct err e;

    if (place < 0) {
        log_error(NULL, "no place is left for a worker, ignoring", LOG_U("index", index));
        return;
    }
    /* Routers connect as soon as the slot is prepared. An error is reported by spawn_start. */
    (void)listeners_worker(&s->listeners, s->config, (unsigned)place, &e);
    board_set_came(s->board, (uint32_t)place, true);
    spawn_prepare(s, BOARD_WORKER0 + (unsigned)place);
    if (s->phase == PHASE_SERVING)
        spawn_start(s, BOARD_WORKER0 + (unsigned)place);
}

/* --- the dispatcher --- */

/* Reports the place as left after the end of a dispatcher that could not do so itself. */
static void leave_dispatcher(const struct supervisor *s)
{
    struct fleet_own_place own;

    if (find_owned(s, FLEET_DISPATCHER, &own) && has_all(&own) &&
        (atomic_load(&s->board->leaving) != 0 || is_abandoned(&own)))
        place_table_report_left(s->fleet, FLEET_DISPATCHER, own.epoch);
}

void fleet_places_forget_dispatcher(struct supervisor *s)
{
    listeners_close_dispatcher(&s->listeners);
    leave_dispatcher(s);
    if (fleet_places_is_taken(s, FLEET_DISPATCHER))
        fleet_places_put_aside(s, FLEET_DISPATCHER);
    s->fleet_generation--; /* the place may be owned again */
}

/* True if this node owns the dispatcher's place, and does not give it up. */
static bool has_dispatcher(const struct supervisor *s)
{
    struct fleet_own_place own;

    return find_owned(s, FLEET_DISPATCHER, &own) && !is_abandoned(&own);
}

/* Prepares a dispatcher if this node owns its place, or ends it if another node does. */
static void want_dispatcher(struct supervisor *s)
{
    struct process *p = &s->processes[BOARD_DISPATCHER];
    struct err e;

    if (!s->config->dispatcher || !s->bodies->dispatcher)
        return;
    if (fleet_places_is_taken(s, FLEET_DISPATCHER)) {
        if (p->wanted)
            reload_retire(s, BOARD_DISPATCHER);
        if (!p->pid) {
            listeners_close_dispatcher(&s->listeners);
            fleet_places_put_aside(s, FLEET_DISPATCHER);
        }
    } else if (has_dispatcher(s) && !p->wanted && !p->pid) {
        (void)listeners_dispatcher(&s->listeners, s->config, &e); /* as for a worker */
        spawn_prepare(s, BOARD_DISPATCHER);
        if (s->phase == PHASE_SERVING)
            spawn_start(s, BOARD_DISPATCHER);
    }
}

/* --- all places --- */

void fleet_places_want(struct supervisor *s)
{
    struct fleet_own_place own;

    want_dispatcher(s);
    for (size_t at = 0; place_table_next_own(s->fleet, &at, &own);)
        if (own.epoch > 0 && !is_abandoned(&own) && own.index != FLEET_DISPATCHER &&
            !fleet_places_is_served(s, own.index))
            want_worker(s, own.index);
}

/* Reports the places as left that have no process yet. */
static void leave_unserved(const struct supervisor *s)
{
    struct fleet_own_place own;

    if (!s->processes[BOARD_DISPATCHER].pid)
        leave_dispatcher(s);
    for (size_t at = 0; place_table_next_own(s->fleet, &at, &own);)
        if (own.epoch > 0 && own.index != FLEET_DISPATCHER && has_all(&own) &&
            !fleet_places_is_served(s, own.index))
            place_table_report_left(s->fleet, own.index, own.epoch);
}

void fleet_places_leave(struct supervisor *s)
{
    struct process *keeper = &s->processes[BOARD_KEEPER];
    struct order order = {.kind = ORDER_LEAVE};
    bool wanted[BOARD_WORKERS_MAX];
    struct err e;

    atomic_store(&s->board->leaving, 1);
    if (keeper->pid && order_send(keeper->control_fd, &order, -1, &e)) {
        log_warn(NULL, "order not taken, replacing the process", LOG_T("process", "keeper"),
                 LOG_T("reason", e.text));
        (void)kill(keeper->pid, SIGKILL); /* the next one sees `leaving` */
    }
    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++) { /* all, so that no worker adopts */
        wanted[i] = s->processes[BOARD_WORKER0 + i].wanted;
        s->processes[BOARD_WORKER0 + i].wanted = false;
    }
    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++)
        if (wanted[i])
            reload_retire(s, BOARD_WORKER0 + i);
    if (s->processes[BOARD_DISPATCHER].wanted)
        reload_retire(s, BOARD_DISPATCHER);
    leave_unserved(s);
}

bool fleet_places_are_gone(const struct supervisor *s)
{
    struct fleet_own_place own;

    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++)
        if (s->processes[BOARD_WORKER0 + i].pid)
            return false;
    for (size_t at = 0; place_table_next_own(s->fleet, &at, &own);)
        if (own.epoch > 0)
            return false;
    return !s->processes[BOARD_DISPATCHER].pid;
}

/* Returns the place whose worker serves the sessions of this one. */
static uint32_t find_server(const struct supervisor *s, uint32_t place)
{
    uint32_t adopter = atomic_load(&s->board->slots[BOARD_WORKER0 + place].adopter);

    return adopter ? adopter - 1 : place;
}

/* A worker that has adopted a taken place ends, too: the next worker gets its other places. Returns
 * the number of workers of this node's block that were ended. */
static unsigned end_taken(struct supervisor *s)
{
    unsigned ended = 0;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        uint32_t server = find_server(s, place);

        if (!s->processes[BOARD_WORKER0 + server].wanted ||
            !fleet_places_is_taken(s, board_index(s->board, place)))
            continue;
        ended += !board_is_foreign(s->board, server);
        reload_retire(s, BOARD_WORKER0 + server);
    }
    return ended;
}

void fleet_places_follow(struct supervisor *s)
{
    uint32_t generation = s->fleet ? place_table_generation(s->fleet) : 0;

    if (!s->fleet || s->phase != PHASE_SERVING || generation == s->fleet_generation)
        return;
    s->fleet_generation = generation;
    if (end_taken(s) > 0)
        reload_scale_workers(s);
    end_empty(s);
    fleet_places_put_released(s);
    fleet_places_want(s);
}
