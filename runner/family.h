/*
 * The descendants of a process, found in /proc: what a run has started, directly or by double
 * forks, as long as its keeper (keeper.h) is their subreaper.
 */
#ifndef RG_RUNNER_FAMILY_H
#define RG_RUNNER_FAMILY_H

#include <stdbool.h>
#include <sys/types.h>

/* Sends the signal to every living descendant of root; those for which `spare` answers true and
 * theirs are left alone (NULL: nobody is). Returns how many there were. */
unsigned family_signal(pid_t root, int signo, bool (*spare)(pid_t pid));

#endif
