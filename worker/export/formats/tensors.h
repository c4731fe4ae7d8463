/*
 * struct tensors: a safetensors file in the making: u64 header length, JSON header, data without
 * holes. All sizes stand in the header, so the trajectories are gone through once for sizes, once
 * for the header's entries, and once per element size for data; larger elements come first, which
 * keeps every tensor aligned. Formats call tensors_add for the same tensors in the same order in
 * every pass.
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

enum { TENSOR_PASSES = 6 }; /* sizes, header entries, data by size of element */

struct shape {
    uint64_t at[3];
    unsigned n;
};

#define SHAPE1(a) ((struct shape){{(a)}, 1})
#define SHAPE2(a, b) ((struct shape){{(a), (b)}, 2})
#define SHAPE3(a, b, c) ((struct shape){{(a), (b), (c)}, 3})

/* Begin and end of a file, for format.begin and format.drop. */
void tensors_begin(struct export *x, struct buf *out);
void tensors_drop(struct export *x);

/* True in the pass that collects sizes and metadata. */
static inline bool tensors_sizing(const struct export *x)
{
    return x->pass == 0;
}

/* Where a tensor's elements come from: as many as the shape says (PIECE_RAW: bytes as they are). */
struct cells {
    enum rope_piece_kind kind;
    const void *p;
};

#define CELLS(kind, p) ((struct cells){PIECE_##kind, (p)})

/* One tensor "name.index" (index SIZE_MAX: just "name"). The cells are borrowed, and read in their
 * data pass only: they may be anything before. */
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

/* Whether data of this element type goes out in this pass: making it may be skipped otherwise. */
bool tensors_want(const struct export *x, enum tensor_type type);

/* Arrays of a trajectory that were asked for, under their own names. */
void tensors_put_arrays(struct export *x, const struct trajectory *t);

/* JSON text for __metadata__ under this key, kept until the header is written. */
struct buf *tensors_meta(struct export *x, const char *key);

/* After a trajectory: escapes the texts for the header. */
MAY_PAUSE void tensors_escape_meta(struct export *x);

/* Leaves the metadata out of the header, called first: the format has one key only and adds its
 * text as a tensor of bytes in every pass. */
void tensors_forget_meta(struct export *x);
MAY_PAUSE void tensors_add_meta(struct export *x, const char *name);

/* For format.end: writes the header after the sizing pass. */
MAY_PAUSE void tensors_end(struct export *x, struct buf *out);

#endif
