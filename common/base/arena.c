/* The arena (arena.h): a list of chunks, the newest first. Allocation moves a pointer in the newest
 * chunk (inline, in the header). The code here runs only when a chunk is full. Chunks double from
 * ARENA_FIRST to ARENA_MAX. In a `tight` arena each new chunk is an eighth of held_bytes, and a
 * request that is long beside a new chunk gets one of its own size, so that the newest one is
 * filled first. */

#include "common/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

enum { ARENA_FIRST = 4096, ARENA_MAX = 1 << 20, ALONE_MAPPED = 128 << 10, CHUNK_MAPPED = 8 << 20 };

/* In a `tight` arena, requests from 1/LONG_PART of the next chunk on are long. */
enum { LONG_PART = 8 };

/* SPARE_MAX chunks of each of SPARE_SIZES sizes may be kept. */
enum { SPARE_MAX = 64, SPARE_SIZES = 3 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t cap;
    bool alone;  /* the chunk has one allocation only */
    bool mapped; /* the chunk has pages of its own, which are returned to the system at once */
    _Alignas(ARENA_ALIGN) char bytes[];
};

struct arena_held {
    struct arena_held *next;
    void (*let)(void *thing);
    void *thing;
    size_t size; /* bytes of the chunk that count in held_bytes */
};

/* Chunks of ARENA_FIRST, and of its next doubles, that this thread keeps for its next arenas. They
 * are longer than the blocks that the C library keeps for reuse. */
static _Thread_local struct spare {
    struct arena_chunk *first;
    unsigned room; /* chunks that may still be kept; 0: this thread keeps none */
} spares[SPARE_SIZES];

void arena_keep_chunks(void)
{
#if !ARENA_ADDRESSES_CHECKED /* a sanitizer must detect uses of freed chunks */
    for (int i = 0; i < SPARE_SIZES; i++)
        if (!spares[i].first)
            spares[i].room = SPARE_MAX;
#endif
}

/* Returns the spare chunks of a size. NULL: no chunks of this size are kept. */
static struct spare *spare_of(size_t cap)
{
    for (int i = 0; i < SPARE_SIZES; i++)
        if (cap == (size_t)ARENA_FIRST << i)
            return &spares[i];
    return NULL;
}

static struct arena_chunk *chunk_new(size_t cap)
{
    struct spare *s = spare_of(cap);
    struct arena_chunk *c = s ? s->first : NULL;

    if (!c)
        return mem_alloc(sizeof(*c) + cap);
    s->first = c->next;
    s->room++;
    return c;
}

/* Frees a chunk. glibc's heap keeps its pages for the next call, because the first access to a page
 * costs more than writing to it. */
static void chunk_free(struct arena_chunk *c)
{
    struct spare *s = spare_of(c->cap);

    if (c->mapped) {
        mem_unmap(c, sizeof(*c) + c->cap);
    } else if (s && s->room > 0) {
        c->next = s->first;
        s->first = c;
        s->room--;
    } else {
        free(c);
    }
}

/* Returns the usual size of the next chunk, without regard to the request. */
static size_t next_chunk(const struct arena *a)
{
    size_t least = a->first_bytes ? a->first_bytes : ARENA_FIRST, cap = least;

    if (a->chunks)
        cap = a->tight ? a->held_bytes / 8 : a->chunks->cap * 2;
    return MIN_OF(MAX_OF(cap, least), (size_t)ARENA_MAX);
}

/* Updates the sums after chunks were added or freed. */
static void count_chunks(struct arena *a, size_t before, size_t now)
{
    a->held_bytes = now;
    if (a->sum)
        atomic_fetch_add_explicit(a->sum, now - before, memory_order_relaxed);
}

/* Allocates from a new chunk. The unused end of the old chunk is lost, except after a long request
 * in a `tight` arena. A request larger than a chunk gets a chunk of its own size. */
void *arena_alloc_slow(struct arena *a, size_t size_bytes)
{
    size_t need = arena_rounded(size_bytes);
    size_t next = next_chunk(a);
    bool is_long = a->tight && a->chunks && need >= next / LONG_PART;
    size_t cap = is_long ? need : MAX_OF(next, need);
    bool mapped = cap >= CHUNK_MAPPED;
    struct arena_chunk *c;

    CHECK(need >= size_bytes);
    c = mapped ? mem_map(sizeof(*c) + cap) : chunk_new(cap);
    if (mapped)
        mem_touch(c, sizeof(*c) + cap);
    c->cap = cap;
    c->alone = false;
    c->mapped = mapped;
    if (is_long) {
        c->next = a->chunks->next;
        a->chunks->next = c;
    } else {
        c->next = a->chunks;
        a->chunks = c;
        a->at = c->bytes + need;
        a->end = c->bytes + cap;
    }
    a->used_bytes += need;
    count_chunks(a, a->held_bytes, a->held_bytes + sizeof(*c) + cap);
    return c->bytes;
}

/* Adds the chunk after the newest one, which remains the one that is filled. */
void *arena_alloc_alone(struct arena *a, size_t size_bytes)
{
    bool mapped = size_bytes >= ALONE_MAPPED;
    struct arena_chunk *c;

    if (!a->chunks)
        (void)arena_alloc_slow(a, 1);
    c = mapped ? mem_map(sizeof(*c) + size_bytes) : mem_alloc(sizeof(*c) + size_bytes);
    c->cap = size_bytes;
    c->alone = true;
    c->mapped = mapped;
    c->next = a->chunks->next;
    a->chunks->next = c;
    a->used_bytes += size_bytes;
    count_chunks(a, a->held_bytes, a->held_bytes + sizeof(*c) + size_bytes);
    return c->bytes;
}

