/* Hashes of blocks with a random key (block_hash.h). */
#include "common/base/block_hash.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/check.h"

enum { PAIR = 16, TWO_PAIRS = 32, WORDS = BLOCK_BYTES / 8 };

static uint64_t key[WORDS];

/* Called in the worker, since a process and its forks would share a key made before. */
static void make_key(void)
{
    unsigned char *p = (unsigned char *)key;

    for (size_t at = 0; at < sizeof(key);) {
        ssize_t n = getrandom(p + at, sizeof(key) - at, 0);

        if (n > 0)
            at += (size_t)n;
        else
            CHECK(errno == EINTR);
    }
}

static __uint128_t hash_pair(const char *p, const uint64_t *k)
{
    uint64_t a, b;

    memcpy(&a, p, 8);
    memcpy(&b, p + 8, 8);
    return (__uint128_t)(a + k[0]) * (b + k[1]);
}

/* Two sums, because one would wait for itself. The last pair is filled with zeros. */
struct block_hash block_hash(struct str block)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint64_t *k = key;
    __uint128_t one = 0, two = 0;
    char last[PAIR] = {0};
    size_t n = 0;

    CHECK(block.len <= BLOCK_BYTES);
    CHECK(pthread_once(&once, make_key) == 0);
    for (; block.len - n >= TWO_PAIRS; n += TWO_PAIRS, k += 4) {
        one += hash_pair(block.p + n, k);
        two += hash_pair(block.p + n + PAIR, k + 2);
    }
    for (; n < block.len; n += PAIR, k += 2) {
        size_t more = MIN_OF(block.len - n, (size_t)PAIR);

        memcpy(last, block.p + n, more);
        memset(last + more, 0, PAIR - more);
        one += hash_pair(last, k);
    }
    one += two;
    return (struct block_hash){(uint64_t)one, (uint64_t)(one >> 64)};
}
