/*
 * struct listeners: every listening socket of the gateway. The supervisor opens them before the
 * first fork and keeps them, so that no connection is refused while a child is replaced.
 *   - routers[i]: SO_REUSEPORT sockets on --listen. Sockets given by systemd (LISTEN_FDS) are used
 *     as they are. If there are fewer than routers, several routers accept on one.
 *   - also[]: one socket for each further address of a name (`localhost` is 127.0.0.1 and ::1);
 *     every router accepts on them.
 *   - workers[place]: unix sockets RUN_DIR/worker-<index>.sock.
 *   - dispatcher: the unix socket RUN_DIR/dispatcher.sock.
 *
 * All are non-blocking, close-on-exec and listen with a backlog of 4096. TCP ones have TCP_NODELAY
 * and TCP_NOTSENT_LOWAT, which accepted sockets inherit. A lock on RUN_DIR prevents a second
 * gateway from using the same unix sockets.
 */
#ifndef RG_SUPERVISOR_LISTENERS_H
#define RG_SUPERVISOR_LISTENERS_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"

struct config;

struct listeners {
    int routers[BOARD_ROUTERS_MAX]; /* -1: not open */
    int workers[BOARD_WORKERS_MAX]; /* -1: not open */
    int dispatcher;                 /* -1: not open */
    int given[BOARD_ROUTERS_MAX];   /* TCP sockets from LISTEN_FDS */
    unsigned n_given;
    int also[HERITAGE_ALSO_MAX]; /* sockets on further addresses: of --listen's name, or given */
    unsigned n_also;
    /* the giver (systemd) keeps the sockets open, so connections may wait for the next instance
     * while this one drains */
    bool kept;
    bool aside; /* this is a trial (upgrade.h), on a loopback port of its own */
    int lock_fd;
    char address[80]; /* listening address with its actual port: "127.0.0.1:8600" */
};

/* Starts with every socket closed. */
void listeners_init(struct listeners *l);

/* Checks whether --listen is an address that we may listen on. Returns -1 with ERR_CONFIG. */
int listeners_check(const struct config *c, struct err *e);

/* Makes the state and run folders, which must be writable. */
int listeners_folders(const struct config *c, struct err *e);

/* Takes inherited sockets and opens the address for the configured number of routers. Returns -1
 * with ERR_CONFIG (wrong address, or no keys beyond loopback) or ERR_IO. */
int listeners_open(struct listeners *l, const struct config *c, struct err *e);
void listeners_close(struct listeners *l);

/* Opens router i's socket unless it is open. Sockets shared by routers are duplicated. */
int listeners_router(struct listeners *l, const struct config *c, unsigned i, struct err *e);

/* Opens the unix socket of a place unless it is open. */
int listeners_worker(struct listeners *l, const struct config *c, unsigned place, struct err *e);

/* Closes the TCP sockets. Routers have their own copies, whose last one refuses connections when it
 * closes. */
void listeners_close_tcp(struct listeners *l);

/* Closes it, so that connections in its queue end. */
void listeners_close_worker(struct listeners *l, unsigned place);
void listeners_close_dispatcher(struct listeners *l);

/* Opens the socket of the dispatcher, or takes the inherited one. */
int listeners_dispatcher(struct listeners *l, const struct config *c, struct err *e);

/* listeners_hand_over prepares an exec: the sockets are inherited, RG_SOCKETS names their
 * descriptors, and the run folder is unlocked. The other function undoes that. */
void listeners_hand_over(struct listeners *l);
void listeners_keep(struct listeners *l);

#endif
