/*
 * struct hub: what all connections of one router process share: the loop, the upstreams, one
 * scratch buffer for every read, one parsed head, spare pipes for splice, counters. There is one
 * thread. A function that uses the scratch or the head must be done with it before it returns to
 * the loop.
 */
#ifndef RG_ROUTER_HUB_H
#define RG_ROUTER_HUB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/os/loop.h"

struct config;
struct conn;
struct helpers;
struct heritage;
struct http1_head;
struct keys;
struct lendings;
struct loop;
struct metrics_page;
struct own_names;
struct tls_server;
struct upstreams;

enum {
    HUB_SCRATCH = 256 * 1024, /* largest single read */
    HUB_HEAD_READ = 64 * 1024,
    HUB_TURN_BYTES = 1 << 20, /* bytes that one connection may move before others have their turn */
    HUB_TLS_TURN_BYTES = 128 << 10, /* over TLS: a record of 16 KiB takes 0.14 ms */
    HUB_TLS_READ_COST = 2048, /* bytes that could be passed on in the time of one short record */
    HUB_TLS_HEAD_READS = 64,  /* reads of heads over TLS in a turn */
    HUB_SPARE_PIPES = 16
};

struct hub {
    const struct heritage *heritage;
    const struct config *config;   /* the heritage's; a reload changes it in place */
    const struct keys *keys;       /* NULL: no admin keys are set */
    const struct keys *fleet_keys; /* prove nodes to each other; NULL without a fleet */
    struct tls_server *tls;        /* NULL: clients speak plain HTTP */
    struct helpers *shakers;       /* thread of TLS handshakes (client_tls.h); or NULL */
    struct list_head shakes;       /* pending handshakes */
    struct loop *loop;
    struct upstreams *upstreams;
    struct lendings *lendings;
    struct metrics_page *page;
    struct own_names *own_names;
    char *scratch;
    struct http1_head *head;
    struct list_head conns; /* all connections, newest first */
    size_t conn_count;
    size_t max_clients;          /* number of connections that fit if all are relayed; 0: unknown */
    size_t refused;              /* number of connections that are being refused */
    int gatherers;               /* number of connections whose bytes are gathered (conn_gather) */
    struct list_head strangers;  /* connections that have proved nothing, oldest first */
    void (*run)(struct conn *c); /* continues a connection; set by clients_init */
    struct map callers;
    struct list_head held;        /* conns in state HELD */
    struct list_head hops;        /* conns whose request a different node of the fleet serves */
    struct loop_timer hold_timer; /* timer of holds.c */
    uint32_t fleet_generation;    /* generation of the place table at the last check */
    uint64_t own_places;          /* hash of the places that this node owns */
    bool draining;
    void (*on_empty)(struct hub *h); /* when the last connection of a drain ends */
    int spare_pipes[HUB_SPARE_PIPES][2];
    int spare_pipe_count;
    uint64_t request_seq;
    uint32_t request_salt;
};

void hub_init(struct hub *h, const struct heritage *heritage, struct loop *l, struct upstreams *u);

/* Applies loaded keys, which are borrowed. NULL: there are none. */
void hub_set_keys(struct hub *h, const struct keys *k);

/* Writes what shows other nodes who forwards a request: the name of this node of the fleet, and the
 * proof that it is one. Returns the text. */
enum { HUB_NAME_MAX = 81 };
struct str hub_show_name(const struct hub *h, char text[HUB_NAME_MAX]);

/* Frees the hub. All connections must be closed before. */
void hub_done(struct hub *h);

/* Writes a new request id with a NUL, and returns it as str over `text`. */
enum { HUB_REQUEST_ID_MAX = 32 };
struct str hub_request_id(struct hub *h, char text[HUB_REQUEST_ID_MAX]);

/* Counts and logs a fault of a worker or node: `what`, for a session ("": none) at an upstream (-1:
 * any own worker). A node is logged by its address. */
void hub_blame_worker(struct hub *h, const char *session, int upstream, const char *what);

/* Returns an empty pipe for splice. Returns 0, or -1 if there is no descriptor left. */
int hub_take_pipe(struct hub *h, int ret[2]);

/* Returns a pipe to the hub. A pipe that has bytes is closed. */
void hub_put_pipe(struct hub *h, int pipe[2], bool empty);

#endif
