/*
 * NumPy's .npy files (format versions 1 to 3, numpy/lib/format): vLLM's routed experts come as one,
 * or, in a stream, as one for each event that brings some.
 * Read strictly: unsigned bytes, 16-bit or 32-bit little-endian integers in C order. Pure.
 */
#ifndef RG_WIRE_NPY_H
#define RG_WIRE_NPY_H

#include "common/base/buf.h"
#include "common/base/err.h"

/* The last of several files. */
struct npy_last {
    size_t rows; /* its first dimension */
    size_t at;   /* where its items begin among all */
};

/* Replaces the files, one behind the other, by their items as int32 little-endian. ret_last may be
 * NULL. -1 ERR_ENGINE_INVALID. */
int npy_to_int32(struct buf *b, struct npy_last *ret_last, struct err *e);

#endif
