/*
 * Reading asks for one byte more than the file has, so that a single read sees the end. A file
 * without a size (/proc, a pipe) is read in steps; the limit applies to it, too.
 *
 * Writing uses a second name: the bytes are written to `part`, synced if they must survive a power
 * cut, and `part` is renamed. Readers get the old file or the new one. Syncing the folder is a
 * separate call, so that a writer of many files does it once.
 */
#include "common/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

enum { READ_BYTES = 4096 };

/* Returns the number of bytes to ask for: the whole file and one more, so that one read also sees
 * the end. */
static size_t read_size(int fd, size_t max)
{
    struct stat st;

    if (fstat(fd, &st) || st.st_size <= 0 || (uint64_t)st.st_size > max)
        return READ_BYTES;
    return (size_t)st.st_size + 1;
}

int file_read_rest(int fd, const char *name, size_t max, struct buf *out, struct err *e)
{
    size_t start = out->len, step = read_size(fd, max);
    ssize_t n = 1;

    while (n != 0 && out->len - start <= max) {
        n = read(fd, buf_reserve(out, step), step);
        if (n < 0 && errno != EINTR)
            break;
        out->len += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return err_sys(e, ERR_IO, "cannot read %s", name);
    if (out->len - start > max)
        return err_set(e, ERR_CONFIG, "%s is larger than %zu bytes", name, max);
    return 0;
}

struct dirent *file_next_entry(DIR *d)
{
    errno = 0;
    return readdir(d);
}

int file_end_entries(DIR *d, const char *path)
{
    int failure = !d && (errno == ENOENT || errno == ENOTDIR) ? 0 : errno;

    if (d)
        (void)closedir(d);
    if (failure)
        log_warn(NULL, "a folder was not read to its end", LOG_T("folder", path),
                 LOG_T("reason", strerror(failure)));
    errno = failure;
    return failure ? -1 : 0;
}

int file_check_end(FILE *f, const char *name, struct err *e)
{
    return feof(f) && !ferror(f) ? 0 : err_sys(e, ERR_IO, "cannot read %s", name);
}

/* Appends the open file to out, and closes it. A file larger than max is an error, and out has some
 * of its bytes. */
static int read_open(int fd, const char *path, size_t max, struct buf *out, struct err *e)
{
    int rc = file_read_rest(fd, path, max, out, e);

    (void)close(fd);
    return rc;
}

int file_read(const char *path, size_t max, struct buf *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    return read_open(fd, path, max, out, e);
}

int file_read_regular(const char *path, size_t max, struct buf *out, struct err *e)
{
    /* O_NONBLOCK: a pipe without a writer would block */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return read_open(fd, path, max, out, e);
    (void)close(fd);
    return err_set(e, ERR_IO, "%s is not a regular file", path);
}

int file_write_all(int fd, struct str bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.p, bytes.len);

        if (n < 0 && errno != EINTR)
            return -1;
        bytes = str_sub(bytes, n > 0 ? (size_t)n : 0, bytes.len);
    }
    return 0;
}

/* Writes the new file. Returns 0, or -1 with errno; an incomplete file is left. */
static int write_new_file(const char *part, struct str bytes, bool durable)
{
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), failure = 0;

    if (fd < 0)
        return -1;
    if (file_write_all(fd, bytes) || (durable && fsync(fd)))
        failure = errno;
    if (close(fd) && !failure)
        failure = errno;
    errno = failure;
    return failure ? -1 : 0;
}

int file_write(const char *path, const char *part, struct str bytes, bool durable)
{
    int failure;

    if (write_new_file(part, bytes, durable) == 0 && rename(part, path) == 0)
        return 0;
    failure = errno;
    (void)unlink(part);
    errno = failure;
    return -1;
}

uint64_t file_stamp(const char *path)
{
    struct stat st;
    uint64_t parts[3];

    if (stat(path, &st))
        return 0;
    parts[0] = (uint64_t)st.st_ino;
    parts[1] = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    parts[2] = (uint64_t)st.st_size;
    return str_hash(str_of((const char *)parts, sizeof(parts)), 1) | 1;
}

int file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failure = 0;

    if (fd < 0)
        return -1;
    if (fsync(fd))
        failure = errno;
    (void)close(fd);
    errno = failure;
    return failure ? -1 : 0;
}

char *file_absolute_path(const char *path)
{
    struct buf out = {0};
    char *here = NULL;

    if (path[0] != '/') {
        here = getcwd(NULL, 0);
        if (!here)
            return NULL;
        while (path[0] == '.' && path[1] == '/')
            path += 1 + strspn(path + 1, "/");
        if (strcmp(path, ".") == 0)
            path = "";
        buf_printf(&out, "%s%s", strcmp(here, "/") == 0 ? "" : here, *path ? "/" : "");
    }
    buf_puts(&out, path);
    free(here);
    return buf_take(&out);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    (void)remove(path);
    return 0;
}

void file_remove_tree(const char *path)
{
    enum { FOLDERS_OPEN = 16 };

    (void)nftw(path, remove_entry, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
}
