/*
 * struct executor: `rollgate runner`: it claims attempts for its slots, runs them, renews their
 * leases and tells how they ended. A plain client of the gateway; it holds no state that outlives
 * it. The pieces:
 *
^ *   roster.c       the runner file
 *   executor.c     claims, renewals, drain
 *   execution.c    one attempt: run, score, end
 *   surroundings.c what an attempt finds: folder, input, variables
 *   job.c          a process and what it writes; keeper.c, family.c: nothing of it stays
 *   post.c         a call of the gateway or of a service
 *   command.c      the command line
 */
#ifndef RG_RUNNER_EXECUTOR_H
#define RG_RUNNER_EXECUTOR_H

#include "common/base/list.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "runner/roster.h"

struct execution;

struct executor_options {
    const char *gateway;  /* URL */
    const char *name;     /* NULL: the one in the key, else the host's */
    const char *key;      /* NULL: the gateway wants none */
    const char *logs;     /* folder; made */
    const char *work;     /* folder for working folders; made */
    int64_t grace_ms;     /* of running attempts, once the executor is to end */
    int64_t reconnect_ms; /* how long the gateway may be away */
};

/* One runner's slots. */
struct slot_row {
    const struct roster_runner *roster;
    int64_t running;
    uint64_t next_start_us;                  /* monotonic: the start rate allows the next one */
    struct http_client *service, *canceller; /* of an http runner */
    char *service_path, *cancel_path;
};

struct executor {
    const struct executor_options *options;
    struct loop *loop;
    struct http_client *gateway;
    const struct roster *roster;
    struct slot_row *lanes; /* as many as the roster has runners */
    struct list_head attempts;
    unsigned busy; /* what outlives an attempt: folders removed, cancellations sent */
    bool draining;
};

/* Runs until it is told to end; the exit status. -1 with ERR_CONFIG or ERR_IO: it cannot begin. */
int executor_run(const struct roster *roster, const struct executor_options *o, struct err *e);

/* For attempt.c: the attempt has ended and left the list; it is freed by its caller. */
void executor_slot_free(struct executor *x);

/* The way to a service: a client for scheme and host, and the path. */
int executor_service(struct loop *l, const char *url, struct http_client **ret, char **ret_path,
                     struct err *e);

#endif
