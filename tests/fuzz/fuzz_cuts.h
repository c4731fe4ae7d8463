/*
 * A stream must be read the same however it is cut into pieces.
 */
#ifndef RG_FUZZ_CUTS_H
#define RG_FUZZ_CUTS_H

#include "common/base/buf.h"
#include "common/base/check.h"

/* Checks that `read` appends the same bytes whether it gets the input whole or in steps. The first
 * byte is the step. */
static inline void fuzz_compare_cuts(const uint8_t *data, size_t size,
                                     void (*read)(struct str text, size_t step, struct buf *out))
{
    struct buf whole = {0}, cut = {0};
    struct str text;

    if (size < 2)
        return;
    text = str_of((const char *)data + 1, size - 1);
    read(text, text.len, &whole);
    read(text, data[0] % 32 + 1, &cut);
    CHECK(str_eq(buf_str(&whole), buf_str(&cut)));
    buf_done(&whole);
    buf_done(&cut);
}

#endif
