/*
 * A keeper: the process between the executor and one run. It is the subreaper of all processes that
 * the run starts, so none escapes by forking twice. It ends when all of them have ended:
 *
 *     executor -> keeper -> the run (own session and group) -> ...
 *
 *   the run ends          processes that it left are killed, the status is reported
 *   TERM to the keeper    TERM to all, KILL after the grace
 *   the executor dies     KILL to all, at once
 */
#ifndef RG_RUNNER_KEEPER_H
#define RG_RUNNER_KEEPER_H

#include <stdint.h>
#include <sys/types.h>

#include "common/base/attrs.h"

struct keeper_order {
    char *const *argv;  /* program and arguments; argv[0] is searched in the executor's PATH */
    char *const *envp;  /* the run's whole environment */
    const char *folder; /* working folder */
    const char *cgroup; /* path of the run's group; NULL: none */
    uint64_t grace_ms;
    int out_fd, err_fd, report_fd; /* write ends of pipes */
    pid_t executor;
};

/* The keeper's one report on report_fd, at its end. */
struct keeper_report {
    enum { KEEPER_NOT_STARTED = 1, KEEPER_ENDED } kind;

    int value; /* an errno or a wait status, depending on the kind */
};

/* Runs the keeper in the forked child; never returns. */
RG_NORETURN void keeper_run(const struct keeper_order *o);

#endif
