/*
 * The way into the fleet. Each step waits for a complete list of the store's entries, then makes at
 * most one call, after which the list is read again. So a step that another node has overtaken
 * decides again.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"

/* An answer of a step, after which the list is read again. */
static void on_step_done(void *ctx, const struct store_answer *a)
{
    struct fleet_keeper *k = ctx;

    k->asking = false;
    keeper_check_answer(k, a);
    if (a->verdict == STORE_DONE || a->verdict == STORE_OVERTAKEN)
        keeper_list(k); /* else the next beat does it */
}

static void put_entry(struct fleet_keeper *k, struct str key, struct str value, uint64_t edition)
{
    k->asking = true;
    store_put(k->store, key, value, edition, (struct store_call){on_step_done, k});
}

/* --- what all nodes have in common --- */

static void put_fleet(struct fleet_keeper *k)
{
    struct buf value = {0};

    fleet_entry_write(&k->common, &value);
    put_entry(k, STR("fleet"), buf_str(&value), k->view.fleet_edition + 1);
    buf_done(&value);
}

void join_write_keys(struct fleet_keeper *k)
{
    k->keys_due = true;
    if (!k->asking)
        put_fleet(k);
}

/* Reports whether the store still lacks the fingerprints of changed keys. */
static bool lacks_keys(struct fleet_keeper *k)
{
    struct fleet_entry stored;

    k->keys_due = k->keys_due && (fleet_entry_read(buf_str(&k->view.fleet), &stored) != 0 ||
                                  !fleet_entry_is_same(&k->common, &stored));
    return k->keys_due;
}

static bool check_fleet(struct fleet_keeper *k)
{
    struct fleet_entry stored;
    const char *fault;

    if (k->view.fleet.len == 0) {
        k->founded = k->kept_block == FLEET_BLOCKS;
        put_fleet(k);
        return false;
    }
    fault = fleet_entry_read(buf_str(&k->view.fleet), &stored)
                ? "the entry `fleet` of the store has another form"
                : fleet_entry_fault(&k->common, &stored);
    if (fault)
        keeper_fail(k, fault);
    return !fault;
}

/* --- name and block --- */

/* NULL: the entry of our name is our own, or there is none. */
static const struct seen_node *find_namesake(const struct fleet_keeper *k)
{
    const struct seen_node *n = fleet_view_node(&k->view, k->name);

    return n && n->valid && strcmp(n->entry.instance, k->entry.instance) != 0 ? n : NULL;
}

static void fail_for_namesake(struct fleet_keeper *k, const struct seen_node *n)
{
    char text[512];

    (void)snprintf(text, sizeof(text),
                   "a node of the name \"%s\" lives at %s: choose another --fleet-node", k->name,
                   n->entry.address);
    keeper_fail(k, text);
}

/* A node of our name that has another instance may live: its beat is watched for one lease, which
 * begins again with each instance, and after each break of the connection. */
static bool check_name(struct fleet_keeper *k)
{
    const struct seen_node *n = find_namesake(k);
    struct node_watch *w = &k->other;
    bool same;

    if (!n)
        return true;
    same = strcmp(n->entry.instance, w->instance) == 0;
    if (same && n->beat != w->beat) {
        fail_for_namesake(k, n);
        return false;
    }
    if (!same || k->view.unbroken_ms > w->since_ms) {
        log_info(NULL, "a node of this name was here, watching its beat",
                 LOG_T("address", n->entry.address), LOG_U("lease_ms", k->lease_ms));
        memcpy(w->instance, n->entry.instance, sizeof(w->instance));
        w->beat = n->beat;
        w->since_ms = clock_boot_ms();
    }
    return clock_boot_ms() - w->since_ms >= k->lease_ms;
}

static void put_node(struct fleet_keeper *k)
{
    const struct seen_node *n = fleet_view_node(&k->view, k->name);
    struct buf key = {0}, value = {0};

    buf_printf(&key, "node:%s", k->name);
    node_entry_write(&k->entry, &value);
    put_entry(k, buf_str(&key), buf_str(&value), n ? n->edition + 1 : 1);
    buf_done(&key);
    buf_done(&value);
}

