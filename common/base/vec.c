#include "common/base/vec.h"

#include "common/base/check.h"
#include "common/base/mem.h"

void *vec_grow(void *at, size_t *cap, size_t n, size_t more, size_t size_bytes)
{
    size_t want = *cap, bytes;

    if (want - n >= more)
        return at;
    while (want - n < more)
        want = want ? want * 2 : 8;
    CHECK(!__builtin_mul_overflow(want, size_bytes, &bytes));
    at = mem_grow(at, *cap * size_bytes, bytes);
    *cap = want;
    return at;
}
