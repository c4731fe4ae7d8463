/*
 * struct execution: one claimed attempt and its phases:
 *
 *   QUEUED (start rate) -> RUN -> SCORE -> END (reported) -> freed
 *
 * The run ends by itself, by its timeout, or because the gateway or the ending executor stops it.
 * The scorer follows every run whose end depends on the agent, so not `infra` and not a
 * cancellation.
 */
#ifndef RG_RUNNER_EXECUTION_H
#define RG_RUNNER_EXECUTION_H

#include "runner/attempt_log.h"
#include "runner/executor.h"
#include "runner/job.h"
#include "runner/post.h"
#include "runner/workplace.h"

enum execution_phase { EXECUTION_QUEUED, EXECUTION_RUN, EXECUTION_SCORE, EXECUTION_END };

enum execution_outcome { EXECUTION_OK, EXECUTION_TIMEOUT, EXECUTION_ERROR, EXECUTION_INFRA };

struct execution {
    struct list_item entry;
    struct executor *x;
    struct slot_row *lane;
    struct edition *edition; /* edition with which the attempt began; it owns the next two */
    const struct roster_runner *roster;
    const struct service_way *way;
    struct arena arena; /* owns the claim */
    const struct json *claim;
    const char *id, *session, *agent_key, *runner_key;
    struct str group;
    int64_t rollout, number;

    enum execution_phase phase;
    enum execution_outcome outcome;
    char *reason;
    bool dropped; /* the end is not reported: the attempt was cancelled, or its lease is lost */
    bool stopped; /* the run was asked to end */
    bool refused; /* the gateway refused the end in its first form */
    bool executor_ends;
    int exit_status, signo; /* exit status and signal of the run; exit_status -1: none */

    struct job *job;
    struct http_fetch *service, *end_call;
    /* begins the attempt; a task, so that leases are renewed between the attempts of one claim */
    struct loop_task begin;
    struct loop_timer timer; /* for start, timeout and the next try */
    uint64_t retry_ms;
    uint64_t renewal_round; /* last renewal of the executor that named the attempt */
    struct workplace place;
    struct attempt_log log;
    struct buf line;                                 /* last line of the scorer's output */
    struct buf reward;                               /* reward, a JSON object */
    uint64_t claimed_ms, run_ms, score_ms, ended_ms; /* monotonic times of the phases */
    double deadline_s;                               /* deadline in seconds since 1970 */
};

/* Begins an attempt from a claim. */
void execution_begin(struct executor *x, const struct json *claim);

enum execution_stop {
    EXECUTION_STOP_DROPPED,  /* the attempt is cancelled or lost */
    EXECUTION_STOP_DEADLINE, /* the deadline of the group has passed */
    EXECUTION_STOP_EXECUTOR, /* the executor is ending */
};

/* Stops the attempt. Further calls change nothing, except EXECUTION_STOP_DROPPED. */
void execution_stop(struct execution *a, enum execution_stop why);

/* Reports whether the gateway expects renewals of the attempt's lease. */
bool execution_is_leased(const struct execution *a);

/* --- surroundings.c --- */

/* PATH of a run if the executor itself has none. */
#define SURROUNDINGS_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Makes the working folder and the file with the input. Returns -1 with ERR_IO. */
int surroundings_make(struct execution *a, struct err *e);

/* Returns all variables of the run or of the scorer, with NULL at the end, in the attempt's
 * arena. */
char **surroundings_variables(struct execution *a, bool scorer);

#endif
