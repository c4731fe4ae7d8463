#include "testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/os/file.h"

static void make(char path[], const char *text, size_t len)
{
    int fd = mkstemp(path);

    cr_assert(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    close(fd);
}

TEST(file, is_read_whole_behind_what_is_there)
{
    char path[] = "/tmp/rg-file-XXXXXX";
    struct buf out = {0};
    struct err e;

    make(path, "a\0b", 3);
    buf_puts(&out, "x");
    cr_assert_eq(file_read(path, 3, &out, &e), 0);
    cr_assert(str_eq(buf_str(&out), str_of("xa\0b", 4)));
    cr_assert_eq(file_read(path, 2, &out, &e), -1);
    cr_assert_eq(e.kind, ERR_CONFIG);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(file_read(path, 3, &out, &e), -1);
    cr_assert_eq(e.sys, ENOENT);
    buf_done(&out);
}

TEST(file, without_a_size_is_read_to_its_end)
{
    struct buf out = {0};
    struct err e;

    cr_assert_eq(file_read("/proc/self/maps", 1 << 20, &out, &e), 0);
    cr_assert(out.len > 4096);
    cr_assert_eq(file_read("/proc/self", 100, &out, &e), -1);
    cr_assert_eq(e.kind, ERR_IO);
    buf_done(&out);
}
