/*
 * Control groups (v2) of runs, where the executor may make some below its own (a systemd unit with
 * Delegate=yes, a container, root): a kill reaches all of a run at once, also when its keeper is
 * dead; and an executor that starts ends what one before it left when all of it was killed
 * together.
 *
 *     OWN GROUP/rollgate-<pid>/<number of the run>
 *
 * The folder of an executor is locked while that lives. Where nothing is delegated, killing is
 * left to the keepers (keeper.h). No controller is switched on.
 */
#ifndef RG_RUNNER_CGROUP_H
#define RG_RUNNER_CGROUP_H

/* Makes the executor's folder and ends what dead ones have left beside it. Once in a process;
 * without cgroups the functions below do nothing. */
void cgroup_open(void);

/* A folder for one run; the caller frees it by cgroup_remove. NULL: there is none. */
char *cgroup_make(void);

/* In the run's process, before it executes anything. NULL is accepted, here and below. */
void cgroup_enter(const char *path);
void cgroup_kill(const char *path);
void cgroup_remove(char *path);

/* Removes the executor's folder. */
void cgroup_close(void);

#endif
