/*
 * The keeper's process (fleet_keeper.h).
 *
 *   start    opening.c, then the steps of join.c
 *   beat     every fifth of the lease: renews the places, which returns the beats of all nodes
 *   list     every few leases, and if a place may be lost, a renewal fails or an entry was missed.
 *            Lost places are claimed after a list
 *   drain    one more renewal: the supervisor ends the keeper after the workers
 */
#include "keeper/fleet_keeper.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"

enum {
    BEATS_PER_LEASE = 5,
    LEASES_PER_LIST = 4,
    REPORT_BEFORE_MS = 1000,
    LEAVE_MS = 20,
    RELEASE_MS = 200,
    LAST_RENEWAL_MS = 1000, /* the supervisor waits for 5 s */
    INFO_BEATS = 10
};

void keeper_fail(struct fleet_keeper *k, const char *why)
{
    child_failed(k->h, why);
    k->asking = true; /* no step follows */
    loop_stop(k->loop);
}

void keeper_check_answer(struct fleet_keeper *k, const struct store_answer *a)
{
    bool lost = a->verdict == STORE_LOST || a->verdict == STORE_FAILED;

    if (k->ending)
        return;
    if (lost && !k->why[0])
        log_error(NULL, "the store does not answer", LOG_T("reason", a->why));
    else if (!lost && k->why[0])
        log_info(NULL, "the store answers again");
    (void)snprintf(k->why, sizeof(k->why), "%s", lost ? a->why : "");
}

/* --- what the store reports --- */

static void publish_view(struct fleet_keeper *k)
{
    size_t refused = fleet_view_publish(&k->view, k->table, k->lease_ms);
    uint64_t now_ms = clock_boot_ms();

    place_table_set_complete(k->table, now_ms, k->view.unbroken_ms ? now_ms + k->lease_ms : 0);
    if (refused > 0)
        log_error(NULL, "places of the store do not fit into the table of this node, ignoring",
                  LOG_U("places", refused), LOG_U("most", FLEET_PLACES_MAX),
                  LOG_U("newest_epoch", FLEET_EPOCH_MAX));
    keeper_publish_figures(k);
}

static void on_early_look(struct loop_timer *t)
{
    struct fleet_keeper *k = CONTAINER_OF(t, struct fleet_keeper, look);

    if (!k->listing)
        keeper_list(k);
}

/* Claims lost places. Lists the entries early if a place may be lost before the next beat. */
static void adopt_lost(struct fleet_keeper *k)
{
    uint64_t due_ms = adopting_claim_lost(k), desk_ms = dispatcher_place_claim(k);
    uint64_t now_ms = clock_boot_ms();

    forgotten_restore(k);
    if (desk_ms > 0 && (due_ms == 0 || desk_ms < due_ms))
        due_ms = desk_ms;
    if (due_ms > 0 && due_ms < now_ms + k->lease_ms / BEATS_PER_LEASE)
        loop_timer_set(k->loop, &k->look, MAX_OF(due_ms, now_ms + 1) - now_ms, on_early_look);
}

/* Changes may be missed until the end of the next list, which is due. */
static void interrupt_view(struct fleet_keeper *k)
{
    fleet_view_interrupt(&k->view);
    place_table_set_complete(k->table, clock_boot_ms(), 0);
    k->listed_ms = 0;
}

/* An entry, the end of a list, or the loss of the connection. */
static void on_entry(void *ctx, const struct store_entry *entry, const char *why)
{
    struct fleet_keeper *k = ctx;

    if (entry) {
        fleet_view_add(&k->view, entry, clock_boot_ms());
        if (k->listing)
            return;
        if (k->step == JOINED && entry->epoch > 0 && entry->owner.len == 0)
            adopt_lost(k); /* it was released */
        publish_view(k);
        return;
    }
    k->listing = false;
    if (why) {
        interrupt_view(k);
        keeper_check_answer(k, &(struct store_answer){.verdict = STORE_LOST, .why = why});
        return;
    }
    fleet_view_end_list(&k->view, clock_boot_ms());
    if (k->step == JOINED)
        adopt_lost(k);
    publish_view(k);
    if (k->step == JOINED)
        join_restore(k);
    else
        join_continue(k);
}

void keeper_use_beats(struct fleet_keeper *k, const struct store_answer *a)
{
    uint64_t now_ms = clock_boot_ms();

    if (k->ending || k->step != JOINED)
        return;
    if (a->verdict != STORE_DONE) { /* the next server may have older beats */
        interrupt_view(k);
        return;
    }
    for (size_t i = 0; i < a->n_beats; i++)
        if (!fleet_view_beat(&k->view, &a->beats[i], now_ms) && now_ms - k->listed_ms > k->lease_ms)
            k->listed_ms = 0; /* its entry was missed */
    adopt_lost(k);
    publish_view(k);
    join_restore(k);
}

void keeper_list(struct fleet_keeper *k)
{
    k->listing = true;
    k->listed_ms = clock_boot_ms();
    store_watch(k->store, on_entry, k);
}

/* --- time --- */

/* A start that takes too long ends with the reason that the store gave. */
static bool start_is_late(const struct fleet_keeper *k)
{
    int64_t limit = k->h->config->start_timeout_ms;

    return k->step != JOINED &&
           (int64_t)(clock_ms() - k->begun_ms) > MAX_OF(limit - REPORT_BEFORE_MS, limit / 2);
}

