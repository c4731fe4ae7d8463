/*
 * struct disk_wait: lets a task (common/os/task.h) wait until a file or folder is on disk. Serves
 * one task at a time.
 */
#ifndef RG_SINK_DISK_WAIT_H
#define RG_SINK_DISK_WAIT_H

#include "common/base/err.h"
#include "common/os/task.h"

struct loop;
struct syncer;

struct disk_wait {
    struct syncer *syncer; /* NULL: waits return at once */
    uint64_t ticket;       /* ticket of the pending sync; 0: nothing pending */
    int failed;            /* errno of the last sync; 0: it succeeded */
    struct waiter answered;
};

/* Starts the thread that syncs. `d` must not move. Returns -1 and *e on error. */
RG_MUSTCHECK int disk_wait_init(struct disk_wait *d, struct loop *loop, struct err *e);

/* Ends the thread. Accepts a zeroed struct. */
void disk_wait_done(struct disk_wait *d);

/* Waits until the current content of fd is on disk. Returns at once without a syncer. Returns -1
 * with ERR_IO, ERR_STORAGE_FULL ("cannot sync WHAT") or ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int disk_wait_for(struct disk_wait *d, int fd, const char *what,
                                         struct err *e);

/* Waits until the names in the folder are on disk. Fails like disk_wait_for. */
MAY_PAUSE RG_MUSTCHECK int disk_wait_folder(struct disk_wait *d, const char *path, struct err *e);

/* Returns the kind of a disk error by errno: ERR_STORAGE_FULL or ERR_IO. */
enum err_kind disk_error_kind(void);

#endif
