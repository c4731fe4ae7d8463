/* fuzz: rg_common */
/* The events of a stream do not depend on how it is cut; the first byte chooses the cuts. */
#include "common/base/buf.h"
#include "common/net/sse.h"
#include "fuzz_cuts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(struct str text, size_t step, struct buf *out)
{
    struct sse s = {.max_event = 1000};
    struct str data;
    struct err e = {0};
    int rc = 0;

    for (size_t at = 0; at < text.len && rc >= 0; at += step) {
        struct str in = str_sub(text, at, step);

        while ((rc = sse_next(&s, &in, &data, &e)) > 0) {
            if (rc == SSE_DATA)
                buf_add_str(out, data);
            else
                buf_printf(out, "\n[%s]\n", s.name);
        }
    }
    /* Bytes of an event too large may have been told in part. */
    if (rc < 0)
        buf_clear(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_compare_cuts(data, size, run);
    return 0;
}
