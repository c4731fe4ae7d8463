#include "worker/export/slice.h"

#include <time.h>

/* A slice is made in steps, so that the clock is looked at in between. */
enum { SLICE_BYTES = 64 << 10, SLICE_US = 250, STEP_BYTES = 4 << 10 };

static uint64_t clock_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int export_slice(struct export *x, struct buf *out, struct err *e)
{
    uint64_t end_us = clock_us() + SLICE_US;
    int rc;

    do
        rc = export_next(x, out, STEP_BYTES, e);
    while (rc == 0 && out->len < SLICE_BYTES && clock_us() < end_us);
    return rc;
}
