/*
 * struct execution: one claimed attempt on its way:
 *
 *   QUEUED (start rate) -> RUN -> SCORE -> END (reported) -> gone
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
    struct edition *edition; /* the file as it was when this began: holds the next two */
    const struct roster_runner *roster;
    const struct service_way *way;
    struct arena arena; /* holds the claim */
    const struct json *claim;
    const char *id, *session, *agent_key, *runner_key;
    struct str group;
    int64_t rollout, number;

    enum execution_phase phase;
    enum execution_outcome outcome;
    char *reason;
    bool dropped; /* its end is not reported: cancelled, or its lease was lost */
    bool stopped; /* asked to end */
    bool refused; /* its end, as it was at first */
    bool executor_ends;
    int exit_status, signo; /* exit status and signal of the run; exit_status -1: none */

    struct job *job;
    struct http_fetch *service, *end_call;
    struct loop_task begin;  /* its start: those of one claim let the loop renew leases between */
    struct loop_timer timer; /* start, timeout, next try */
    uint64_t retry_ms;
    uint64_t renewal_round; /* the executor's last one that named it */
    struct workplace place;
    struct attempt_log log;
    struct buf line;                                 /* the scorer's last output */
    struct buf reward;                               /* a JSON object */
    uint64_t claimed_ms, run_ms, score_ms, ended_ms; /* monotonic */
    double deadline_s;                               /* since 1970 */
};

/* Takes a claim's attempt up. */
void execution_begin(struct executor *x, const struct json *claim);

enum execution_stop {
    EXECUTION_STOP_DROPPED,  /* cancelled or lost */
    EXECUTION_STOP_DEADLINE, /* its group's */
    EXECUTION_STOP_EXECUTOR, /* this process is to end */
};

/* Begins its end; further calls change nothing unless they drop it. */
void execution_stop(struct execution *a, enum execution_stop why);

/* Whether the gateway still wants its lease renewed. */
bool execution_is_leased(const struct execution *a);

/* --- surroundings.c --- */

/* PATH of a run where the executor has none. */
#define SURROUNDINGS_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The working folder and the file with the input. -1 with ERR_IO. */
int surroundings_make(struct execution *a, struct err *e);

/* All variables of the run, or of the scorer; NULL at the end, in the attempt's arena. */
char **surroundings_variables(struct execution *a, bool scorer);

#endif
