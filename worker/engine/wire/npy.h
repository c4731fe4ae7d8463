/*
 * NumPy's .npy files (format versions 1 to 3, numpy/lib/format): vLLM's routed experts come as one,
 * or, in a stream, as one for each event that brings some.
 * Read strictly: unsigned bytes, 16-bit or 32-bit little-endian integers in C order. Pure.
 */
#ifndef RG_WIRE_NPY_H
#define RG_WIRE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

/* The last of several files. */
struct npy_last {
    size_t rows; /* its first dimension */
    size_t at;   /* where its items begin among all */
};

/* Files, one behind the other, while their bytes come: they may be tens of megabytes. */
struct npy {
    struct buf items; /* items of all files, as int32 little-endian */
    struct npy_last last;
    size_t item, left; /* bytes of one of the last file's, and how many are still to come */
    uint64_t bytes;    /* bytes of all files so far */
    bool any;          /* there was a header */
    bool bad;
    struct err err; /* why */
};

struct npy *npy_new(void);

/* Takes what it can off the front of the bytes that came. */
void npy_feed(struct npy *n, struct buf *came);

/* No more bytes come. -1 ERR_ENGINE_INVALID: they are no such files, or cut. */
int npy_end(const struct npy *n, const struct buf *left_over, struct err *e);

/* Frees it; accepts NULL. */
void npy_free(struct npy *n);

#endif
