/*
 * struct upstreams: the workers (and peer gateways) that this router can reach, and its connections
 * to them. A struct link is one connection. Idle links wait in a stack per upstream, newest first,
 * and stay in the loop: one that dies or speaks unasked leaves the stack at once; those idle for
 * 55 s are closed (workers keep theirs longer).
 *
 * Links have higher descriptors than the clients' connections. Linux closes what a dying process
 * has open from the highest down: a worker hears of the end of a router that was killed before the
 * router's clients do, and so before one of them can come back with a retry.
 *
 * Workers that could not be reached get no round-robin work for a second.
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

/* The owner's callbacks; the loop handle of the link is inside. */
typedef void (*link_event_fn)(struct link *link, unsigned events);

enum link_state {
    LINK_CONNECTING, /* not yet usable; link_event_fn is called with LOOP_OUT once it is, with
                        LOOP_ERR when that failed for good */
    LINK_OPEN
};

struct link {
    struct loop_io io; /* first: callbacks get this */
    int fd;
    int above; /* the clients' descriptors when it was made */
    unsigned upstream;
    enum link_state state;
    bool unix_socket;
    bool reused;   /* has carried a request before */
    bool readable; /* an edge said so and no EAGAIN since */
    bool hup;      /* the other side has closed or will send no more */
    bool retires;  /* the worker retires: if it closes without an answer, it has not acted */
    bool keeps;    /* the worker keeps the connection after the answer at hand */
    void *owner;   /* the user's; NULL while idle */
    link_event_fn on_event;
    struct upstreams *all;
    struct list_item item; /* of the idle ones */
    uint64_t idle_since_ms;
    struct loop_timer retry; /* connecting: the next attempt, or the end of patience */
    uint64_t give_up_ms;
};

/* Resolves the addresses of upstreams and peers. NULL and e when one of them is wrong. */
struct upstreams *upstreams_new(const struct heritage *h, struct loop *l, struct err *e);

/* Closes idle links; those in use must be closed before. */
void upstreams_free(struct upstreams *u);

/* The upstream that serves ids of this worker index: an own worker (for a retired one the socket is
 * its adopter's by now), or a peer; -1 when the index is nobody's. */
int upstreams_find(const struct upstreams *u, uint32_t index);

/* The upstream that is the node of the fleet with that slot; -1 if its address is not known now. */
int upstreams_find_node(struct upstreams *u, uint32_t slot);

/* Whether it is a different node of the fleet. */
bool upstreams_is_node(const struct upstreams *u, int upstream);

/* Writes the name of this node of the fleet, and returns it. */
enum { UPSTREAMS_NAME_TEXT = 64 };
struct str upstreams_own_name(const struct upstreams *u, char text[UPSTREAMS_NAME_TEXT]);

/* Closes the idle links of an upstream that has broken one. */
void upstreams_close_idle(struct upstreams *u, unsigned upstream);

/* Whether it is a peer: another gateway, which owns the request. */
bool upstreams_is_peer(int upstream);

/* Whether other nodes have been configured (--peer, --worker-base): an index that upstreams_find
 * does not find belongs to one of them. */
bool upstreams_has_nodes(const struct upstreams *u);

/* Whether it (-1: one of the own ones) is reached by TCP: a gateway, or a router, which may forward
 * requests again. */
bool upstreams_is_remote(const struct upstreams *u, int upstream);

/* The Host that an upstream gets which is reached by TCP: its address. Absent for all others. */
struct str upstreams_authority(const struct upstreams *u, int upstream);

/* Writes the indexes of this node's own workers, "FIRST-LAST", and returns the text. */
enum { UPSTREAMS_RANGE_TEXT = 24 };
struct str upstreams_own_range(const struct upstreams *u, char text[UPSTREAMS_RANGE_TEXT]);

/* Whether such a text, of another node, names an index of this node's own workers. False for texts
 * that do not begin with a range. */
bool upstreams_range_meets(const struct upstreams *u, struct str range);

/* The upstream that is the dispatcher, or -1 when there is none. */
int upstreams_dispatcher(const struct upstreams *u);

/* This router is about to end: the board may no longer be kept up to date (upgrade). */
void upstreams_leave_behind(struct upstreams *u);

/* The next one for work without an id: round robin over own workers that are ready and could be
 * reached lately; over all own workers when there is none such. -1 when there is no worker at all.
 */
int upstreams_any(struct upstreams *u);

/* Appends a line for each --upstream and --peer that cannot be used. */
void upstreams_check(const struct config *c, struct buf *mistakes);

/* Takes over the settings' peers. -1 and e, and nothing changed, when one of them is wrong. */
int upstreams_reload_peers(struct upstreams *u, struct err *e);

/* A client's connection has this descriptor: links are to have higher ones. */
void upstreams_keep_above(struct upstreams *u, int fd);

/* Whether answers of this upstream (-1: of any own worker) are confirmed: those of own workers. */
bool upstreams_confirmed(const struct upstreams *u, int upstream);

/* How many own workers there are to try for work without an id. */
size_t upstreams_count(const struct upstreams *u);

/* Links that are open, a descriptor each: those in use, and the idle ones. */
size_t upstreams_busy(const struct upstreams *u);
size_t upstreams_idle(const struct upstreams *u);

/* Closes the idle ones. */
void upstreams_trim(struct upstreams *u);

/* A link to the upstream: an idle one (unless `fresh`), or a new one, which may still be
 * connecting. NULL and e (ERR_WORKER_UNAVAILABLE) when it cannot be reached. It calls on_event for
 * the owner. Without a descriptor left, idle links are closed first. */
struct link *link_get(struct upstreams *u, unsigned upstream, bool fresh, void *owner,
                      link_event_fn on_event, struct err *e);

/* A connection of its own to an own worker, the caller's to close; -1 with errno. */
int upstreams_dial(const struct upstreams *u, unsigned upstream);

/* Ask for (or no longer ask for) events when the link takes bytes again. */
void link_want_out(struct link *link, bool want);

/* The client has been given the whole answer (HTTP1_CONFIRMS). False: the link is broken. */
bool link_confirm(struct link *link);

/* The answer is complete and nothing is left over: the link becomes idle. */
void link_release(struct link *link);

/* Closes and frees; the worker sees it at once. */
void link_close(struct link *link);

#endif
