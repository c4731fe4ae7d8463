/*
 * The descendants of a process, found in /proc: everything that a run has started, directly or by
 * double forks, while its keeper (job.c) is their subreaper.
 */
#ifndef RG_RUNNER_FAMILY_H
#define RG_RUNNER_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum kinship { KIN_UNKNOWN, KIN_ASKED, KIN_OURS, KIN_OTHERS };

/* A process as read from /proc. */
struct relative {
    pid_t pid, parent;
    bool dead;
    enum kinship kin;
};

/* Sorts the processes by pid and finds which of them descend from root. `spare` as in
 * family_signal. */
void family_find(struct relative *all, size_t n, pid_t root, bool (*spare)(pid_t pid));

/* Sends the signal to every living descendant of root, except those for which `spare` returns true,
 * and their descendants (NULL: no exception). Returns the number of signalled processes. */
unsigned family_signal(pid_t root, int signo, bool (*spare)(pid_t pid));

#endif
