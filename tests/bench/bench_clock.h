/* The clocks that benchmarks read: CLOCK_MONOTONIC, or CPU time of the process or a thread. */
#ifndef RG_BENCH_CLOCK_H
#define RG_BENCH_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double clock_s(clockid_t id)
{
    return (double)clock_ns(id) / 1e9;
}

#endif
