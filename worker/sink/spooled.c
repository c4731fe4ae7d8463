#include "worker/sink/spooled.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int spooled_open(const char *path, struct spooled *ret, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *p = MAP_FAILED;

    *ret = (struct spooled){0};
    if (fd >= 0 && fstat(fd, &st) == 0)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (p == MAP_FAILED)
        return err_sys(e, ERR_IO, "cannot read %s", path);
    ret->bytes = str_of(p, (size_t)st.st_size);
    if (pieces_find(ret->bytes, &ret->pieces, e) == 0)
        return 0;
    spooled_close(ret);
    return -1;
}

void spooled_close(struct spooled *s)
{
    if (s->bytes.p)
        (void)munmap((void *)(uintptr_t)s->bytes.p, s->bytes.len);
    vec_done(&s->pieces);
    *s = (struct spooled){0};
}
