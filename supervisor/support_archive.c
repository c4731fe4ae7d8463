/* The tar file is POSIX ustar: each file has a header of 512 bytes and is padded to a multiple of
 * 512. Two empty blocks end the archive. */
#include "supervisor/support_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 512, AT_MODE = 100, AT_SIZE = 124, AT_MTIME = 136, AT_SUM = 148, AT_TYPE = 156 };

static int write_archive(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t did = write(fd, p, n);

        if (did < 0 && errno == EINTR)
            continue;
        if (did <= 0)
            return -1;
        p += did;
        n -= (size_t)did;
    }
    return 0;
}

int support_archive_open(struct support_archive *a, const char *path, struct err *e)
{
    size_t n = strlen(path);

    *a = (struct support_archive){.path = path, .fd = -1};
    a->tar = n > 4 && strcmp(path + n - 4, ".tar") == 0;
    if (a->tar)
        a->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    else if (mkdir(path, 0700) == 0)
        a->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a->fd < 0 ? err_sys(e, ERR_IO, "cannot make %s", path) : 0;
}

/* Writes one file. Its header has texts, then octal numbers, then the sum of all bytes. */
static int add_to_tar(int fd, const char *name, struct str bytes)
{
    static const char zeros[BLOCK];
    char head[BLOCK] = "";
    unsigned sum = 0;

    (void)snprintf(head, AT_MODE, "rollgate-support/%s", name);
    (void)snprintf(head + AT_MODE, 8, "0000600");
    (void)snprintf(head + 108, 8, "0000000"); /* user and group are root */
    (void)snprintf(head + 116, 8, "0000000");
    (void)snprintf(head + AT_SIZE, 12, "%011llo", (unsigned long long)bytes.len);
    (void)snprintf(head + AT_MTIME, 12, "%011llo", (unsigned long long)time(NULL));
    memset(head + AT_SUM, ' ', 8);
    head[AT_TYPE] = '0';
    memcpy(head + 257,
           "ustar\0"
           "00",
           8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)head[i];
    (void)snprintf(head + AT_SUM, 7, "%06o", sum);
    if (write_archive(fd, head, BLOCK) || write_archive(fd, bytes.p, bytes.len))
        return -1;
    return write_archive(fd, zeros, (BLOCK - bytes.len % BLOCK) % BLOCK);
}

static int add_to_folder(int folder, const char *name, struct str bytes)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;

    if (fd < 0)
        return -1;
    rc = write_archive(fd, bytes.p, bytes.len);
    return close(fd) || rc ? -1 : 0;
}

int support_archive_add(struct support_archive *a, const char *name, struct str bytes,
                        struct err *e)
{
    if (a->tar ? add_to_tar(a->fd, name, bytes) : add_to_folder(a->fd, name, bytes))
        return err_sys(e, ERR_IO, "cannot write %s of %s", name, a->path);
    return 0;
}

int support_archive_close(struct support_archive *a, struct err *e)
{
    static const char end[2 * BLOCK];
    int rc = a->tar ? write_archive(a->fd, end, sizeof(end)) : 0;

    if (close(a->fd) || rc)
        return err_sys(e, ERR_IO, "cannot write %s", a->path);
    return 0;
}
