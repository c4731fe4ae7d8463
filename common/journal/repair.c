/*
 * A journal opens only if its manifest names existing segments (files.h). The repair writes such a
 * manifest: the old one without its missing segments. If the old one cannot be read, the new one
 * has every segment in the order of numbers. Damaged segments are first copied without the damage.
 */
#include "common/journal/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/journal/files.h"
#include "common/journal/segment.h"

/* Reads the numbers of the manifest, or collects those of the folder's files. Returns 1 if they had
 * to be collected, else 0. Returns -1 and e on error. */
static int read_or_rebuild(int dirfd, const struct repair_events *events, void *ctx,
                           struct numbers *ret, struct err *e)
{
    bool named = files_has_manifest(dirfd), older;

    if (named && files_read_manifest(dirfd, ret, &older, e) == 0)
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

/* Removes missing segments from the list. Returns their number, or -1 and e. */
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

/* Writes the whole records of a segment to `out`, and reports the bytes between them. out -1: only
 * checks. Returns 1 if the segment has damage, else 0. Returns -1 and e on error. */
static int copy_whole(int out, uint32_t number, struct str bytes,
                      const struct repair_events *events, void *ctx, struct err *e)
{
    struct segment_reader in;
    struct journal_record rec;
    size_t at, known = 0;

    if (segment_reader_init(&in, bytes, number, e))
        return -1;
    at = in.at - in.damaged;
    while (segment_reader_next(&in, &rec) == 1) {
        struct iovec part = {(void *)(uintptr_t)(bytes.p + in.at - rec.size), rec.size};

        if (in.damaged > known && out >= 0)
            events->bytes_lost(ctx, number, at, in.damaged - known, false);
        known = in.damaged;
        at = in.at;
        if (out >= 0 && files_append(out, &part, 1, e))
            return -1;
    }
    if ((in.at < bytes.len || bytes.len == 0) && out >= 0)
        events->bytes_lost(ctx, number, in.at, bytes.len - in.at, true);
    return known > 0 || in.damaged > 0 || in.at < bytes.len || bytes.len == 0;
}

/* Rewrites a segment if it has damage. The old file stays under a different name. Returns 1 if it
 * was damaged, else 0. Returns -1 and e on error. */
static int rewrite_segment(int dirfd, uint32_t number, const struct repair_events *events,
                           void *ctx, struct err *e)
{
    int fd = files_open_segment(dirfd, number, false, e), out = -1, rc;
    struct str bytes = {0};

    if (fd < 0)
        return -1;
    rc = files_map(fd, false, &bytes, e);
    if (rc == 0)
        rc = copy_whole(-1, number, bytes, events, ctx, e);
    if (rc == 1) {
        out = files_keep_segment(dirfd, number, e);
        if (out < 0 || copy_whole(out, number, bytes, events, ctx, e) < 0 ||
            files_replace_segment(dirfd, number, out, e))
            rc = -1;
    }
    if (out >= 0)
        (void)close(out);
    files_unmap(bytes);
    (void)close(fd);
    return rc;
}

/* Rewrites all damaged segments. Returns their number, or -1 and e. */
static int rewrite_damaged(int dirfd, const struct numbers *all, const struct repair_events *events,
                           void *ctx, struct err *e)
{
    int n = 0;

    for (size_t i = 0; i < all->n; i++) {
        int rc = rewrite_segment(dirfd, all->at[i], events, ctx, e);

        if (rc < 0)
            return -1;
        n += rc;
    }
    return n;
}

static int repair_folder(int dirfd, const struct repair_events *events, void *ctx, struct err *e)
{
    struct numbers all = {0};
    int rebuilt, missing = 0, damaged = 0;

    rebuilt = files_lock(dirfd, 0, e) ? -1 : read_or_rebuild(dirfd, events, ctx, &all, e);
    if (rebuilt >= 0)
        missing = drop_missing(dirfd, events, ctx, &all, e);
    if (rebuilt >= 0 && missing >= 0)
        damaged = rewrite_damaged(dirfd, &all, events, ctx, e);
    if (rebuilt < 0 || missing < 0 || damaged < 0 ||
        (rebuilt + missing > 0 &&
         (files_keep_manifest(dirfd, e) || files_write_manifest(dirfd, all.at, all.n, true, e)))) {
        vec_done(&all);
        return -1;
    }
    vec_done(&all);
    (void)fsync(dirfd);
    return rebuilt + missing + damaged > 0;
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
