#include "worker/sink/disk_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/journal/syncer.h"

static void on_synced(void *ctx, uint64_t ticket, int failed, uint64_t took_us)
{
    struct disk_wait *d = ctx;

    (void)took_us;
    if (d->ticket == 0 || ticket < d->ticket)
        return;
    d->ticket = 0;
    d->failed = failed;
    waiter_wake(&d->answered);
}

int disk_wait_init(struct disk_wait *d, struct loop *loop, struct err *e)
{
    return syncer_new(loop, on_synced, d, &d->syncer, e);
}

void disk_wait_done(struct disk_wait *d)
{
    syncer_free(d->syncer);
}

enum err_kind disk_error_kind(void)
{
    return errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_IO;
}

int disk_wait_for(struct disk_wait *d, int fd, const char *what, struct err *e)
{
    if (!d->syncer)
        return 0;
    d->ticket = syncer_ask(d->syncer, fd);
    if (task_wait(&d->answered, e)) {
        d->ticket = 0;
        return -1;
    }
    errno = d->failed;
    return d->failed ? err_sys(e, disk_error_kind(), "cannot sync %s", what) : 0;
}

int disk_wait_folder(struct disk_wait *d, const char *path, struct err *e)
{
    int fd, rc;

    if (!d->syncer)
        return 0;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, disk_error_kind(), "cannot sync %s", path);
    rc = disk_wait_for(d, fd, path, e);
    (void)close(fd);
    return rc;
}
