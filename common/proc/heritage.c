/*
 * The names of the unix sockets in the run folder. Supervisor, routers and the dispatcher all build
 * them here, so that both ends of a connection use the same one. A path that does not fit a socket
 * address is an error. It is never cut, because a cut path would be a different socket.
 */
#include "common/proc/heritage.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"

int heritage_socket_path(const char *run_dir, uint32_t index, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/worker-%u.sock", run_dir, index);

    return n > 0 && (size_t)n < size ? 0 : -1;
}

int heritage_dispatcher_path(const char *run_dir, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/dispatcher.sock", run_dir);

    return n < 0 || (size_t)n >= size ? -1 : 0;
}

/* Finds the next other node from *at on: an element of --peer, or a name of the fleet, which is in
 * `node`. */
static bool next_peer(const struct heritage *h, size_t *at, struct fleet_node *node,
                      struct str *ret)
{
    if (!h->fleet && *at < h->config->peer.n) {
        *ret = str_cstr(h->config->peer.at[(*at)++]);
        return true;
    }
    while (h->fleet && *at < FLEET_NODES_MAX) {
        if (!place_table_node(h->fleet, (uint32_t)(*at)++, node) || node->is_self)
            continue;
        *ret = str_cstr(node->name);
        return true;
    }
    return false;
}

void heritage_put_peers(const struct heritage *h, struct json_out *out)
{
    struct fleet_node node;
    struct str peer;

    for (size_t at = 0; next_peer(h, &at, &node, &peer);)
        json_out_str(out, peer);
}

void heritage_list_peers(const struct heritage *h, bool indexes_only, struct buf *out)
{
    const char *comma = "";
    struct fleet_node node;
    struct str peer;

    for (size_t at = 0; next_peer(h, &at, &node, &peer); comma = ", ") {
        buf_puts(out, comma);
        buf_add_str(out, indexes_only ? str_sub(peer, 0, str_find(peer, STR("="), 0)) : peer);
    }
}

void heritage_put_unreachable(const struct heritage *h, struct json_out *out)
{
    struct fleet_node node;
    struct str peer;
    size_t at = 0;

    if (h->fleet || !next_peer(h, &at, &node, &peer))
        return;
    json_out_member_arr(out, "unreachable");
    heritage_put_peers(h, out);
    json_out_end_arr(out);
}

void heritage_write_unreachable(const struct heritage *h, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    heritage_put_unreachable(h, &o);
    json_out_end_obj(&o);
}

bool heritage_obeys(const struct heritage *h, unsigned slot)
{
    uint64_t own = atomic_load_explicit(&h->board->slots[slot].orders, memory_order_relaxed);

    return own > atomic_load_explicit(&h->board->orders, memory_order_relaxed) &&
           own >= place_table_orders(h->fleet);
}

static bool starts_dispatcher(const struct board *b)
{
    return atomic_load_explicit(&b->slots[BOARD_DISPATCHER].state, memory_order_relaxed) ==
           BOARD_STARTING;
}

int heritage_check_ready(const struct heritage *h, const char **ret_reason)
{
    uint64_t orders = board_orders(h->board);

    if (board_check_ready(h->board, ret_reason) != 0)
        return -1;
    *ret_reason = "the dispatcher is starting";
    if (!h->fleet && starts_dispatcher(h->board))
        return -1;
    if (!h->fleet || (orders > 0 && orders >= place_table_orders(h->fleet)))
        return 0;
    *ret_reason = "a worker does not obey the fleet's orders yet";
    return -1;
}

void heritage_measure_load(const struct heritage *h, struct heritage_load *ret)
{
    enum { LOAD_MAX = 100000 };

    uint64_t workers = (uint64_t)MAX_OF(h->config->workers, 1), calls = 0, capacity, load;
    uint64_t sessions = metrics_read(h->metrics, METRIC_sessions, METRIC_PHASE_OPEN, 0) +
                        metrics_read(h->metrics, METRIC_sessions, METRIC_PHASE_COMPLETED, 0) +
                        metrics_read(h->metrics, METRIC_sessions, METRIC_PHASE_COPYING, 0);

    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++)
        calls +=
            atomic_load_explicit(&h->board->slots[BOARD_WORKER0 + i].waiting, memory_order_relaxed);
    workers -= MIN_OF(workers, (uint64_t)board_workers_full(h->board));
    capacity = (uint64_t)h->config->max_sessions * workers;
    load = capacity > 0 ? (sessions + HERITAGE_CALL_WEIGHT * calls) * 1000 / capacity : LOAD_MAX;
    ret->sessions = (uint32_t)MIN_OF(sessions, (uint64_t)UINT32_MAX);
    ret->calls = (uint32_t)calls;
    ret->capacity = (uint32_t)MIN_OF(capacity, (uint64_t)UINT32_MAX);
    ret->load = (uint32_t)MIN_OF(load, (uint64_t)LOAD_MAX);
}