/* Returns the link to p's own chunk, made by arena_alloc_alone; NULL if p has none. */
static struct arena_chunk **find_alone(struct arena *a, const void *p)
{
    struct arena_chunk **at = &a->chunks;

    while (*at && (!(*at)->alone || (*at)->bytes != p))
        at = &(*at)->next;
    return at;
}

void *arena_grow_alone(struct arena *a, void *p, size_t size_bytes)
{
    struct arena_chunk **at = find_alone(a, p), *c = *at;
    size_t had;

    CHECK(!p || (c && size_bytes >= c->cap));
    if (!p)
        return arena_alloc_alone(a, size_bytes);
    if (!c->mapped && size_bytes >= ALONE_MAPPED) {
        void *grown = arena_alloc_alone(a, size_bytes);

        memcpy(grown, p, c->cap);
        arena_drop(a, p);
        return grown;
    }
    had = c->cap;
    c = c->mapped ? mem_remap(c, sizeof(*c) + had, sizeof(*c) + size_bytes)
                  : mem_realloc(c, sizeof(*c) + size_bytes);
    c->cap = size_bytes;
    *at = c;
    a->used_bytes += size_bytes - had;
    count_chunks(a, a->held_bytes, a->held_bytes + size_bytes - had);
    return c->bytes;
}

void arena_drop(struct arena *a, const void *p)
{
    struct arena_chunk **at = find_alone(a, p);

    if (*at) {
        struct arena_chunk *c = *at;

        *at = c->next;
        a->used_bytes -= c->cap;
        count_chunks(a, a->held_bytes, a->held_bytes - sizeof(*c) - c->cap);
        chunk_free(c);
    }
}

void *arena_calloc(struct arena *a, size_t n, size_t size_bytes)
{
    size_t total;

    CHECK(!__builtin_mul_overflow(n, size_bytes, &total));
    return arena_zalloc(a, total);
}

/* Copies the string with a NUL at its end, so that C functions can read it. */
char *arena_cstr(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.len + 1);

    if (s.len)
        memcpy(p, s.p, s.len);
    p[s.len] = 0;
    return p;
}

struct str arena_str(struct arena *a, struct str s)
{
    return str_of(arena_cstr(a, s), s.len);
}

/* Formats into the free end of the newest chunk, which is usually large enough. Otherwise formats
 * again into a new chunk. */
struct str arena_printf(struct arena *a, const char *fmt, ...)
{
    const char *first = a->at;
    size_t room = (size_t)(a->end - a->at);
    va_list ap, again;
    char *p;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(a->at, room, fmt, ap);
    CHECK(n >= 0);
    p = arena_alloc(a, (size_t)n + 1);
    if (p != first)
        (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return str_of(p, (size_t)n);
}

/* The newest chunk is the one that is filled. So the one with more free space of the two becomes
 * the newest. */
void arena_absorb(struct arena *to, struct arena *from)
{
    struct arena_chunk *last = from->chunks;
    bool fills = !to->chunks || from->end - from->at > to->end - to->at;

    CHECK(!from->held);
    if (!last)
        return;
    while (last->next)
        last = last->next;
    if (fills) {
        last->next = to->chunks;
        to->chunks = from->chunks;
        to->at = from->at;
        to->end = from->end;
    } else {
        last->next = to->chunks->next;
        to->chunks->next = from->chunks;
    }
    to->used_bytes += from->used_bytes;
    count_chunks(to, to->held_bytes, to->held_bytes + from->held_bytes);
    count_chunks(from, from->held_bytes, 0);
    *from = (struct arena){0};
}

static void push_cleanup(struct arena *a, struct arena_held what)
{
    struct arena_held *h = mem_alloc(sizeof(*h));

    *h = what;
    h->next = a->held;
    a->held = h;
    a->used_bytes += h->size;
    count_chunks(a, a->held_bytes, a->held_bytes + h->size);
}

/* The memory of this record does not count in the budget. */
void arena_hold(struct arena *a, void (*let)(void *thing), void *thing)
{
    push_cleanup(a, (struct arena_held){.let = let, .thing = thing});
}

void arena_own(struct arena *a, void *p, size_t size_bytes)
{
    push_cleanup(a, (struct arena_held){.let = free, .thing = p, .size = size_bytes});
}

static void run_cleanups(struct arena *a)
{
    while (a->held) {
        struct arena_held *h = a->held;

        a->held = h->next;
        a->used_bytes -= h->size;
        count_chunks(a, a->held_bytes, a->held_bytes - h->size);
        h->let(h->thing);
        free(h);
    }
}

/* Keeps the oldest chunk for the next use. All memory handed out before is invalid. */
void arena_reset(struct arena *a)
{
    struct arena_chunk *keep = a->chunks;

    run_cleanups(a);
    if (!keep)
        return;
    while (keep->next) {
        struct arena_chunk *c = keep->next;

        keep->next = c->next;
        chunk_free(c);
    }
    /* One huge request must not pin its memory for the life of the process. */
    if (keep->cap > ARENA_MAX) {
        struct arena empty = {.max_bytes = a->max_bytes, .sum = a->sum, .tight = a->tight};

        arena_done(a);
        *a = empty;
        return;
    }
    keep->alone = false;
    a->at = keep->bytes;
    a->end = keep->bytes + keep->cap;
    a->used_bytes = 0;
    count_chunks(a, a->held_bytes, sizeof(*keep) + keep->cap);
}

void arena_done(struct arena *a)
{
    run_cleanups(a);
    while (a->chunks) {
        struct arena_chunk *c = a->chunks;

        a->chunks = c->next;
        chunk_free(c);
    }
    count_chunks(a, a->held_bytes, 0);
    *a = (struct arena){0};
}
