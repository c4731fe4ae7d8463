/*
 * VEC(type): a growing array of values. A zeroed struct is empty; vec_done frees.
 *     VEC(int) v = {0};  *vec_push(&v) = 7;  v.at[0];  v.n;  vec_done(&v);
 */
#ifndef RG_BASE_VEC_H
#define RG_BASE_VEC_H

#include <stdlib.h>

#include "common/base/mem.h"

#define VEC(type)      \
    struct {           \
        type *at;      \
        size_t n, cap; \
    }

/* Makes room for `more` elements behind n. */
#define vec_reserve(v, more)                                                   \
    do {                                                                       \
        if ((v)->cap - (v)->n < (size_t)(more)) {                              \
            size_t vec_want_ = (v)->cap ? (v)->cap * 2 : 8;                    \
            while (vec_want_ - (v)->n < (size_t)(more))                        \
                vec_want_ *= 2;                                                \
            (v)->at = mem_realloc_array((v)->at, vec_want_, sizeof(*(v)->at)); \
            (v)->cap = vec_want_;                                              \
        }                                                                      \
    } while (0)

/* Pointer to a new last element (uninitialised). */
#define vec_push(v) (vec_grow_one_((v)), &(v)->at[(v)->n++])
#define vec_grow_one_(v)                                                \
    ((v)->n < (v)->cap ? (void)0                                        \
                       : (void)((v)->cap = (v)->cap ? (v)->cap * 2 : 8, \
                                (v)->at = mem_realloc_array((v)->at, (v)->cap, sizeof(*(v)->at))))
#define vec_pop(v) ((v)->at[--(v)->n])
#define vec_last(v) ((v)->at[(v)->n - 1])
#define vec_clear(v) ((void)((v)->n = 0))
#define vec_done(v) (free((v)->at), (v)->at = NULL, (v)->n = (v)->cap = 0)

#endif
