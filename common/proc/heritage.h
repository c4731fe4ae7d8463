/*
 * struct heritage: everything that a child inherits from the supervisor; nothing else crosses the
 * fork. The supervisor fills one per child before the fork. In the child it is constant. Everything
 * that it points to was made before the fork: the model is read-only, board and metrics are shared
 * memory.
 *
 * Duties of a child (struct child in child.h does all but the first two):
 *   - serve on listen_fd, which is already listening and stays open in the supervisor, so that
 *     connections wait there while a dead child is replaced;
 *   - on drain (SIGTERM or SIGINT, from any sender, any number of times) finish what runs, accept
 *     nothing new, end with status 0;
 *   - report readiness once, over status_fd;
 *   - end at once on SIGQUIT or when the supervisor has ended (control_fd reads end of file).
 *
 * Adoption. A place is an index with its unix socket and its journal folder. A worker serves its
 * own place and those in `adopted`, whose workers were removed by scaling. It accepts on their
 * sockets as on its own, replays their journals at start and goes on appending to them, so the
 * sessions keep ids, tokens and home. A place may also come while the worker runs (child_adopt_fn
 * in child.h). Its former worker has closed the journal by then, and requests for the place wait in
 * the socket's queue until the adopter accepts. New sessions always get the worker's own index.
 */
#ifndef RG_PROC_HERITAGE_H
#define RG_PROC_HERITAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct board;
struct buf;
struct json_out;
struct config;
struct metrics;
struct metrics_page;
struct model;
struct place_table;

enum heritage_role { ROLE_ROUTER, ROLE_WORKER, ROLE_DISPATCHER, ROLE_KEEPER };

/* Facts of this build and model that nodes of a fleet compare. */
struct heritage_build {
    uint64_t tokenizer;                    /* fingerprint; 0: not known */
    uint32_t oldest_record, newest_record; /* versions of journal records that it reads */
    uint32_t usual_record;                 /* that it writes; marks of doubt are the newest */
};

/* Further addresses of the host name in --listen. */
enum { HERITAGE_ALSO_MAX = 7 };

struct heritage_place {
    uint32_t place;
    uint32_t index; /* board_index */
    int listen_fd;
};

struct heritage {
    enum heritage_role role;
    char name[24]; /* "worker-5", "router-0": for logs and metrics */
    /* number among the processes of its kind in this gateway, from 0 (docs/terms.md) */
    uint32_t place;
    uint32_t index; /* worker: board_index of the place, the number in session ids */
    unsigned slot;  /* slot of board and metrics */
    int listen_fd;  /* router: its SO_REUSEPORT socket; worker: its unix socket; non-blocking */
    int also[HERITAGE_ALSO_MAX]; /* router: further sockets, which all routers accept on */
    unsigned n_also;
    /* another program keeps the port's sockets open for the next instance (systemd) */
    bool port_kept;
    int status_fd; /* pipe to the supervisor for status records */
    /* socket from the supervisor: orders; end of file when the supervisor has ended */
    int control_fd;
    /* worker: places that it serves from the start in addition to its own */
    const struct heritage_place *adopted;
    size_t n_adopted;

    struct config *config; /* changed by reloads only (child.h) */
    struct board *board;
    struct metrics *metrics;
    struct metrics_page *page;   /* page of this process */
    struct place_table *fleet;   /* common/fleet/place_table.h; NULL without --fleet */
    struct heritage_build build; /* keeper */
    bool upgraded;               /* keeper: this gateway runs on after an upgrade */
    const struct model *model;   /* worker: loaded before the fork; NULL in routers */

    /* Base of the unix sockets: a place's socket is RUN_DIR/worker-<worker_base + place>.sock
     * (heritage_socket_path). Its journal is STATE_DIR/worker-<index>/. */
    const char *run_dir;
    const char *state_dir;
};

/* Weight of a running call in the load of a node; that of a session is 1. */
enum { HERITAGE_CALL_WEIGHT = 4 };

/* The load of this node. */
struct heritage_load {
    /* live sessions, running calls, most live sessions (0: it takes no new ones) */
    uint32_t sessions, calls, capacity;
    uint32_t load; /* in thousandths of the capacity */
};

void heritage_measure_load(const struct heritage *h, struct heritage_load *ret);

/* Reports whether the worker in the slot obeys the newest orders that its node knows. Only in a
 * fleet. */
bool heritage_obeys(const struct heritage *h, unsigned slot);

/* Answers /ready like board_check_ready. A node of a fleet must also obey the fleet's orders. If
 * its dispatcher starts, which may have been another node's, requests for groups wait, and a front
 * sends it others. Without a fleet the dispatcher must have started. */
int heritage_check_ready(const struct heritage *h, const char **ret_reason);

/* Writes the path of the dispatcher's socket, RUN_DIR/dispatcher.sock. Returns like
 * heritage_socket_path. */
int heritage_dispatcher_path(const char *run_dir, char *out, size_t size);

/* Writes RUN_DIR/worker-<index>.sock. Returns -1 if it does not fit (a unix socket path has at most
 * 107 bytes). */
int heritage_socket_path(const char *run_dir, uint32_t index, char *out, size_t size);

/* Writes an element for each other node into a list: "FIRST-LAST=HOST:PORT", as in --peer, or in a
 * fleet its name. Lists and orders cover the workers of one node only, and these elements name the
 * rest. */
void heritage_put_peers(const struct heritage *h, struct json_out *out);

/* Appends the same list as text, "FIRST-LAST=HOST:PORT, ...". indexes_only: without addresses, for
 * answers that need no key. */
void heritage_list_peers(const struct heritage *h, bool indexes_only, struct buf *out);

/* Writes a member "unreachable" with the peers into an object. Writes nothing without peers, and in
 * a fleet, whose orders reach all nodes. */
void heritage_put_unreachable(const struct heritage *h, struct json_out *out);

/* Appends an object with only the member of heritage_put_unreachable, or an empty object. */
void heritage_write_unreachable(const struct heritage *h, struct buf *out);

#endif
