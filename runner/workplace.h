/*
 * struct workplaces: the working folders of attempts, WORK/ATTEMPT, each next to the file with the
 * task's input, WORK/ATTEMPT.json.
 *
 * A folder that a run leaves empty and unchanged is renamed for the next attempt, and its input
 * file is overwritten. On some disks making and removing a folder takes milliseconds (a mount with
 * `discard` waits for the device at each rmdir); renaming does not. Remaining folders are removed a
 * second after the last attempt, and when the executor ends. The next executor in the same folder
 * removes what a killed one left, a second after its start, unless another executor works there.
 */
#ifndef RG_RUNNER_WORKPLACE_H
#define RG_RUNNER_WORKPLACE_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/os/loop.h"

struct executor;

struct workplace {
    char *folder, *input; /* paths, owned; NULL: none */
};

struct workplaces {
    struct executor *x;
    int lock; /* lock of WORK; -1: not open */
    VEC(struct workplace) spares;
    struct loop_timer tidy;
    VEC(char *) leftovers; /* paths */
};

/* Makes WORK if it is missing and takes away what was left there. -1 with ERR_IO. */
RG_MUSTCHECK int workplaces_open(struct workplaces *w, struct executor *x, struct err *e);

/* The executor is to end: removes the spares; there will be no more. */
void workplaces_drain(struct workplaces *w);
void workplaces_close(struct workplaces *w);

/* An empty folder of the attempt's name, and the file with the input. -1 with ERR_IO; what was made
 * by then is in ret. */
RG_MUSTCHECK int workplace_make(struct workplaces *w, const char *attempt, struct str input,
                                struct workplace *ret, struct err *e);

/* Releases the place of an attempt that is over. If it ended well, so that none of its processes
 * lives, the folder may become a spare. Otherwise it is removed, in the background if that takes
 * long. */
void workplace_leave(struct workplaces *w, struct workplace *place, bool ended_well);

#endif
