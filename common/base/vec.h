/*
 * VEC(type): a growing array of values. A zeroed struct is empty; vec_done frees.
 *     VEC(int) v = {0};  *vec_push(&v) = 7;  v.at[0];  v.n;  vec_done(&v);
 */
#ifndef RG_BASE_VEC_H
#define RG_BASE_VEC_H

#include <stdbool.h>
#include <stdlib.h>

#define VEC(type)      \
    struct {           \
        type *at;      \
        size_t n, cap; \
    }

/* Makes space for `more` elements after n. */
#define vec_reserve(v, more) \
    ((void)((v)->at = vec_grow((v)->at, &(v)->cap, (v)->n, (more), sizeof(*(v)->at))))

/* Returns a pointer to a new last element (uninitialised). */
#define vec_push(v) ((v)->n < (v)->cap ? (void)0 : vec_reserve(v, 1), &(v)->at[(v)->n++])
#define vec_pop(v) ((v)->at[--(v)->n])
#define vec_last(v) ((v)->at[(v)->n - 1])
#define vec_bytes(v) ((v)->cap * sizeof(*(v)->at)) /* bytes of the array, used or not */
#define vec_clear(v) ((void)((v)->n = 0))
#define vec_done(v) (free((v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

/* Implements the macros above. Makes space for `more` elements after the n in use; an element has
 * size_bytes. Doubles the array as often as needed, sets *cap, and returns the array, which may
 * have moved. Aborts without memory (mem.h). */
void *vec_grow(void *at, size_t *cap, size_t n, size_t more, size_t size_bytes);

#endif
