/*
 * Limits the files that a child may use from its start on, if the kernel has Landlock (5.19 or
 * newer, such as Debian 12's):
 *   - reading: the system's own folders (/etc, /usr, /lib, /proc, /sys, /dev, /run/systemd), those
 *     of the settings' files (keys, certificates, template, configuration), and the model;
 *   - reading and writing: workers and the dispatcher in the state and run folders, workers in file
 *     sinks' and their parents (a folder that vanishes is made again); routers only read there;
 *   - executing: nothing.
 *
 * So a file that a reload names must be in the folder of an earlier one, or in /etc.
 */
#ifndef RG_SUPERVISOR_LANDLOCK_H
#define RG_SUPERVISOR_LANDLOCK_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/proc/heritage.h"

/* Reports whether the kernel has Landlock in the needed version. */
bool landlock_here(void);

/* Confines the calling process, which must have no_new_privs. Returns 0, even if the kernel has no
 * Landlock; -1 with ERR_UNSUPPORTED if the kernel refuses. */
int landlock_enter(const struct heritage *h, struct err *e);

#endif
