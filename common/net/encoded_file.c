/* Encodes a file piece by piece (encoded_file.h). Groups of three bytes are read at once, so that
 * the texts of the pieces join without padding; only the last piece may be shorter. */
#include "common/net/encoded_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"

enum { PIECE = 48 << 10, BYTES_ROOM = PIECE + 16 };

_Static_assert(PIECE % 3 == 0, "pieces join without padding");

int encoded_file_open(struct encoded_file *f, const char *path, uint64_t bytes, bool zero)
{
    *f = (struct encoded_file){.left = bytes, .zero = zero};
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return -1;
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    f->room = mem_alloc(BYTES_ROOM + base64_encoded_len(BYTES_ROOM));
    return 0;
}

/* Reads until n bytes or the end. Returns the number of bytes, or -1 with errno. */
static int read_all(int fd, char *to, size_t n)
{
    while (n > 0) {
        ssize_t got = read(fd, to, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return -1;
        }
        to += got;
        n -= (size_t)got;
    }
    return 0;
}

int encoded_file_next(struct encoded_file *f, struct str *ret)
{
    size_t n = (size_t)MIN_OF(f->left, (uint64_t)PIECE);

    if (f->text.len == 0 && (n > 0 || f->zero)) {
        if (read_all(f->fd, f->room, n) != 0)
            return -1;
        f->left -= n;
        if (f->left == 0 && f->zero) {
            f->room[n++] = 0;
            f->zero = false;
        }
        base64_encode(f->room, n, f->room + BYTES_ROOM);
        f->text = str_of(f->room + BYTES_ROOM, base64_encoded_len(n));
    }
    *ret = f->text;
    return 0;
}

void encoded_file_take(struct encoded_file *f, size_t n)
{
    f->text = str_sub(f->text, n, f->text.len);
}

void encoded_file_close(struct encoded_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    free(f->room);
    *f = (struct encoded_file){.fd = -1};
}
