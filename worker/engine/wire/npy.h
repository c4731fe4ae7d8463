/*
 * NumPy's .npy files (format versions 1 to 3, numpy/lib/format): vLLM's routed experts come as one.
 * Read strictly: unsigned bytes, 16-bit or 32-bit little-endian integers in C order. Pure.
 */
#ifndef RG_WIRE_NPY_H
#define RG_WIRE_NPY_H

#include "common/base/buf.h"
#include "common/base/err.h"

/* Replaces the file by its items as int32 little-endian. -1 ERR_ENGINE_INVALID. */
int npy_to_int32(struct buf *b, struct err *e);

#endif
