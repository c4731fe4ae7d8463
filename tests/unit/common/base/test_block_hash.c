#include "common/base/block_hash.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "testing.h"

static char text[BLOCK_BYTES];

static void fill(void)
{
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * 7 % 251);
}

TEST(block_hash, changes_with_each_byte)
{
    static const size_t lengths[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 1000, 1023, BLOCK_BYTES};

    fill();
    for (size_t k = 0; k < ARRAY_LEN(lengths); k++) {
        struct str block = str_of(text, lengths[k]);
        struct block_hash was = block_hash(block);

        cr_assert(block_hash_equal(was, block_hash(block)));
        for (size_t i = 0; i < block.len; i++) {
            text[i] ^= (char)(1 << i % 8);
            cr_expect_not(block_hash_equal(was, block_hash(block)), "byte %zu of %zu", i,
                          block.len);
            text[i] ^= (char)(1 << i % 8);
        }
    }
}

TEST(block_hash, changes_with_the_order_of_words)
{
    char other[BLOCK_BYTES];

    fill();
    for (size_t at = 0; at + 16 <= sizeof(text); at += 8) {
        memcpy(other, text, sizeof(text));
        memcpy(other + at, text + at + 8, 8);
        memcpy(other + at + 8, text + at, 8);
        cr_expect_not(block_hash_equal(block_hash(str_of(text, sizeof(text))),
                                       block_hash(str_of(other, sizeof(other)))),
                      "words at %zu", at);
    }
}

/* Returns the hash of `text` in a process of its own. */
static struct block_hash hash_elsewhere(void)
{
    struct block_hash h;
    int ends[2], status;
    pid_t pid;

    cr_assert_eq(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        h = block_hash(str_of(text, sizeof(text)));
        _exit(write(ends[1], &h, sizeof(h)) == sizeof(h) ? 0 : 1);
    }
    cr_assert_eq(read(ends[0], &h, sizeof(h)), sizeof(h));
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return h;
}

TEST(block_hash, differs_between_processes)
{
    struct block_hash one, two;

    fill();
    one = hash_elsewhere();
    two = hash_elsewhere();
    cr_assert_not(block_hash_equal(one, two));
}
