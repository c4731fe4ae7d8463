/* The clocks of a process, each in one unit. Durations use the monotonic clock. Points in time that
 * outlive a process (records, answers, ages) use the wall clock. A third clock gives the processor
 * time of the calling thread. */
#ifndef RG_BASE_CLOCK_H
#define RG_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_us(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Reads the monotonic clock, in microseconds. */
static inline uint64_t clock_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

/* Returns monotonic milliseconds, the clock of the loop's timers. */
static inline uint64_t clock_ms(void)
{
    return clock_us() / 1000;
}

/* Milliseconds since the machine started, its sleep included: leases of a fleet. */
static inline uint64_t clock_boot_ms(void)
{
    return clock_read_us(CLOCK_BOOTTIME) / 1000;
}

/* Reads the wall clock, in milliseconds since 1970. */
static inline uint64_t clock_wall_ms(void)
{
    return clock_read_us(CLOCK_REALTIME) / 1000;
}

enum { CLOCK_TEXT_MAX = 32 };

/* Writes a time of the wall clock in whole seconds of UTC: "2026-11-30T14:20:05Z". Returns ret. */
static inline const char *clock_wall_text(uint64_t wall_ms, char ret[CLOCK_TEXT_MAX])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm = {0};

    (void)gmtime_r(&s, &tm);
    (void)strftime(ret, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return ret;
}

/* Returns the processor time in microseconds that the calling thread has used. */
static inline uint64_t clock_thread_cpu_us(void)
{
    return clock_read_us(CLOCK_THREAD_CPUTIME_ID);
}

#endif
