/* All segments are opened before the first is read, because a compaction may remove them. If the
 * folder is in use, they are copied instead of mapped, because a compaction truncates dead ones at
 * once. The last segment may end in a record that is being written. So its end is read again a few
 * times before it counts as torn. */

#include "common/journal/scan.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/vec.h"
#include "common/journal/files.h"
#include "common/journal/segment.h"

enum { TRIES = 20 };

/* Reports the records of one segment, and the damage between them. */
static int scan_bytes(uint32_t number, struct str bytes, bool last,
                      const struct scan_events *events, void *ctx, struct err *e)
{
    struct segment_reader in;
    struct journal_record rec;
    size_t at;
    size_t known = 0;

    if (events->segment)
        events->segment(ctx, number, bytes.len);
    if (segment_reader_init(&in, bytes, number, e))
        return -1;
    at = in.at - in.damaged;
    while (segment_reader_next(&in, &rec) == 1) {
        struct scan_record r = {number, in.at - rec.size, rec.id, rec.payload};

        if (in.damaged > known)
            events->damage(ctx, number, at, in.damaged - known, false);
        known = in.damaged;
        events->record(ctx, &r);
        at = in.at;
    }
    if (in.damaged > known)
        events->damage(ctx, number, at, in.damaged - known, false);
    if (in.at < bytes.len || bytes.len == 0)
        events->damage(ctx, number, in.at, bytes.len - in.at, last);
    return 0;
}

/* The open segments of the manifest. A segment that a compaction removes meanwhile can still be
 * read. */
struct opened_segment {
    uint32_t number;
    int fd;
};

struct opened_segments {
    struct opened_segment *at;
    size_t n, cap;
};

static void close_segments(struct opened_segments *v)
{
    for (size_t i = 0; i < v->n; i++)
        (void)close(v->at[i].fd);
    vec_done(v);
}

/* Reads the manifest. Fails if there is none: the folder is not a journal then. */
static int read_numbers(int dirfd, struct numbers *ret, struct err *e)
{
    bool older;

    if (files_read_manifest(dirfd, ret, &older, e))
        return -1;
    return ret->n > 0
               ? 0
               : err_set(e, ERR_IO, "no journal: a folder with a MANIFEST is one (worker-0 ...)");
}

/* Opens all segments. Fails if a compaction removes one first; the caller tries again. */
static int open_segments(int dirfd, struct opened_segments *ret, struct err *e)
{
    struct numbers v = {0};
    int rc = read_numbers(dirfd, &v, e);

    for (size_t i = 0; i < v.n && rc == 0; i++) {
        int fd = files_open_segment(dirfd, v.at[i], false, e);

        rc = fd < 0 ? -1 : 0;
        if (rc == 0)
            *vec_push(ret) = (struct opened_segment){v.at[i], fd};
    }
    vec_done(&v);
    if (rc)
        close_segments(ret);
    return rc;
}

/* Copies the last segment of a running gateway. If it ends in a record that is being written,
 * repeats the copy up to TRIES times. */
static int copy_settled(int fd, uint32_t number, struct str *ret, struct err *e)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000000L};

    for (int i = 0;; i++) {
        struct segment_reader in;
        struct journal_record rec;

        if (files_copy(fd, ret, e) || segment_reader_init(&in, *ret, number, e))
            return -1;
        while (segment_reader_next(&in, &rec) == 1)
            ;
        if (in.at == ret->len || i == TRIES)
            return 0;
        files_unmap(*ret);
        (void)nanosleep(&pause, NULL);
    }
}

int scan_check(const char *dir, struct err *e)
{
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct numbers v = {0};
    int rc;

    if (dirfd < 0)
        return err_sys(e, ERR_IO, "cannot open the folder");
    rc = read_numbers(dirfd, &v, e);
    vec_done(&v);
    (void)close(dirfd);
    return rc;
}

int scan_journal(const char *dir, const struct scan_events *events, void *ctx, struct err *e)
{
    int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct opened_segments v = {0};
    bool live;
    int rc = -1;

    if (dirfd < 0)
        return err_sys(e, ERR_IO, "cannot open the folder");
    live = files_in_use(dirfd);
    for (int i = 0; rc && i < (live ? TRIES : 1); i++)
        rc = open_segments(dirfd, &v, e);
    for (size_t i = 0; i < v.n && rc == 0; i++) {
        bool last = i + 1 == v.n;
        struct str bytes = {0};

        if (!live)
            rc = files_map(v.at[i].fd, true, &bytes, e);
        else if (last)
            rc = copy_settled(v.at[i].fd, v.at[i].number, &bytes, e);
        else
            rc = files_copy(v.at[i].fd, &bytes, e);
        if (rc == 0)
            rc = scan_bytes(v.at[i].number, bytes, last, events, ctx, e);
        files_unmap(bytes);
    }
    close_segments(&v);
    (void)close(dirfd);
    return rc;
}
