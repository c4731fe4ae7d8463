/*
 * Control groups (v2) of runs, if the executor may make groups below its own (a systemd unit with
 * Delegate=yes, a container, root). A kill reaches all processes of a run at once, even if its
 * keeper is dead. A new executor kills what an earlier one left when it was killed with its
 * keepers.
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

/* Moves the run's process into the group, before it executes anything. Accepts NULL, as do all
 * functions below. */
void cgroup_enter(const char *path);
void cgroup_kill(const char *path);
void cgroup_remove(char *path);

/* Removes the executor's folder and its lock. */
void cgroup_close(void);

#endif
