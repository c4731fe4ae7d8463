/*
 * struct executor: `rollgate runner`: it claims attempts for its slots, runs them, renews their
 * leases and reports their ends. It is an ordinary client of the gateway and keeps no state after
 * its end. The files:
 *
 *   roster.c       the runner file; edition.c: its content at one reading
 *   executor.c     claims, renewals, drain
 *   execution.c    one attempt: run, score, end
 *   surroundings.c input and variables of an attempt; workplace.c: its folder
 *   job.c          a process, its keeper and its output; family.c, cgroup.c: ends all its processes
 *   post.c         a call of the gateway or of a service
 *   command.c      the command line
 */
#ifndef RG_RUNNER_EXECUTOR_H
#define RG_RUNNER_EXECUTOR_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "runner/edition.h"
#include "runner/workplace.h"

struct executor_options {
    const char *runners;  /* path of the runner file, read again on SIGHUP */
    const char *gateway;  /* URL */
    const char *name;     /* NULL: the name in the key, else the host's */
    const char *key;      /* NULL: the gateway needs no key */
    const char *ca_file;  /* certificates for https; NULL: the system's */
    const char *logs;     /* folder of logs; made if it is missing */
    const char *work;     /* parent of working folders; made if it is missing */
    int64_t grace_ms;     /* time for running attempts when the executor ends */
    int64_t reconnect_ms; /* time for which the gateway may be unreachable */
};

/* Slots of one runner. The struct exists as long as the executor, even if the file no longer has
 * the runner. */
struct slot_row {
    char *name;
    /* in the newest edition; NULL: the file no longer has the runner */
    const struct roster_runner *roster;
    const struct service_way *way;
    int64_t running;
    uint64_t next_start_us; /* monotonic: time at which the start rate permits the next start */
};

struct executor {
    const struct executor_options *options;
    struct loop *loop;
    struct http_client *gateway;
    struct edition *edition; /* the newest edition */
    struct list_head attempts;
    struct map by_id; /* attempts by their ids */
    struct workplaces places;
    /* amount of work that outlives an attempt: folders to remove, cancellations to send */
    unsigned busy;
    bool draining;
};

/* Runs until it is stopped. Returns the exit status, or -1 with ERR_CONFIG or ERR_IO if it cannot
 * begin. Takes ownership of the roster. */
int executor_run(struct roster *roster, const struct executor_options *o, struct err *e);

/* For execution.c: frees the slot of an attempt that has ended and left the list. The caller frees
 * the attempt. */
void executor_slot_free(struct executor *x);

/* Returns the slots of a runner, or NULL if the file does not have it. */
struct slot_row *executor_lane(struct executor *x, struct str runner);

#endif
