/*
 * The bytes that benchmarks send and check: byte i of a body is a function of i alone, with a
 * period of 1 MiB, so both ends know what is due at any place.
 */
#ifndef RG_BENCH_PATTERN_H
#define RG_BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PATTERN_PERIOD = 1 << 20 };

static unsigned char pattern_bytes[2 * PATTERN_PERIOD];

static inline void pattern_init(void)
{
    for (size_t i = 0; i < sizeof(pattern_bytes); i++)
        pattern_bytes[i] = (unsigned char)((uint32_t)(i % PATTERN_PERIOD) * 2654435761u >> 24);
}

/* At least PATTERN_PERIOD bytes of the body from place `at` on. */
static inline const unsigned char *pattern_from(uint64_t at)
{
    return pattern_bytes + at % PATTERN_PERIOD;
}

static inline bool pattern_matches(uint64_t at, const char *p, size_t n)
{
    while (n > 0) {
        size_t part = n < PATTERN_PERIOD ? n : PATTERN_PERIOD;

        if (memcmp(p, pattern_from(at), part) != 0)
            return false;
        p += part;
        at += part;
        n -= part;
    }
    return true;
}

#endif