/* Whether the sessions of the state folder can have their block. False while a different node has
 * it that may live; if that one is lost, the node gets another block. So it does in a new store
 * that does not know its claims yet: the sessions keep their indexes without the block. */
static bool check_kept_block(struct fleet_keeper *k)
{
    const struct seen_block *b =
        k->kept_block < FLEET_BLOCKS ? fleet_view_block(&k->view, k->kept_block) : NULL;
    const struct seen_node *n = NULL;
    char text[256];

    if (b && b->owner[0] && strcmp(b->owner, k->name) != 0)
        n = fleet_view_node(&k->view, b->owner);
    if (!n || fleet_view_is_lost(&k->view, n, k->lease_ms) || ownership_has_forgotten(k))
        return true;
    if (fleet_view_has_beaten(&k->view, n)) {
        (void)snprintf(text, sizeof(text),
                       "the node \"%s\" lives and has the indexes from %u, which the sessions of "
                       "this --state-dir have: give this node another folder",
                       n->name, k->kept_block * FLEET_BLOCK_SIZE);
        keeper_fail(k, text);
    }
    return false;
}

/* Counts the indexes that the block must have. A node that serves already keeps its block. */
static size_t count_wanted(const struct fleet_keeper *k)
{
    bool serves = k->h->upgraded || place_table_self(k->table) != FLEET_NO_NODE;

    return serves ? 0 : atomic_load(&k->h->board->workers);
}

/* Chooses the block, which the node's entry names. False: the node cannot join. */
static bool choose_block(struct fleet_keeper *k)
{
    const struct config *c = k->h->config;
    char text[160];

    k->entry.block = fleet_view_choose_block(&k->view, k->name, k->kept_block, count_wanted(k));
    if (k->entry.block == FLEET_BLOCKS) {
        keeper_fail(k, "all blocks of indexes are used: too many nodes have had other names");
        return false;
    }
    if (c->worker_base_given && c->worker_base != (int64_t)k->entry.block * FLEET_BLOCK_SIZE) {
        (void)snprintf(text, sizeof(text),
                       "--worker-base: the indexes of this node begin with %u; remove the setting",
                       k->entry.block * FLEET_BLOCK_SIZE);
        keeper_fail(k, text);
        return false;
    }
    return true;
}

static bool node_is_written(const struct fleet_keeper *k)
{
    const struct seen_node *n = fleet_view_node(&k->view, k->name);

    return n && n->valid && strcmp(n->entry.instance, k->entry.instance) == 0 &&
           strcmp(n->entry.address, k->entry.address) == 0 && n->entry.block == k->entry.block;
}

static bool block_is_ours(const struct fleet_keeper *k)
{
    const struct seen_block *b = fleet_view_block(&k->view, k->entry.block);

    return b && strcmp(b->owner, k->name) == 0;
}

/* False: the node cannot join. */
static bool keep_block(struct fleet_keeper *k)
{
    struct err e;

    if (opening_keep_block(k, &e) == 0)
        return true;
    keeper_fail(k, e.text);
    return false;
}

static void put_block(struct fleet_keeper *k)
{
    const struct seen_block *b = fleet_view_block(&k->view, k->entry.block);
    struct buf key = {0};

    buf_printf(&key, "block:%u", k->entry.block);
    put_entry(k, buf_str(&key), str_cstr(k->name), b ? b->edition + 1 : 1);
    buf_done(&key);
}

/* --- the steps --- */

static void finish_join(struct fleet_keeper *k)
{
    uint32_t slot = place_table_slot(k->table, k->name);
    struct fleet_node self;
    char remark[160];

    if (!place_table_node(k->table, slot, &self)) {
        keeper_fail(k, "the fleet has too many nodes: 256 at most");
        return;
    }
    k->step = JOINED;
    place_table_set_self(k->table, slot);
    place_table_set_reached(k->table, clock_boot_ms()); /* the store has just answered */
    (void)snprintf(remark, sizeof(remark), "node %s of fleet %s, indexes from %u", k->name,
                   k->url.name, k->entry.block * FLEET_BLOCK_SIZE);
    child_ready(&k->child, remark);
}

