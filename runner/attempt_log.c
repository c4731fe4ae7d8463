/*
 * The file while an attempt writes:
 *
 *   | the first 2 MB, as they came | a ring of nearly 2 MB, written round and round |
 *
 * So the file never exceeds the limit, however much a run prints, and it has the end of a run that
 * was killed. Closing writes the ring in order, after a line with the number of missing bytes. The
 * tail in memory is separate from the file, so that a result has it even if the disk is full.
 */
#include "runner/attempt_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"

/* The file during writing: HEAD bytes as they came, then a ring of RING bytes. */
enum { HEAD = ATTEMPT_LOG_MAX / 2, RING = ATTEMPT_LOG_MAX / 2 - 128 };

static void log_trouble(struct attempt_log *l, const char *what)
{
    log_warn(NULL, what, LOG_T("path", l->path), LOG_T("reason", strerror(errno)));
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* Appends a group's id as one folder name: without slashes, and not hidden. */
static void add_group_name(struct buf *path, struct str group)
{
    if (group.len == 0 || group.p[0] == '.')
        buf_add_c(path, '_');
    for (size_t i = 0; i < group.len && i < 200; i++)
        buf_add_c(path, group.p[i] == '/' || group.p[i] == '\0' ? '_' : group.p[i]);
}

void attempt_log_open(struct attempt_log *l, const char *logs, struct str group, int64_t rollout,
                      int64_t attempt)
{
    struct buf path = {0};

    *l = (struct attempt_log){.fd = -1};
    buf_printf(&path, "%s/", logs);
    add_group_name(&path, group);
    l->path = mem_strndup(path.p, path.len);
    if (mkdir(l->path, 0777) && errno != EEXIST) {
        log_trouble(l, "an attempt's log cannot be made");
    } else {
        buf_printf(&path, "/%lld.%lld.log", (long long)rollout, (long long)attempt);
        free(l->path);
        l->path = mem_strndup(path.p, path.len);
        l->fd = open(l->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (l->fd < 0)
            log_trouble(l, "an attempt's log cannot be made");
    }
    buf_done(&path);
}

static int write_at(int fd, struct str bytes, uint64_t at)
{
    while (bytes.len > 0) {
        ssize_t n = pwrite(fd, bytes.p, bytes.len, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        bytes = str_sub(bytes, (size_t)n, bytes.len);
        at += (uint64_t)n;
    }
    return 0;
}

static void keep_tail(struct attempt_log *l, struct str bytes)
{
    buf_add_str(&l->tail, bytes.len > ATTEMPT_LOG_TAIL
                              ? str_sub(bytes, bytes.len - ATTEMPT_LOG_TAIL, ATTEMPT_LOG_TAIL)
                              : bytes);
    if (l->tail.len > ATTEMPT_LOG_TAIL)
        buf_consume(&l->tail, l->tail.len - ATTEMPT_LOG_TAIL);
}

void attempt_log_add(struct attempt_log *l, struct str bytes)
{
    keep_tail(l, bytes);
    while (l->fd >= 0 && bytes.len > 0) {
        uint64_t at = l->total, room = HEAD - at;

        if (l->total >= HEAD) {
            at = HEAD + (l->total - HEAD) % RING;
            room = HEAD + RING - at;
        }
        if (write_at(l->fd, str_sub(bytes, 0, (size_t)MIN_OF(room, bytes.len)), at)) {
            log_trouble(l, "an attempt's log cannot be written");
            return;
        }
        l->total += MIN_OF(room, bytes.len);
        bytes = str_sub(bytes, (size_t)MIN_OF(room, bytes.len), bytes.len);
    }
}

/* Rewrites the ring in order, oldest byte first, after a line with the number of missing bytes. */
static int unroll_ring(struct attempt_log *l)
{
    uint64_t split = (l->total - HEAD) % RING;
    char *ring = mem_alloc(RING);
    struct buf out = {0};
    int rc = -1;

    if (pread(l->fd, ring, RING, HEAD) == RING) {
        buf_printf(&out, "\n[rollgate: %llu bytes left out]\n",
                   (unsigned long long)(l->total - HEAD - RING));
        buf_add(&out, ring + split, RING - split);
        buf_add(&out, ring, split);
        rc = write_at(l->fd, buf_str(&out), HEAD);
    }
    buf_done(&out);
    free(ring);
    return rc;
}

void attempt_log_close(struct attempt_log *l)
{
    if (l->fd >= 0 && l->total > HEAD + RING && unroll_ring(l))
        log_trouble(l, "an attempt's log cannot be completed");
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

void attempt_log_tail(const struct attempt_log *l, struct buf *out)
{
    struct str rest = buf_str(&l->tail);

    for (unsigned i = 0; i < 3 && rest.len > 0 && ((unsigned char)rest.p[0] & 0xC0) == 0x80; i++)
        rest = str_sub(rest, 1, rest.len); /* the rest of a character whose beginning is lost */
    while (rest.len > 0) {
        size_t good = utf8_valid_len(rest);

        buf_add(out, rest.p, good);
        rest = str_sub(rest, good, rest.len);
        if (rest.len == 0)
            break;
        buf_add_c(out, '?');
        rest = str_sub(rest, 1, rest.len);
    }
}

void attempt_log_done(struct attempt_log *l)
{
    attempt_log_close(l);
    buf_done(&l->tail);
    free(l->path);
    *l = (struct attempt_log){.fd = -1};
}
