/*
 * struct heritage: everything a child inherits from the supervisor, and nothing else crosses the
 * fork. The supervisor fills one per child before the fork; in the child it is constant. What is
 * pointed to was made before the fork: config and model are read-only, board and metrics are
 * shared memory.
 *
 * Duties of a child (struct child in child.h does all but the first two):
 *   - serve on listen_fd, which is already listening and stays open in the supervisor, so that
 *     connections wait there while a dead child is replaced;
 *   - on drain (SIGTERM or SIGINT, sent by anybody, any number of times) finish what runs, give
 *     nothing new a place, end with status 0;
 *   - report readiness once, over status_fd;
 *   - end at once on SIGQUIT or when the supervisor is gone (life_fd reads end of file).
 */
#ifndef RG_PROC_HERITAGE_H
#define RG_PROC_HERITAGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"

enum heritage_role { ROLE_ROUTER, ROLE_WORKER };

struct heritage {
    enum heritage_role role;
    char name[24];  /* "worker-5", "router-0": for logs and metrics */
    uint32_t place; /* 0.. among its kind */
    uint32_t index; /* worker: place + worker_base, the number in session ids */
    unsigned slot;  /* of board and metrics */
    int listen_fd;  /* router: its SO_REUSEPORT socket; worker: its unix socket; non-blocking */
    int status_fd;  /* pipe to the supervisor for status records */
    int life_fd;    /* reads end of file when the supervisor is gone */
    uint64_t started_ms; /* wall clock at the fork */

    const struct config *config;
    struct board *board;
    struct metrics *metrics;
    struct metrics_page *page; /* its own */
    const struct model *model; /* worker: loaded before the fork; NULL in routers */

    /* The worker sockets are RUN_DIR/worker-<index>.sock (heritage_socket_path). The journal of a
     * worker is STATE_DIR/worker-<index>/. A worker also opens, at start, the journals of the
     * places in the board's adoption table that name it. */
    const char *run_dir;
    const char *state_dir;
};

/* RUN_DIR/worker-<index>.sock. -1 when it does not fit (a unix socket path has 107 bytes). */
int heritage_socket_path(const char *run_dir, uint32_t index, char *out, size_t size);

#endif
