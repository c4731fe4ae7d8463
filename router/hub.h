/*
 * struct hub: what all connections of one router process share: the loop, the upstreams, one
 * scratch buffer for every read, one parsed head, spare pipes for splice, counters. One thread;
 * whoever reads into the scratch or parses into the head is done with it before returning to the
 * loop.
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
    HUB_SCRATCH = 256 * 1024, /* the largest single read */
    HUB_HEAD_READ = 64 * 1024,
    HUB_TURN_BYTES = 1 << 20,       /* what one connection may move before others have their turn */
    HUB_TLS_TURN_BYTES = 128 << 10, /* over TLS: a record of 16 KiB takes 0.14 ms */
    HUB_TLS_READ_COST = 2048,       /* bytes that could be passed on while a short record is read */
    HUB_TLS_HEAD_READS = 64,        /* reads of heads over TLS in a turn */
    HUB_SPARE_PIPES = 16
};

struct hub {
    const struct heritage *heritage;
    const struct config *config; /* its; changes in place */
    const struct keys *keys;     /* NULL: no admin keys are set */
    struct tls_server *tls;      /* NULL: clients speak plain HTTP */
    struct helpers *shakers;     /* the thread of TLS handshakes (client_tls.h); or NULL */
    struct list_head shakes;     /* handshakes that are pending there */
    struct loop *loop;
    struct upstreams *upstreams;
    struct lendings *lendings;
    struct metrics_page *page;
    struct own_names *own_names;
    char *scratch;
    struct http1_head *head;
    struct list_head conns; /* all of them, newest first */
    size_t conn_count;
    size_t max_clients; /* of them, those of clients that fit when all are relayed; 0: not known */
    size_t refused;     /* of them, those that were accepted to be told so; no strangers */
    int gatherers;      /* of them, those whose long bodies come many bytes at a time */
    struct list_head strangers;  /* of them, those that proved nothing; oldest first */
    void (*run)(struct conn *c); /* goes on with a connection; clients.c's */
    struct map callers;
    struct list_head held;        /* conns in state HELD */
    struct loop_timer hold_timer; /* timer of holds.c */
    uint32_t fleet_generation;    /* generation of the place table at the last look */
    uint64_t own_places;          /* hash of the places that this node owns */
    bool draining;
    void (*on_empty)(struct hub *h); /* draining, and the last connection was closed */
    int spare_pipes[HUB_SPARE_PIPES][2];
    int spare_pipe_count;
    uint64_t request_seq;
    uint32_t request_salt;
};

void hub_init(struct hub *h, const struct heritage *heritage, struct loop *l, struct upstreams *u);

/* All connections must be closed before. */
void hub_done(struct hub *h);

/* Writes a new request id, NUL-terminated, and returns it as str over `text`. */
enum { HUB_REQUEST_ID_MAX = 32 };
struct str hub_request_id(struct hub *h, char text[HUB_REQUEST_ID_MAX]);

/* Counts and logs what a worker did wrong: `what`, in a session ("": none) at an upstream (-1). */
void hub_blame_worker(struct hub *h, const char *session, int upstream, const char *what);

/* A pipe for splice, empty; 0 / -1 when there is no descriptor left. */
int hub_take_pipe(struct hub *h, int ret[2]);

/* Gives it back; one that still holds bytes is closed. */
void hub_put_pipe(struct hub *h, int pipe[2], bool empty);

#endif
