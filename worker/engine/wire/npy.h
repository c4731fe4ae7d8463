/*
 * NumPy's .npy files (format versions 1 to 3, numpy/lib/format): vLLM's routed experts are one
 * file, or, in a stream, one for each event with experts. Strict: only unsigned bytes, 16-bit or
 * 32-bit little-endian integers in C order. Pure.
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
    size_t rows; /* first dimension of the file */
    size_t at;   /* index of its first item among the items of all files */
};

/* State of reading files, one after the other, as bytes come. They may have tens of megabytes. */
struct npy {
    struct buf items; /* items of all files, as int32 little-endian */
    struct npy_last last;
    size_t item, left; /* size of an item in the last file; bytes of it that must still come */
    uint64_t bytes;    /* bytes of all files so far */
    bool any;          /* a header was read */
    bool bad;
    struct err err; /* the error, if any */
};

struct npy *npy_new(void);

/* Consumes as much as possible from the front of the bytes. */
void npy_feed(struct npy *n, struct buf *came);

/* Ends the bytes. Returns -1 with ERR_ENGINE_INVALID if they are not such files, or are cut. */
int npy_end(const struct npy *n, const struct buf *left_over, struct err *e);

/* Frees it; accepts NULL. */
void npy_free(struct npy *n);

#endif
