/*
 * struct arena: memory with one common lifetime (a model call, a compiled template). Allocation
 * moves a pointer. All memory is freed at once by arena_reset (keeps the newest chunk for reuse) or
 * arena_done. Values in an arena have no destructor, but the arena may own things that they point
 * to (arena_hold). Returned memory is aligned to ARENA_ALIGN. A zeroed struct is a valid empty
 * arena.
 */
#ifndef RG_BASE_ARENA_H
#define RG_BASE_ARENA_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct arena_chunk;
struct arena_held;

/* Alignment of all memory of arenas, in bytes. */
enum { ARENA_ALIGN = 8 };

struct arena {
    char *at;  /* next free byte of the current chunk */
    char *end; /* end of the current chunk */
    struct arena_chunk *chunks;
    struct arena_held *held;
    size_t used_bytes;  /* bytes allocated since the last reset, for budgets and metrics */
    size_t held_bytes;  /* bytes of all chunks, which is the memory that the process uses */
    size_t max_bytes;   /* a budget for used_bytes, set by the owner; 0: none */
    atomic_size_t *sum; /* sum of held_bytes of many arenas, updated by any thread; owned by the
                           caller; or NULL */
    /* for a long-lived arena: a new chunk is an eighth of held_bytes, not twice the last chunk */
    bool tight;
    unsigned
        first_bytes; /* size of the first chunk, for owners of many small arenas; 0: the default */
};

/* Reports whether the budget is spent. Allocation never fails for that reason. A loop that fills
 * the arena from outside bytes checks this and stops. The owner checks it at the end and drops the
 * result. */
static inline bool arena_over(const struct arena *a)
{
    return a->max_bytes && a->used_bytes > a->max_bytes;
}

/* Returns the bytes of an arena that an allocation takes. An allocation of 0 bytes has an address,
 * too. */
static inline size_t arena_rounded(size_t size_bytes)
{
    return (size_bytes + ARENA_ALIGN - 1 + !size_bytes) & ~(size_t)(ARENA_ALIGN - 1);
}

/* Allocates uninitialised memory. */
void *arena_alloc_slow(struct arena *a, size_t size_bytes);

static inline void *arena_alloc(struct arena *a, size_t size_bytes)
{
    size_t n = arena_rounded(size_bytes);

    if (RG_LIKELY(n >= size_bytes && (size_t)(a->end - a->at) >= n)) {
        void *p = a->at;

        a->at += n;
        a->used_bytes += n;
        return p;
    }
    return arena_alloc_slow(a, size_bytes);
}

/* Allocates memory that arena_drop may free before the rest of the arena. */
void *arena_alloc_alone(struct arena *a, size_t size_bytes);

/* Enlarges memory of arena_alloc_alone, perhaps at a new address. The old address is invalid then.
 * Long memory is not copied. p NULL: like arena_alloc_alone. */
void *arena_grow_alone(struct arena *a, void *p, size_t size_bytes);

/* Frees memory of arena_alloc_alone at once. Accepts NULL. Ignores other memory. */
void arena_drop(struct arena *a, const void *p);

/* Allocates like arena_alloc and sets the bytes to zero. */
static inline void *arena_zalloc(struct arena *a, size_t size_bytes)
{
    return memset(arena_alloc(a, size_bytes), 0, size_bytes);
}

/* Allocates n zeroed elements. Aborts on overflow. */
void *arena_calloc(struct arena *a, size_t n, size_t size_bytes);

#define ARENA_NEW(a, type) ((type *)arena_zalloc((a), sizeof(type)))

/* Copies the bytes; the copy is NUL-terminated (len excludes the NUL). */
struct str arena_str(struct arena *a, struct str s);
char *arena_cstr(struct arena *a, struct str s);

/* Makes the arena call `let` with `thing` after the arena's memory is freed, on the thread that
 * frees it. */
void arena_hold(struct arena *a, void (*let)(void *thing), void *thing);

/* Passes memory of the heap (mem_alloc) to the arena, which frees it with its own. */
void arena_own(struct arena *a, void *p, size_t size_bytes);

/* Moves all memory of `from` to `to`, which frees it with its own. Nothing is copied. `from` is
 * empty afterwards. `from` must have nothing of arena_hold or arena_own. */
void arena_absorb(struct arena *to, struct arena *from);

/* Formats a text into memory of the arena. The text is NUL-terminated. */
struct str arena_printf(struct arena *a, const char *fmt, ...) RG_PRINTF(2, 3);

/* Frees everything except one chunk. Pointers into the arena become invalid. */
void arena_reset(struct arena *a);

/* Lets this thread keep up to 64 KiB of chunks that its arenas free, for its next arenas. For
 * threads that live as long as the process: these chunks are never freed. */
void arena_keep_chunks(void);

/* 1 if a sanitizer checks addresses: then no chunk is kept. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ADDRESSES_CHECKED 1
#elif defined(__has_feature)
#define ARENA_ADDRESSES_CHECKED __has_feature(address_sanitizer)
#else
#define ARENA_ADDRESSES_CHECKED 0
#endif

/* Frees all memory; the arena is valid and empty afterwards. */
void arena_done(struct arena *a);

#endif
