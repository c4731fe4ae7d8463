#include "common/os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 4096 };

/* How many bytes to ask for at once: all of them and one more, so that the end is seen at once. */
static size_t read_size(int fd, size_t max)
{
    struct stat st;

    if (fstat(fd, &st) || st.st_size <= 0 || (uint64_t)st.st_size > max)
        return READ_BYTES;
    return (size_t)st.st_size + 1;
}

/* Appends the file to out. Larger than max is an error; out then holds a part of it. */
int file_read(const char *path, size_t max, struct buf *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t start = out->len, step = fd < 0 ? 0 : read_size(fd, max);
    ssize_t n = 1;

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    while (n != 0 && out->len - start <= max) {
        n = read(fd, buf_reserve(out, step), step);
        if (n < 0 && errno != EINTR)
            break;
        out->len += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        (void)err_sys(e, ERR_IO, "cannot read %s", path);
    (void)close(fd);
    if (n < 0)
        return -1;
    if (out->len - start > max)
        return err_set(e, ERR_CONFIG, "%s is larger than %zu bytes", path, max);
    return 0;
}
