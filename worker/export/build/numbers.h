/*
 * Writes numbers as JSON text, fast, because exports consist mostly of them. Commas separate the
 * numbers. The caller writes the brackets, so that a long array can be made in steps. A float32
 * gets the shortest decimal text that a reader of doubles converts back to the same float32.
 */
#ifndef RG_EXPORT_NUMBERS_H
#define RG_EXPORT_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

void numbers_i32(struct buf *b, const int32_t *v, size_t n);
void numbers_i64(struct buf *b, const int64_t *v, size_t n);
void numbers_f32(struct buf *b, const float *v, size_t n);

/* Write each as 0 or 1, and each as false or true. */
void numbers_bits(struct buf *b, const uint8_t *v, size_t n);
void numbers_bools(struct buf *b, const uint8_t *v, size_t n);

#endif
