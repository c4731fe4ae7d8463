#include "testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

TEST(file, that_is_not_regular_is_not_waited_for)
{
    char pipe_path[] = "/tmp/rg-file-XXXXXX", path[] = "/tmp/rg-file-XXXXXX";
    struct buf out = {0};
    struct err e;

    make(pipe_path, "", 0);
    cr_assert(unlink(pipe_path) == 0 && mkfifo(pipe_path, 0600) == 0);
    cr_assert_eq(file_read_regular(pipe_path, 3, &out, &e), -1);
    cr_assert(e.kind == ERR_IO && strstr(e.text, "is not a regular file"));
    cr_assert_eq(file_read_regular("/dev/zero", 3, &out, &e), -1);
    cr_assert_eq(file_read_regular("/", 3, &out, &e), -1);
    make(path, "ab", 2);
    cr_assert_eq(file_read_regular(path, 3, &out, &e), 0);
    cr_assert(str_eq(buf_str(&out), STR("ab")));
    cr_assert(unlink(pipe_path) == 0 && unlink(path) == 0);
    cr_assert_eq(file_read_regular(path, 3, &out, &e), -1);
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

TEST(file, is_written_whole_or_not_at_all)
{
    char folder[] = "/tmp/rg-file-XXXXXX", path[64], part[64], taken[64];
    struct buf out = {0};
    struct stat st;

    cr_assert(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/whole", folder);
    (void)snprintf(part, sizeof(part), "%s/part", folder);
    (void)snprintf(taken, sizeof(taken), "%s/taken", folder);
    cr_expect_eq(file_write(path, part, STR("first, longer"), false), 0);
    cr_expect_eq(file_write(path, part, STR("second"), true), 0);
    cr_expect_eq(file_sync_folder(folder), 0);
    cr_expect_eq(file_read(path, 100, &out, &(struct err){0}), 0);
    cr_expect(str_eq_c(buf_str(&out), "second"));
    cr_expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    cr_assert_eq(mkdir(taken, 0700), 0);
    cr_expect(file_write(taken, part, STR("x"), false) == -1 && errno == EISDIR);
    cr_expect(access(part, F_OK) != 0, "nothing is left of it");
    cr_expect(file_write("/nowhere/at/all", "/nowhere/at/part", STR("x"), false) == -1);
    cr_expect_eq(errno, ENOENT);
    cr_expect(file_sync_folder("/nowhere/at") == -1 && errno == ENOENT);
    cr_expect(unlink(path) == 0 && rmdir(taken) == 0 && rmdir(folder) == 0);
    buf_done(&out);
}
