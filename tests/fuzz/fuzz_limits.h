/*
 * Limits of one input: processor time and memory. Far above what the budgets of the code allow, and
 * far below what an input takes that no budget counts.
 */
#ifndef RG_FUZZ_LIMITS_H
#define RG_FUZZ_LIMITS_H

#include <sys/resource.h>
#include <time.h>

#include "common/base/check.h"

enum { FUZZ_SECONDS_MAX = 8, FUZZ_KIB_MAX = 512 << 10 };

static struct timespec fuzz_start;
static long fuzz_start_kib;

static inline long fuzz_kib(void)
{
    struct rusage u;

    CHECK(getrusage(RUSAGE_SELF, &u) == 0);
    return u.ru_maxrss;
}

static inline void fuzz_limits_begin(void)
{
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &fuzz_start) == 0);
    fuzz_start_kib = fuzz_kib();
}

/* Inputs of a megabyte may take longer. */
static inline void fuzz_limits_end(size_t size)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    CHECK(now.tv_sec - fuzz_start.tv_sec <= FUZZ_SECONDS_MAX + (long)(size >> 20));
    CHECK(fuzz_kib() - fuzz_start_kib <= FUZZ_KIB_MAX);
}

#endif
