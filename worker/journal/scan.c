#include "worker/journal/scan.h"

#include <fcntl.h>
#include <unistd.h>

#include "worker/journal/files.h"
#include "worker/journal/segment.h"

static void scan_bytes(uint32_t number, struct str bytes, bool last,
                       const struct scan_events *events, void *ctx)
{
    struct segment_reader in;
    struct record rec;
    size_t at;
    size_t known = 0;

    (void)segment_reader_init(&in, bytes, number);
    at = in.at;
    while (segment_reader_next(&in, &rec) == 1) {
        struct scan_record r = {number, in.at - rec.size, rec.id, rec.payload};

        if (in.damaged > known)
            events->damage(ctx, number, at, in.damaged - known, false);
        known = in.damaged;
        events->record(ctx, &r);
        at = in.at;
    }
    if (in.at < bytes.len)
        events->damage(ctx, number, in.at, bytes.len - in.at, last);
}

static int scan_segment(int dirfd, uint32_t number, bool last, const struct scan_events *events,
                        void *ctx, struct err *e)
{
    int fd = files_open_segment(dirfd, number, false, e);
    struct str bytes = {0};
    int rc;

    if (fd < 0)
        return -1;
    rc = files_map(fd, true, &bytes, e);
    if (rc == 0)
        scan_bytes(number, bytes, last, events, ctx);
    files_unmap(bytes);
    (void)close(fd);
    return rc;
}

int scan_journal(const char *dir, const struct scan_events *events, void *ctx, struct err *e)
{
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct numbers v = {0};
    int rc;

    if (dirfd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", dir);
    rc = files_read_manifest(dirfd, &v, e);
    if (rc == 0 && v.n == 0)
        rc = err_set(e, ERR_IO, "%s has no manifest", dir);
    for (size_t i = 0; i < v.n && rc == 0; i++)
        rc = scan_segment(dirfd, v.at[i], i + 1 == v.n, events, ctx, e);
    vec_done(&v);
    (void)close(dirfd);
    return rc;
}
