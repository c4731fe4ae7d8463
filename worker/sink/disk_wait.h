/*
 * struct disk_wait: a wait of a task (common/os/task.h) until a file or folder is on disk. One task
 * at a time.
 */
#ifndef RG_SINK_DISK_WAIT_H
#define RG_SINK_DISK_WAIT_H

#include "common/base/err.h"
#include "common/os/task.h"

struct loop;
struct syncer;

struct disk_wait {
    struct syncer *syncer; /* NULL: nothing is synced */
    uint64_t ticket;       /* waited for; 0: none */
    int failed;            /* errno */
    struct waiter answered;
};

/* Starts the thread that syncs. `d` stays where it is. */
RG_MUSTCHECK int disk_wait_init(struct disk_wait *d, struct loop *loop, struct err *e);

/* Ends the thread. A zeroed one is fine. */
void disk_wait_done(struct disk_wait *d);

/* Returns when what fd holds now is on disk; at once without a syncer. -1: ERR_IO or
 * ERR_STORAGE_FULL, "cannot sync WHAT", or ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int disk_wait_for(struct disk_wait *d, int fd, const char *what,
                                         struct err *e);

/* Returns when the names in the folder are on disk. Errors as of disk_wait_for. */
MAY_PAUSE RG_MUSTCHECK int disk_wait_folder(struct disk_wait *d, const char *path, struct err *e);

/* The kind of an error of the disk, by errno: ERR_STORAGE_FULL or ERR_IO. */
enum err_kind disk_error_kind(void);

#endif
