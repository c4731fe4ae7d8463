/*
 * The manifest that a journal opens with must name segments that are there (files.h). This writes
 * one that does: the old one without its missing segments or, if it cannot be read, one with every
 * segment in the order of their numbers.
 */
#include "common/journal/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "common/journal/files.h"

/* The manifest's numbers, or those of the folder's files. Returns whether they had to be rebuilt;
 * -1 and e. */
static int read_or_rebuild(int dirfd, const struct repair_events *events, void *ctx,
                           struct numbers *ret, struct err *e)
{
    bool named = files_has_manifest(dirfd);

    if (named && files_read_manifest(dirfd, ret, e) == 0)
        return 0;
    if (named && e->kind == ERR_UNSUPPORTED)
        return -1;
    ret->n = 0;
    if (files_list_segments(dirfd, ret, e))
        return -1;
    if (!named && ret->n == 0)
        return err_set(e, ERR_IO, "no journal: a folder with a MANIFEST is one (worker-0 ...)");
    events->manifest_rebuilt(ctx, named ? e->text : "there is no manifest");
    return 1;
}

/* Takes missing segments out of the list. Returns how many there were; -1 and e. */
static int drop_missing(int dirfd, const struct repair_events *events, void *ctx,
                        struct numbers *all, struct err *e)
{
    size_t kept = 0;
    int missing;

    for (size_t i = 0; i < all->n; i++) {
        int fd = files_open_segment(dirfd, all->at[i], false, e);

        if (fd >= 0) {
            (void)close(fd);
            all->at[kept++] = all->at[i];
        } else if (e->sys == ENOENT) {
            events->segment_missing(ctx, all->at[i]);
        } else {
            return -1;
        }
    }
    missing = (int)(all->n - kept);
    all->n = kept;
    return missing;
}

static int repair_folder(int dirfd, const struct repair_events *events, void *ctx, struct err *e)
{
    struct numbers all = {0};
    int rebuilt, missing = 0;

    rebuilt = files_lock(dirfd, 0, e) ? -1 : read_or_rebuild(dirfd, events, ctx, &all, e);
    if (rebuilt >= 0)
        missing = drop_missing(dirfd, events, ctx, &all, e);
    if (rebuilt < 0 || missing < 0 ||
        (rebuilt + missing > 0 &&
         (files_keep_manifest(dirfd, e) || files_write_manifest(dirfd, all.at, all.n, true, e)))) {
        vec_done(&all);
        return -1;
    }
    vec_done(&all);
    (void)fsync(dirfd);
    return rebuilt + missing > 0;
}

int journal_repair(const char *dir, const struct repair_events *events, void *ctx, struct err *e)
{
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

    if (dirfd < 0)
        return err_sys(e, ERR_IO, "cannot open the folder");
    rc = repair_folder(dirfd, events, ctx, e);
    (void)close(dirfd);
    return rc;
}