static void on_fleet_beat(struct loop_timer *t)
{
    struct fleet_keeper *k = CONTAINER_OF(t, struct fleet_keeper, beat);
    char text[400];

    loop_timer_set(k->loop, t, k->lease_ms / BEATS_PER_LEASE, on_fleet_beat);
    if (start_is_late(k)) {
        (void)snprintf(text, sizeof(text), "the node could not join the fleet in time%s%s",
                       k->why[0] ? ": " : "", k->why);
        keeper_fail(k, text);
        return;
    }
    if (k->step == JOIN_INFO && !k->asking)
        opening_ask(k);
    if (k->step == JOIN_INFO)
        return;
    if (k->step == JOINED) {
        if (k->beats++ % INFO_BEATS == 0)
            keeper_measure_store(k);
        ownership_renew(k);
        ownership_claim_needed(k);
        known_places_write(k);
    }
    if (!k->listing && (k->step != JOINED || k->view.unbroken_ms == 0 || k->listed_ms == 0 ||
                        clock_boot_ms() - k->listed_ms >= LEASES_PER_LIST * k->lease_ms))
        keeper_list(k);
}

/* --- start and end --- */

void keeper_end_drain(struct fleet_keeper *k)
{
    if (k->ending)
        return;
    if (k->renews_last || k->why[0])
        loop_stop(k->loop);
    else
        ownership_renew(k);
}

static void on_drain_deadline(struct loop_timer *t)
{
    struct fleet_keeper *k = CONTAINER_OF(t, struct fleet_keeper, beat);

    log_warn(NULL, "the store does not answer at the end of this node",
             LOG_U("for_ms", LAST_RENEWAL_MS));
    loop_stop(k->loop);
}

/* At the end of the node its workers have left. After an upgrade those of the next binary serve. */
static void on_keeper_drain(struct child *c)
{
    struct fleet_keeper *k = CONTAINER_OF(c, struct fleet_keeper, child);

    if (k->step != JOINED || !ownership_is_ending(k)) {
        loop_stop(k->loop);
        return;
    }
    loop_timer_set(k->loop, &k->beat, LAST_RENEWAL_MS, on_drain_deadline);
    if (!k->renewing)
        keeper_end_drain(k);
}

static void on_leave(struct loop_timer *t)
{
    struct fleet_keeper *k = CONTAINER_OF(t, struct fleet_keeper, leave);

    if (k->step == JOINED)
        ownership_release_idle(k);
    loop_timer_set(k->loop, t, ownership_is_leaving(k) ? LEAVE_MS : RELEASE_MS, on_leave);
}

/* This node gives its places to others. */
static void on_keeper_leave(struct child *c)
{
    struct fleet_keeper *k = CONTAINER_OF(c, struct fleet_keeper, child);

    loop_timer_set(k->loop, &k->leave, 1, on_leave);
    if (k->step == JOINED)
        join_restore(k); /* reports it to the other nodes */
}

static void on_keeper_reload(struct child *c)
{
    struct fleet_keeper *k = CONTAINER_OF(c, struct fleet_keeper, child);

    if (opening_read_keys(k) && k->step == JOINED)
        join_write_keys(k);
}

/* Takes a slot for this node before those of the store use all. */
static void reserve_slot(struct fleet_keeper *k)
{
    uint32_t slot = place_table_slot(k->table, k->name);
    struct fleet_node node;

    k->view.self = k->name;
    if (slot == FLEET_NO_NODE || place_table_node(k->table, slot, &node))
        return;
    memset(&node, 0, sizeof(node));
    memcpy(node.name, k->name, sizeof(node.name));
    memcpy(node.address, k->entry.address, sizeof(node.address));
    node.state = FLEET_UP;
    node.since_ms = clock_wall_ms();
    place_table_set_node(k->table, slot, &node);
}

int fleet_keeper_run(const struct heritage *h)
{
    struct fleet_keeper *k = mem_zalloc(sizeof(*k));
    struct err e = {0};
    int status = 1;

    k->h = h;
    k->table = h->fleet;
    k->lease_ms = (uint64_t)h->config->fleet_lease_ms;
    k->begun_ms = clock_ms();
    (void)signal(SIGPIPE, SIG_IGN);
    k->loop = loop_new(&e);
    if (!k->loop || child_init(&k->child, k->loop, h, on_keeper_drain, &e) || opening_open(k, &e)) {
        child_failed(h, e.text);
        goto out;
    }
    k->child.on_reload = on_keeper_reload;
    k->child.on_leave = on_keeper_leave;
    loop_timer_set(k->loop, &k->leave, 1, on_leave);
    place_table_begin(k->table);
    reserve_slot(k);
    loop_timer_set(k->loop, &k->beat, k->lease_ms / BEATS_PER_LEASE, on_fleet_beat);
    opening_ask(k);
    loop_run(k->loop);
    status = k->child.draining ? 0 : 1;
out:
    if (k->loop) {
        loop_timer_stop(k->loop, &k->beat);
        loop_timer_stop(k->loop, &k->look);
        loop_timer_stop(k->loop, &k->leave);
    }
    k->ending = true;
    store_free(k->store);
    child_done(&k->child);
    loop_free(k->loop);
    fleet_view_done(&k->view);
    vec_done(&k->renewals);
    vec_done(&k->claims);
    vec_done(&k->avoided);
    store_url_done(&k->url);
    free(k);
    return status;
}
