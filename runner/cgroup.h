/*
 * Control groups (v2) of runs, if the executor may make groups below its own (a systemd unit with
 * Delegate=yes, a container, root). A kill reaches all processes of a run at once, even if its
 * keeper is dead. A new executor kills the runs of an earlier one that was killed with its keepers.
 *
 *     OWN GROUP/rollgate-<pid>/<number of the run>
 *
 * The folder of a living executor is locked. Without delegation only the keepers kill (job.c).
 * No controller is switched on.
 */
#ifndef RG_RUNNER_CGROUP_H
#define RG_RUNNER_CGROUP_H

/* Makes the executor's folder, and ends runs of dead executors next to it. Call it once in a
 * process. Without cgroups the functions below do nothing. */
void cgroup_open(void);

/* Makes a folder for one run; cgroup_remove frees it. Returns NULL if there are no cgroups. */
char *cgroup_make(void);

/* Moves the run's process into the group, before it executes anything. Accepts NULL, as do all
 * functions below. */
void cgroup_enter(const char *path);
void cgroup_kill(const char *path);
void cgroup_remove(char *path);

/* Removes the executor's folder and its lock. */
void cgroup_close(void);

#endif
