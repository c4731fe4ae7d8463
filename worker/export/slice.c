/*
 * The clock is looked at after every 4 KB of work, so that a slice ends soon after its 250
 * microseconds. Bytes alone would not do: audits and passes over sizes work long for little or no
 * output.
 */
#include "worker/export/slice.h"

#include "common/base/clock.h"
#include "worker/export/export.h"

enum { SLICE_BYTES = 64 << 10, SLICE_US = 250, STEP_BYTES = 4 << 10 };

int export_slice(struct export *x, struct buf *out, struct err *e)
{
    uint64_t end_us = clock_us() + SLICE_US;
    int rc;

    do
        rc = export_next(x, out, STEP_BYTES, e);
    while (rc == 0 && !export_has_work(x) && out->len < SLICE_BYTES && clock_us() < end_us);
    return rc;
}
