#include "common/base/vec.h"

#include "common/base/mem.h"

void *vec_grow(void *at, size_t *cap, size_t n, size_t more, size_t size_bytes)
{
    size_t want = *cap;

    if (want - n >= more)
        return at;
    while (want - n < more)
        want = want ? want * 2 : 8;
    *cap = want;
    return mem_realloc_array(at, want, size_bytes);
}
