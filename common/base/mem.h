/*
 * Allocation that cannot fail: without memory the process aborts (the supervisor replaces it and
 * the journal replays). Callers check limits of input before they allocate. Memory from here is
 * freed with free().
 */
#ifndef RG_BASE_MEM_H
#define RG_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* Allocates uninitialised bytes. Size 0 gives a unique pointer. */
void *mem_alloc(size_t size_bytes);

/* Allocates zeroed bytes. Aborts if n * size overflows. */
void *mem_zalloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);

/* Like realloc; `ptr` may be NULL. */
void *mem_realloc(void *ptr, size_t size_bytes);

/* Grows an array to n elements of size_bytes. Aborts if the product overflows. */
void *mem_realloc_array(void *ptr, size_t n, size_t size_bytes);

/* Enlarges a growing heap array. p has had_bytes (NULL: 0) and gets size_bytes; the array may move.
 * Free it with free(). Above 2 MiB the array reserves 32 MiB of address space from a large page
 * on, so it is never copied again. Unused address space takes no memory. (realloc copies at each
 * doubling and touches each page: 9 ms for 16 MiB.) */
void *mem_grow(void *p, size_t had_bytes, size_t size_bytes);

/* Maps zeroed pages, for long, short-lived memory. They are returned to the system when they are
 * unmapped. From 2 MiB on they are large pages, if the kernel has some. Free them with mem_unmap,
 * which works in steps, because other threads that map memory wait meanwhile. */
void *mem_map(size_t size_bytes);
void mem_unmap(void *ptr, size_t size_bytes);

/* Makes the kernel provide the pages of these bytes in one call (does nothing above 8 MiB). For
 * memory of mem_map that is about to be written. In a virtual machine the first access to a page
 * may cost ten microseconds. */
void mem_touch(void *p, size_t size_bytes);

/* mem_large_page finds the first large page at or after p, and its length. Call mem_ask_large just
 * before you write the whole page; false: the kernel has no large page. mem_unask_large withdraws
 * the request for several pages in a row, so that later content may use small pages. */
enum { MEM_LARGE_PAGE = 2 << 20 };

char *mem_large_behind(char *p);
bool mem_ask_large(char *page);
void mem_unask_large(char *from, const char *to);

/* Resizes memory of mem_map to new_bytes, perhaps at a new address. It is never copied. */
void *mem_remap(void *ptr, size_t size_bytes, size_t new_bytes);

/* Returns the whole pages among these bytes to the system. They may read as zeros from then on, and
 * still belong to their owner. */
void mem_drop_pages(const char *p, size_t size_bytes);

/* Moves a table to large pages, if the kernel has some, so that lookups need no walks through page
 * tables. For tables that are read at random for the life of the process. Returns the new address
 * (free it with free()), or p itself if the table is small. */
void *mem_to_large_pages(void *p, size_t size_bytes);

/* Returns a NUL-terminated copy of len bytes. */
char *mem_strndup(const char *s, size_t len);
char *mem_strdup(const char *s);

#endif
