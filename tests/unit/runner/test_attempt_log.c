#include "testing.h"
#include <stdlib.h>
#include <unistd.h>

#include "file_text.h"
#include "runner/attempt_log.h"

/* Writes n bytes, byte i being 'a' + i % 23, in pieces. Returns the content of the file. */
static struct buf written(uint64_t n, size_t piece, struct buf *tail)
{
    char dir[] = "/tmp/attempt-log-XXXXXX", *bytes = malloc(piece);
    struct attempt_log l;
    struct buf out = {0};

    cr_assert(mkdtemp(dir));
    attempt_log_open(&l, dir, STR("g"), 0, 1);
    for (uint64_t at = 0; at < n; at += piece) {
        size_t len = MIN_OF((uint64_t)piece, n - at);

        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)('a' + (at + i) % 23);
        attempt_log_add(&l, str_of(bytes, len));
    }
    attempt_log_close(&l);
    attempt_log_tail(&l, tail);
    cr_assert(file_bytes(l.path, &out));
    unlink(l.path);
    *strrchr(l.path, '/') = '\0';
    rmdir(l.path);
    rmdir(dir);
    attempt_log_done(&l);
    free(bytes);
    return out;
}

TEST(attempt_log, keeps_the_beginning_and_the_end)
{
    static const uint64_t sizes[] = {
        0,       1,       4096,   4097, 2 << 20, (2 << 20) + 1, (4 << 20) - 128, (4 << 20) - 127,
        5000001, 6291456, 9999999};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (size_t piece = 1000; piece <= 5000000; piece = piece * 70 + 1) {
            struct buf tail = {0}, got = written(sizes[i], piece, &tail);
            uint64_t n = sizes[i], tail_at = n - tail.len;

            cr_assert(got.len <= ATTEMPT_LOG_MAX);
            cr_assert(tail.len == MIN_OF(n, (uint64_t)ATTEMPT_LOG_TAIL));
            for (size_t k = 0; k < tail.len; k++)
                cr_assert(tail.p[k] == (char)('a' + (tail_at + k) % 23));
            for (size_t k = 0; k < got.len && k < 2 << 20; k++)
                cr_assert(got.p[k] == (char)('a' + k % 23));
            for (size_t k = 0; k < 1000000 && k < got.len; k++)
                cr_assert(got.p[got.len - 1 - k] == (char)('a' + (n - 1 - k) % 23), "%llu %zu %zu",
                          (unsigned long long)n, piece, k);
            cr_assert((got.len != n) == (n > (4 << 20) - 128));
            buf_done(&tail);
            buf_done(&got);
        }
    }
}

TEST(attempt_log, a_group_is_one_folder_name)
{
    static const char *const names[] = {"..", ".", "", "a/../../b"};
    char dir[] = "/tmp/attempt-log-XXXXXX";

    cr_assert(mkdtemp(dir));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct attempt_log l;

        attempt_log_open(&l, dir, str_cstr(names[i]), 0, 1);
        cr_assert(l.fd >= 0);
        cr_expect(strncmp(l.path, dir, strlen(dir)) == 0);
        cr_expect(strspn(l.path + strlen(dir) + 1, "/") == 0 && l.path[strlen(dir) + 1] != '.');
        unlink(l.path);
        *strrchr(l.path, '/') = '\0';
        rmdir(l.path);
        attempt_log_done(&l);
    }
    cr_expect(rmdir(dir) == 0);
}
