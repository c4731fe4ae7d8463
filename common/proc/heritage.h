/*
 * struct heritage: everything a child inherits from the supervisor, and nothing else crosses the
 * fork. The supervisor fills one per child before the fork; in the child it is constant. What is
 * pointed to was made before the fork: the model is read-only, board and metrics are
 * shared memory.
 *
 * Duties of a child (struct child in child.h does all but the first two):
 *   - serve on listen_fd, which is already listening and stays open in the supervisor, so that
 *     connections wait there while a dead child is replaced;
 *   - on drain (SIGTERM or SIGINT, sent by anybody, any number of times) finish what runs, give
 *     nothing new a place, end with status 0;
 *   - report readiness once, over status_fd;
 *   - end at once on SIGQUIT or when the supervisor is gone (control_fd reads end of file).
 *
 * Adoption. A place is an index with its unix socket and its journal folder. A worker serves its
 * own place and those in `adopted`: places whose worker was scaled away. It accepts on their
 * sockets as on its own, replays their journals at start and goes on appending to them, so the
 * sessions keep ids, tokens and home. A place may also come while the worker runs (child_adopt_fn
 * in child.h): its former worker has closed the journal by then, and requests for it wait in the
 * socket's queue until the adopter accepts. New sessions always get the worker's own index.
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

enum heritage_role { ROLE_ROUTER, ROLE_WORKER, ROLE_DISPATCHER };

/* Further addresses of the name that --listen gives. */
enum { HERITAGE_ALSO_MAX = 7 };

struct heritage_place {
    uint32_t place;
    uint32_t index; /* place + worker_base */
    int listen_fd;
};

struct heritage {
    enum heritage_role role;
    char name[24];  /* "worker-5", "router-0": for logs and metrics */
    uint32_t place; /* 0.. among its kind, in this gateway (docs/terms.md) */
    uint32_t index; /* worker: place + worker_base, the number in session ids */
    unsigned slot;  /* slot of board and metrics */
    int listen_fd;  /* router: its SO_REUSEPORT socket; worker: its unix socket; non-blocking */
    int also[HERITAGE_ALSO_MAX]; /* router: further sockets, which all routers accept on */
    unsigned n_also;
    bool port_kept; /* somebody keeps the port's sockets open for the next instance (systemd) */
    int status_fd;  /* pipe to the supervisor for status records */
    int control_fd; /* socket from the supervisor: orders; end of file when it is gone */
    const struct heritage_place *adopted; /* worker; places that are its from the start */
    size_t n_adopted;

    struct config *config; /* changed by reloads only (child.h) */
    struct board *board;
    struct metrics *metrics;
    struct metrics_page *page; /* its own */
    const struct model *model; /* worker: loaded before the fork; NULL in routers */

    /* A place's socket is RUN_DIR/worker-<index>.sock (heritage_socket_path), its journal
     * STATE_DIR/worker-<index>/. */
    const char *run_dir;
    const char *state_dir;
};

/* The same of the dispatcher: RUN_DIR/dispatcher.sock. */
int heritage_dispatcher_path(const char *run_dir, char *out, size_t size);

/* RUN_DIR/worker-<index>.sock. -1 when it does not fit (a unix socket path has 107 bytes). */
int heritage_socket_path(const char *run_dir, uint32_t index, char *out, size_t size);

/* Lists and orders cover the workers of one node. Writes an element "FIRST-LAST=HOST:PORT" for each
 * other node, as --peer has them, within a list. */
void heritage_put_peers(const struct heritage *h, struct json_out *out);

/* Appends the same list as text, "FIRST-LAST=HOST:PORT, ...". With `indexes_only` without the
 * addresses, for answers that need no key. */
void heritage_list_peers(const struct heritage *h, bool indexes_only, struct buf *out);

/* Writes a member "unreachable" with that list, within an object. Writes nothing without peers. */
void heritage_put_unreachable(const struct heritage *h, struct json_out *out);

/* Appends an object that has that member alone, or none. */
void heritage_write_unreachable(const struct heritage *h, struct buf *out);

#endif
