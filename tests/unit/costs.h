/*
 * Whether work costs its length and no more: whenever it is twice as long, it may cost 2.7 times
 * the time. Eight times as long, that is 20 times; pairwise work would cost 64 times, and a root of
 * the length for each item 23. Memory, which is counted and not measured, may grow 12 times. The
 * runs are short and take turns, and the best of each counts: what the machine does besides comes
 * and goes, so a run that it leaves alone comes, too; what the work does too much stays. What a
 * full machine takes from every long run is the caches, which short ones fit into all the same:
 * under load honest work was seen at 13 times. Now and then a virtual machine's clock tells that a
 * run took nothing, which no later one is better than: the best is of some rounds, then of others.
 */
#ifndef RG_UNIT_COSTS_H
#define RG_UNIT_COSTS_H

#include <limits.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "testing.h"

struct cost {
    double seconds; /* of this thread */
    size_t bytes;   /* of arenas; 0: not measured */
};

/* The cost of one run of some work of so many items. */
typedef struct cost cost_fn(const void *ctx, uint32_t n);

enum { COST_TIMES = 8, COST_ROUNDS = 3, COST_WINDOW = 30, COST_ROUNDS_MAX = 300 };

static const double COST_SECONDS_MAX = 2.7 * 2.7 * 2.7, COST_BYTES_MAX = 12;

/* A sanitizer's own work for each block of memory is none of ours: its builds count bytes alone. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COST_TIMED = 0 };
#else
enum { COST_TIMED = 1 };
#endif

static inline double cost_now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* n: items of the short run, so that it takes some 10 us to 1 ms. */
static inline void expect_linear(const char *name, cost_fn *work, const void *ctx, uint32_t n)
{
    static const struct cost none = {1e9, 0};
    struct cost one = none, all = none;

    (void)mallopt(M_MMAP_THRESHOLD,
                  32 << 20); /* as a worker's: memory that was used is used again, */
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX); /* for a fresh page may cost more than the work */
    for (int i = 0; i < COST_ROUNDS_MAX; i++) {
        struct cost x = work(ctx, n), y = work(ctx, COST_TIMES * n);
        int round = i % COST_WINDOW;

        if (round == 0)
            one = all = none;
        one = (struct cost){x.seconds < one.seconds ? x.seconds : one.seconds, x.bytes};
        all = (struct cost){y.seconds < all.seconds ? y.seconds : all.seconds, y.bytes};
        if (!COST_TIMED ||
            (round + 1 >= COST_ROUNDS && all.seconds < one.seconds * COST_SECONDS_MAX))
            break;
    }
    cr_expect(!COST_TIMED || all.seconds < one.seconds * COST_SECONDS_MAX,
              "%s: %.2f ms, %d times as long %.2f ms", name, one.seconds * 1e3, COST_TIMES,
              all.seconds * 1e3);
    cr_expect_leq((double)all.bytes, (double)one.bytes * COST_BYTES_MAX,
                  "%s: %zu bytes, %d times as long %zu", name, one.bytes, COST_TIMES, all.bytes);
}

#endif
