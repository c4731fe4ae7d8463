/*
 * Maps spooled files. A file may be large and is sent piece by piece. Its pages are read when
 * needed, and the kernel may drop them. An empty file cannot be mapped and is invalid. The caller
 * decides by the kind of error whether to try again.
 */
#include "worker/sink/spooled.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/codec/json.h"

/* Maps the file. ERR_NOT_FOUND and ERR_INVALID are permanent; ERR_IO may pass. */
static int open_bytes(const char *path, struct spooled *ret, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *p = MAP_FAILED;

    *ret = (struct spooled){0};
    if (fd < 0 && errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "there is no %s", path);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 0) {
        (void)close(fd);
        return err_set(e, ERR_INVALID, "%s is empty", path);
    }
    if (fd >= 0)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        (void)err_sys(e, ERR_IO, "cannot read %s", path);
    if (fd >= 0)
        (void)close(fd);
    if (p == MAP_FAILED)
        return -1;
    ret->bytes = str_of(p, (size_t)st.st_size);
    return 0;
}

int spooled_open_group(const char *path, struct spooled *ret, struct err *e)
{
    const struct json *v = NULL;
    struct arena a = {0};
    bool is_entry;

    if (open_bytes(path, ret, e))
        return -1;
    is_entry = json_parse(&a, ret->bytes, &v, NULL) == 0 && json_is(v, JSON_OBJECT) && v->n > 0;
    arena_done(&a);
    if (!is_entry) {
        spooled_close(ret);
        return err_set(e, ERR_INVALID, "%s is not a JSON object with members", path);
    }
    *vec_push(&ret->pieces) = (struct piece){0, ret->bytes.len};
    return 0;
}

int spooled_open(const char *path, struct spooled *ret, struct err *e)
{
    if (open_bytes(path, ret, e))
        return -1;
    if (pieces_find(ret->bytes, &ret->pieces, e) == 0)
        return 0;
    spooled_close(ret);
    e->kind = ERR_INVALID;
    return -1;
}

void spooled_close(struct spooled *s)
{
    if (s->bytes.p)
        (void)munmap((void *)(uintptr_t)s->bytes.p, s->bytes.len);
    vec_done(&s->pieces);
    *s = (struct spooled){0};
}
