/*
 * struct upstreams: the workers and peer gateways that this router can reach, and its connections
 * to them. A struct link is one connection. Each upstream has a stack of idle links, newest first.
 * Idle links stay in the loop: one that closes or sends bytes is removed at once, and one that is
 * idle for 55 s is closed (workers keep theirs longer).
 *
 * Links have higher descriptors than clients' connections. Linux closes the descriptors of a dying
 * process from the highest down. So a worker notices the end of a killed router before the router's
 * clients do, and before one of them can retry.
 *
 * For a second, workers that could not be reached get no requests that any worker may serve.
 */
#ifndef RG_ROUTER_UPSTREAMS_H
#define RG_ROUTER_UPSTREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/os/loop.h"

struct upstreams;
struct link;
struct buf;
struct config;
struct heritage;
struct loop;

/* Receives the events of a link for its owner. */
typedef void (*link_event_fn)(struct link *link, unsigned events);

enum link_state {
    LINK_CONNECTING, /* not usable yet. link_event_fn gets LOOP_OUT when the link is open, or
                        LOOP_ERR if connecting has failed for good */
    LINK_OPEN
};

struct link {
    struct loop_io io; /* first field: callbacks get its address */
    int fd;
    int above; /* upstreams.above when the link was made */
    unsigned upstream;
    enum link_state state;
    bool unix_socket;
    bool reused;   /* has carried a request before */
    bool readable; /* an event said so, and no EAGAIN since then */
    bool hup;      /* the worker has closed the link, or its direction */
    bool retires;  /* the worker retires: if it closes without an answer, it has not acted */
    bool keeps;    /* the worker keeps the connection after the current answer */
    void *owner;   /* user of the link; NULL while it is idle */
    link_event_fn on_event;
    struct upstreams *all;
    struct list_item item; /* in the upstream's idle links */
    uint64_t idle_since_ms;
    struct loop_timer retry; /* while connecting: the next attempt, or the end of the time for it */
    uint64_t give_up_ms;
};

/* Resolves the addresses of upstreams and peers. Returns NULL and e if one of them is wrong. */
struct upstreams *upstreams_new(const struct heritage *h, struct loop *l, struct err *e);

/* Closes idle links and frees u. Links in use must be closed before. Accepts NULL. */
void upstreams_free(struct upstreams *u);

/* Returns the upstream that serves ids of this worker index: an own worker (its adopter has the
 * socket if it was retired), or a peer. -1: the index belongs to no upstream. */
int upstreams_find(const struct upstreams *u, uint32_t index);

/* Returns the upstream for the node of the fleet with that slot. -1: its address is not known now.
 */
int upstreams_find_node(struct upstreams *u, uint32_t slot);

/* Reports whether the upstream is a different node of the fleet. */
bool upstreams_is_node(const struct upstreams *u, int upstream);

/* Returns the slot of the node that the upstream is. */
uint32_t upstreams_node(int upstream);

/* Writes the name of this node of the fleet, and returns it. */
enum { UPSTREAMS_NAME_TEXT = 64 };
struct str upstreams_own_name(const struct upstreams *u, char text[UPSTREAMS_NAME_TEXT]);

/* Closes the idle links of an upstream, after a link to it broke. */
void upstreams_close_idle(struct upstreams *u, unsigned upstream);

/* Reports whether the upstream is a peer: a different gateway, which owns the request. */
bool upstreams_is_peer(int upstream);

/* Reports whether other nodes are configured (--peer, --worker-base). An index that upstreams_find
 * does not find belongs to one of them. */
bool upstreams_has_nodes(const struct upstreams *u);

/* Reports whether the upstream (-1: any own one) is reached by TCP: a gateway or a router, which
 * may forward requests again. */
bool upstreams_is_remote(const struct upstreams *u, int upstream);

/* Returns the Host for an upstream that is reached by TCP: its address. Absent for all others. */
struct str upstreams_authority(const struct upstreams *u, int upstream);

/* Writes the worker indexes of this node, "FIRST-LAST", and returns the text. */
enum { UPSTREAMS_RANGE_TEXT = 24 };
struct str upstreams_own_range(const struct upstreams *u, char text[UPSTREAMS_RANGE_TEXT]);

/* Reports whether such a text from a different node contains an index of this node's workers. False
 * if the text does not begin with a range. */
bool upstreams_range_meets(const struct upstreams *u, struct str range);

/* Returns the upstream of the dispatcher, or -1 if there is none. */
int upstreams_dispatcher(const struct upstreams *u);

/* Records that this router will end: during an upgrade the board may not be updated any longer. */
void upstreams_leave_behind(struct upstreams *u);

/* Returns the next upstream for a request without an id: round robin over own workers that are
 * ready and could be reached recently. If there is none, all own workers count. -1: there is no
 * worker at all. */
int upstreams_any(struct upstreams *u);

/* Appends a line for each --upstream and --peer that cannot be used. */
void upstreams_check(const struct config *c, struct buf *mistakes);

/* Applies the peers of the settings. On -1 with e nothing has changed. */
int upstreams_reload_peers(struct upstreams *u, struct err *e);

/* Makes later links get higher descriptors than fd, which is a client's connection. */
void upstreams_keep_above(struct upstreams *u, int fd);

/* Reports whether answers of this upstream (-1: any own worker) are confirmed, which is so for own
 * workers. */
bool upstreams_confirmed(const struct upstreams *u, int upstream);

/* Makes a connection with a different node end if that node vanishes, although both are silent for
 * long: after PROBE_IDLE_S + PROBES * PROBE_S, in a fleet after one lease. Failures do not matter.
 */
void upstreams_probe(const struct upstreams *u, int fd);

/* Returns the number of own workers that may serve requests without an id. */
size_t upstreams_count(const struct upstreams *u);

/* Return the numbers of open links that are in use, and idle. Each has a descriptor. */
size_t upstreams_busy(const struct upstreams *u);
size_t upstreams_idle(const struct upstreams *u);

/* Closes all idle links. */
void upstreams_trim(struct upstreams *u);

/* Returns a link to the upstream: an idle one (unless `fresh`), or a new one, which may still be
 * connecting. Its events go to on_event. If no descriptor is left, closes idle links first. Returns
 * NULL with ERR_WORKER_UNAVAILABLE if the upstream cannot be reached. */
struct link *link_get(struct upstreams *u, unsigned upstream, bool fresh, void *owner,
                      link_event_fn on_event, struct err *e);

/* Opens a separate connection to an own worker. The caller closes it. Returns -1 with errno on
 * error. */
int upstreams_dial(const struct upstreams *u, unsigned upstream);

/* Starts or stops requesting events for when the link accepts bytes. */
void link_want_out(struct link *link, bool want);

/* Confirms that the client has the whole answer (HTTP1_CONFIRMS). Returns false if the link is
 * broken. */
bool link_confirm(struct link *link);

/* Makes the link idle, after a complete answer without further bytes. */
void link_release(struct link *link);

/* Closes and frees the link. The worker notices it at once. */
void link_close(struct link *link);

#endif
