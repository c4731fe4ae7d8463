/*
 * struct tensors: a safetensors file in several passes: u64 header length, JSON header, data
 * without gaps. The header contains all sizes. So the trajectories are walked once for sizes, once
 * for the header's entries, and once per element size for data. Larger elements come first, which
 * keeps every tensor aligned. Formats must call tensors_add for the same tensors in the same order
 * in every pass.
 */
#ifndef RG_EXPORT_TENSORS_H
#define RG_EXPORT_TENSORS_H

#include "worker/export/build/export_format.h"

enum tensor_type {
    TENSOR_I64,
    TENSOR_F64,
    TENSOR_F32,
    TENSOR_I32,
    TENSOR_I16,
    TENSOR_U8,
    TENSOR_BOOL
};

enum { TENSOR_PASSES = 6 }; /* sizes, header entries, then data by size of element */

struct shape {
    uint64_t at[3];
    unsigned n;
};

#define SHAPE1(a) ((struct shape){{(a)}, 1})
#define SHAPE2(a, b) ((struct shape){{(a), (b)}, 2})
#define SHAPE3(a, b, c) ((struct shape){{(a), (b), (c)}, 3})

/* Begin and end a file, for format.begin and format.drop. */
void tensors_begin(struct export *x, struct buf *out);
void tensors_drop(struct export *x);

/* Returns true in the pass that collects sizes and metadata. */
static inline bool tensors_sizing(const struct export *x)
{
    return x->pass == 0;
}

/* Source of a tensor's elements; their number follows from the shape (PIECE_RAW: bytes as they
 * are). */
struct cells {
    enum rope_piece_kind kind;
    const void *p;
};

#define CELLS(kind, p) ((struct cells){PIECE_##kind, (p)})

/* Adds a tensor "name.index" (index SIZE_MAX: only "name"). The cells are borrowed, and read only
 * in their data pass. Before that they may be anything. */
void tensors_add(struct export *x, const char *name, size_t index, enum tensor_type type,
                 struct shape shape, struct cells cells);

struct tensor_name {
    const char *name;
    size_t index;
};

/* Adds a tensor of two runs of cells: n_first elements of the first, and the rest of the shape from
 * the second. */
void tensors_add_two(struct export *x, struct tensor_name name, enum tensor_type type,
                     struct shape shape, struct cells first, uint64_t n_first, struct cells rest);

/* Reports whether data of this element type is written in this pass. If not, the caller need not
 * make it. */
bool tensors_want(const struct export *x, enum tensor_type type);

/* Returns the JSON text for __metadata__ under this key, which is kept until the header is
 * written. */
struct buf *tensors_meta(struct export *x, const char *key);

/* Escapes the texts for the header, after each trajectory. */
MAY_PAUSE void tensors_escape_meta(struct export *x);

/* Leaves the metadata out of the header. Call it first. The format must have only one key, and must
 * add its text as a tensor of bytes in every pass. */
void tensors_forget_meta(struct export *x);
MAY_PAUSE void tensors_add_meta(struct export *x, const char *name);

/* Writes the header after the sizing pass. For format.end. */
MAY_PAUSE void tensors_end(struct export *x, struct buf *out);

#endif
