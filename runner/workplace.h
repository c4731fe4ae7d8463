/*
 * struct workplaces: the working folders of attempts, WORK/ATTEMPT, each next to the file with the
 * task's input, WORK/ATTEMPT.json.
 *
 * A folder that a run leaves empty and unchanged is renamed for the next attempt, and its input
 * file is overwritten. On some disks making and removing a folder takes milliseconds (a mount with
 * `discard` waits for the device at each rmdir); renaming does not. Remaining folders are removed a
 * second after the last attempt, and when the executor ends. If an executor was killed, the next
 * one in the same WORK removes its folders a second after its start, unless a third executor works
 * there.
 */
#ifndef RG_RUNNER_WORKPLACE_H
#define RG_RUNNER_WORKPLACE_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "common/os/loop.h"

struct executor;

struct workplace {
    char *folder, *input; /* paths, owned; NULL: not made */
};

struct workplaces {
    struct executor *x;
    int lock; /* lock of WORK; -1: not open */
    VEC(struct workplace) spares;
    struct loop_timer tidy;
    VEC(char *) leftovers; /* paths of a killed executor, which must be removed */
};

/* Makes WORK if it is missing, and finds what a killed executor has left there. Returns -1 with
 * ERR_IO. */
RG_MUSTCHECK int workplaces_open(struct workplaces *w, struct executor *x, struct err *e);

/* Removes the spare folders, because the executor ends. No new ones are kept. */
void workplaces_drain(struct workplaces *w);
void workplaces_close(struct workplaces *w);

/* Makes an empty folder with the attempt's name, and the file with the input. Returns -1 with
 * ERR_IO; ret then has what was made. */
RG_MUSTCHECK int workplace_make(struct workplaces *w, const char *attempt, struct str input,
                                struct workplace *ret, struct err *e);

/* Releases the folder of an attempt that is over. If the attempt ended well, so that all its
 * processes have ended, the folder may become a spare. Otherwise it is removed, in the background
 * if that takes long. */
void workplace_leave(struct workplaces *w, struct workplace *place, bool ended_well);

#endif
