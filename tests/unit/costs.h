/*
 * Checks that the cost of work is linear in its length. Doubling the length may cost 2.7 times the
 * time, so eight times the length may cost 20 times. Quadratic work would cost 64 times, and work
 * with a root of the length for each item 23 times. Memory, which is counted exactly, may grow 12
 * times.
 *
 * Short and long runs alternate, and the best of each counts, because other load of the machine is
 * temporary. A full machine takes caches from long runs only: under load, linear work was seen at
 * 13 times. A virtual machine's clock sometimes reports 0 for a run, which no later run can beat.
 * So the best of the rounds is determined again from time to time.
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
    double seconds; /* processor time of this thread */
    size_t bytes;   /* bytes of arenas; 0: not measured */
};

/* Returns the cost of one run with n items. */
typedef struct cost cost_fn(const void *ctx, uint32_t n);

enum { COST_TIMES = 8, COST_ROUNDS = 3, COST_WINDOW = 30, COST_ROUNDS_MAX = 300 };

static const double COST_SECONDS_MAX = 2.7 * 2.7 * 2.7, COST_BYTES_MAX = 12;

/* A sanitizer does work for each block of memory, so its builds only compare bytes. Work without
 * them runs once. */
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

/* Checks work with n and with COST_TIMES * n items. The run with n items should take 10 us to 1 ms.
 */
static inline void expect_linear(const char *name, cost_fn *work, const void *ctx, uint32_t n)
{
    static const struct cost none = {1e9, 0};
    struct cost one = none, all = none;

    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* as in a worker: memory is reused, */
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);  /* because a new page may cost more than the work */
    for (int i = 0; i < COST_ROUNDS_MAX; i++) {
        struct cost x = work(ctx, n), y;
        int round = i % COST_WINDOW;

        if (!COST_TIMED && x.bytes == 0)
            return; /* nothing to compare */
        y = work(ctx, COST_TIMES * n);
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