static bool has_places(struct fleet_keeper *k)
{
    size_t wanted = atomic_load(&k->h->board->workers);

    if (k->claims.n > 0)
        return false;
    (void)dispatcher_place_claim(k); /* so that the dispatcher starts with the workers */
    return ownership_claim_block(k, wanted) >= wanted && k->claims.n == 0;
}

void join_continue(struct fleet_keeper *k)
{
    if (k->asking)
        return;
    if (k->step == JOIN_FLEET && check_fleet(k))
        k->step = JOIN_NAME;
    if (k->step == JOIN_NAME && check_name(k) && check_kept_block(k) && choose_block(k))
        k->step = JOIN_NODE;
    if (k->step == JOIN_NODE && node_is_written(k)) {
        k->step = JOIN_BLOCK;
    } else if (k->step == JOIN_NODE) {
        k->step = JOIN_NAME; /* until a list shows that no other node was faster */
        put_node(k);
        return;
    }
    if (k->step == JOIN_BLOCK && block_is_ours(k)) {
        if (!keep_block(k))
            return;
        known_places_read(k, false);
        k->step = JOIN_PLACES;
    } else if (k->step == JOIN_BLOCK) {
        k->step = JOIN_NAME;
        put_block(k);
        return;
    }
    if (k->step == JOIN_PLACES && has_places(k))
        finish_join(k);
}

/* True if the load has changed by more than a fiftieth of what the node may have, or its sessions
 * by a tenth and a few. */
static bool has_other_load(const struct heritage_load *now, const struct node_entry *told)
{
    enum { LOAD_STEP = 20, SESSIONS_STEP = 4 };

    uint32_t sessions = now->sessions > told->sessions ? now->sessions - told->sessions
                                                       : told->sessions - now->sessions;
    uint32_t load = now->load > told->load ? now->load - told->load : told->load - now->load;

    return load > LOAD_STEP || sessions > SESSIONS_STEP + told->sessions / 10 ||
           now->capacity != told->capacity;
}

/* True if other nodes should know more of this node than its entry says: it leaves, it obeys newer
 * orders, or it has more or less to do. */
static bool is_out_of_date(struct fleet_keeper *k, const struct seen_node *n)
{
    struct heritage_load now;
    uint64_t orders = board_orders(k->h->board);
    bool changed;

    heritage_measure_load(k->h, &now);
    changed = has_other_load(&now, &n->entry);
    k->entry.load = changed ? now.load : n->entry.load;
    k->entry.sessions = changed ? now.sessions : n->entry.sessions;
    k->entry.calls = changed ? now.calls : n->entry.calls;
    k->entry.capacity = now.capacity;
    k->entry.draining = ownership_is_leaving(k);
    k->entry.edition = orders > 0 ? orders - 1 : 0;
    return changed || k->entry.draining != n->entry.draining ||
           k->entry.edition != n->entry.edition;
}

/* The store was emptied, or has lost its tail. One entry a list is enough. A node that has taken
 * our name meanwhile keeps it: two of a name would claim their places from each other for ever. */
void join_restore(struct fleet_keeper *k)
{
    const struct seen_node *n = fleet_view_node(&k->view, k->name), *other = find_namesake(k);
    const struct seen_block *b = fleet_view_block(&k->view, k->entry.block);

    if (k->asking)
        return;
    if (other) {
        fail_for_namesake(k, other);
        return;
    }
    if (k->view.fleet.len == 0 || lacks_keys(k))
        put_fleet(k);
    else if (!n || !n->valid || is_out_of_date(k, n))
        put_node(k);
    else if (!b || !b->owner[0])
        put_block(k);
    else if (fleet_view_lacks_orders(&k->view))
        put_entry(k, STR("orders"), buf_str(&k->view.orders), k->view.orders_edition);
}
