/*
 * Every function here asks for at least one byte, so that NULL never means "nothing", and CHECKs
 * the result. So no caller has an untested path for a failed allocation. Sizes that come from a
 * product are checked for overflow before they are used.
 */
#include "common/base/mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/check.h"

/* DROP_PIECE: bytes unmapped in one call, because other threads that map memory wait meanwhile.
 * LARGE_PAGE: size on the processors that we run on; unmapping frees one at a time. TOUCHED_MAX:
 * longer memory would take too long in one step. LONG_ROOM: the C library maps blocks of this size
 * separately and moves their pages when they grow (M_MMAP_THRESHOLD is nowhere larger). SMALL_MAX:
 * the C library keeps no longer blocks for the thread that freed them. */
enum {
    DROP_PIECE = 1 << 20,
    LARGE_PAGE = MEM_LARGE_PAGE,
    TOUCHED_MAX = 8 << 20,
    LONG_ROOM = 32 << 20,
    SMALL_MAX = 1024
};

void *mem_alloc(size_t size_bytes)
{
    void *p = malloc(size_bytes ? size_bytes : 1);

    CHECK(p != NULL);
    return p;
}

void *mem_zalloc(size_t size_bytes)
{
    return mem_calloc(1, size_bytes);
}

/* Uses malloc for small blocks: the C library keeps freed blocks for malloc, but calloc does not
 * use them. calloc is better for large blocks, because it knows which pages are zero. */
void *mem_calloc(size_t n, size_t size_bytes)
{
    size_t total;
    void *p;

    if (!__builtin_mul_overflow(n, size_bytes, &total) && total <= SMALL_MAX)
        return memset(mem_alloc(total), 0, total);
    p = calloc(n, size_bytes);
    CHECK(p != NULL);
    return p;
}

void *mem_realloc(void *ptr, size_t size_bytes)
{
    void *p = realloc(ptr, size_bytes ? size_bytes : 1);

    CHECK(p != NULL);
    return p;
}

void *mem_realloc_array(void *ptr, size_t n, size_t size_bytes)
{
    size_t total;

    CHECK(!__builtin_mul_overflow(n, size_bytes, &total));
    return mem_realloc(ptr, total);
}

/* Asks for large pages. If the kernel has none, small pages are slower but work. */
static void wish_large_pages(void *p, size_t size_bytes)
{
    if (size_bytes >= LARGE_PAGE)
        (void)madvise(p, size_bytes, MADV_HUGEPAGE);
}

/* Allocates from the C library, from the start of a large page on. Returns NULL if that fails. */
static void *alloc_large(size_t size_bytes)
{
    size_t room = (size_bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    void *p = aligned_alloc(LARGE_PAGE, room);

    if (p)
        wish_large_pages(p, room);
    return p;
}

void *mem_grow(void *p, size_t had_bytes, size_t size_bytes)
{
    size_t room = p ? malloc_usable_size(p) : 0;
    void *q;

    if (size_bytes <= LARGE_PAGE || room >= LONG_ROOM)
        return room >= LONG_ROOM && room >= size_bytes ? p : mem_realloc(p, size_bytes);
    q = alloc_large(MAX_OF(size_bytes, (size_t)LONG_ROOM));
    if (!q) /* address space is short: RLIMIT_AS, or a system without overcommit */
        return mem_realloc(p, size_bytes);
    if (p)
        memcpy(q, p, had_bytes);
    free(p);
    return q;
}

void mem_touch(void *p, size_t size_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p & ~(page - 1), to = (uintptr_t)p + size_bytes;

    if (size_bytes <= TOUCHED_MAX)
        (void)madvise((void *)from, to - from, /* NOLINT(performance-no-int-to-ptr) */
                      MADV_POPULATE_WRITE);
}

char *mem_large_behind(char *p)
{
    return p + (0 - (uintptr_t)p) % LARGE_PAGE;
}

bool mem_ask_large(char *page)
{
    return madvise(page, LARGE_PAGE, MADV_HUGEPAGE) == 0;
}

/* Otherwise khugepaged would later turn the small pages there into large ones. */
void mem_unask_large(char *from, const char *to)
{
    if (from < to)
        (void)madvise(from, (size_t)(to - from), MADV_NOHUGEPAGE);
}

static char *map_pages(size_t size_bytes)
{
    /* cppcheck-suppress invalidFunctionArg ; -1 goes with MAP_ANONYMOUS */
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(p != MAP_FAILED);
    return p;
}

/* Maps memory that begins at a large page. Kernels before 6.7 do not choose such an address by
 * themselves. */
static char *map_large(size_t size_bytes)
{
    const size_t small = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = (size_bytes + small - 1) / small * small;
    char *p = map_pages(n + LARGE_PAGE);
    size_t before = (0 - (uintptr_t)p) % LARGE_PAGE;

    if (before > 0)
        mem_unmap(p, before);
    mem_unmap(p + before + n, LARGE_PAGE - before);
    return p + before;
}

void *mem_map(size_t size_bytes)
{
    size_t n = size_bytes ? size_bytes : 1;
    char *p = n < LARGE_PAGE ? map_pages(n) : map_large(n);

    wish_large_pages(p, n);
    return p;
}

void mem_unmap(void *ptr, size_t size_bytes)
{
    char *p = ptr;
    size_t left = size_bytes ? size_bytes : 1;

    for (size_t n; left > 0; p += n, left -= n) {
        n = MIN_OF(left, (size_t)LARGE_PAGE);
        CHECK(munmap(p, n) == 0);
    }
}

void *mem_remap(void *ptr, size_t size_bytes, size_t new_bytes)
{
    void *p = mremap(ptr, size_bytes ? size_bytes : 1, new_bytes, MREMAP_MAYMOVE);

    CHECK(p != MAP_FAILED);
    wish_large_pages(p, new_bytes);
    return p;
}

void mem_drop_pages(const char *p, size_t size_bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)p + size_bytes) & ~(page - 1);

    for (uintptr_t end; from < to; from = end) {
        end = MIN_OF(from + DROP_PIECE, to);
        (void)madvise((void *)from, end - from, /* NOLINT(performance-no-int-to-ptr) */
                      MADV_DONTNEED);
    }
}

void *mem_to_large_pages(void *p, size_t size_bytes)
{
    void *q;

    if (size_bytes < LARGE_PAGE / 2)
        return p;
    q = alloc_large(size_bytes);
    CHECK(q != NULL);
    memcpy(q, p, size_bytes);
    free(p);
    return q;
}

char *mem_strndup(const char *s, size_t len)
{
    char *p = mem_alloc(len + 1);

    if (len)
        memcpy(p, s, len);
    p[len] = 0;
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}
