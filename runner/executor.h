/*
 * struct executor: `rollgate runner`: it claims attempts for its slots, runs them, renews their
 * leases and reports their ends. A plain client of the gateway; it holds no state that outlives it.
 * The pieces:
 *
 *   roster.c       the runner file; edition.c: as it was read once
 *   executor.c     claims, renewals, drain
 *   execution.c    one attempt: run, score, end
 *   surroundings.c what an attempt finds: input, variables; workplace.c: its folder
 *   job.c          a process and what it writes; keeper.c, family.c, cgroup.c: nothing of it stays
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

struct execution;

struct executor_options {
    const char *runners;  /* the runner file, read again on SIGHUP */
    const char *gateway;  /* URL */
    const char *name;     /* NULL: the one in the key, else the host's */
    const char *key;      /* NULL: the gateway wants none */
    const char *ca_file;  /* certificates for https; NULL: the system's */
    const char *logs;     /* folder; made */
    const char *work;     /* folder for working folders; made */
    int64_t grace_ms;     /* time for running attempts when the executor ends */
    int64_t reconnect_ms; /* how long the gateway may be away */
};

/* One runner's slots. It stays while the executor lives, whatever becomes of the file. */
struct slot_row {
    char *name;
    const struct roster_runner *roster; /* in the newest edition; NULL: the file has it no more */
    const struct service_way *way;
    int64_t running;
    uint64_t next_start_us; /* monotonic: the start rate allows the next one */
};

struct executor {
    const struct executor_options *options;
    struct loop *loop;
    struct http_client *gateway;
    struct edition *edition; /* the newest */
    struct list_head attempts;
    struct map by_id; /* the attempts by their ids */
    struct workplaces places;
    unsigned busy; /* work that outlives an attempt: folders to remove, cancellations to send */
    bool draining;
};

/* Runs until it is stopped, and returns the exit status. Takes ownership of the roster. -1 with
 * ERR_CONFIG or ERR_IO if it cannot begin. */
int executor_run(struct roster *roster, const struct executor_options *o, struct err *e);

/* For execution.c: the attempt has ended and left the list; it is freed by its caller. */
void executor_slot_free(struct executor *x);

/* The slots of a runner that the file has, or NULL. */
struct slot_row *executor_lane(struct executor *x, struct str runner);

#endif
