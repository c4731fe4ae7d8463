/*
 * Allocation that cannot fail: out of memory aborts (the supervisor replaces the process and the
 * journal replays). Unlimited input is the bug, not malloc; limits are checked before.
 * Memory from here is freed with free().
 */
#ifndef RG_BASE_MEM_H
#define RG_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* Uninitialised bytes; size 0 gives a unique pointer. */
void *mem_alloc(size_t size_bytes);

/* Zeroed bytes. Aborts when n * size overflows. */
void *mem_zalloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);

/* Like realloc; `ptr` may be NULL. */
void *mem_realloc(void *ptr, size_t size_bytes);

/* Grows an array to n elements of size_bytes; aborts when the product overflows. */
void *mem_realloc_array(void *ptr, size_t n, size_t size_bytes);

/* Makes a growing array of the heap longer: p of had_bytes (NULL of 0) becomes size_bytes, at
 * another place maybe; free() gives it up. From 2 MiB on it has address space of 32 MiB, where a
 * large page begins: what is not used takes no memory, and it is copied no more, however long it
 * becomes. (realloc copies it each time it doubles, and touches each page: 16 MiB take 9 ms.) */
void *mem_grow(void *p, size_t had_bytes, size_t size_bytes);

/* Whole pages of zeroed bytes, which go back to the system as soon as they are given up: for what
 * is long and short-lived, whoever's heap it would lie in. From 2 MiB on they are large pages where
 * the kernel gives some. Given up with mem_unmap, which is done in pieces: other threads that map
 * memory wait meanwhile. */
void *mem_map(size_t size_bytes);
void mem_unmap(void *ptr, size_t size_bytes);

/* Has the pages of these bytes made in one call (none of more than 8 MiB): for what mem_map gave
 * and is about to be written. In a virtual machine a page that is touched by itself may cost ten
 * microseconds. */
void mem_touch(void *p, size_t size_bytes);

/* Where the first large page at or behind p may begin, and how long it is. To be asked for by
 * mem_ask_large just before it is written, as a whole (false: the kernel has none). mem_unask_large
 * takes the wish back, of several in a row in one call: what lies there later may be small. */
enum { MEM_LARGE_PAGE = 2 << 20 };

char *mem_large_behind(char *p);
bool mem_ask_large(char *page);
void mem_unask_large(char *from, const char *to);

/* Makes what mem_map gave new_bytes long, at another place maybe; however long, it is not copied.
 */
void *mem_remap(void *ptr, size_t size_bytes, size_t new_bytes);

/* Gives the whole pages among these bytes back to the system: they may read as zeros from then on,
 * and stay with their owner. */
void mem_drop_pages(const char *p, size_t size_bytes);

/* Moves a table that is read all over, for as long as the process lives, into large pages where
 * the kernel gives some: what is looked up there is found without walks through page tables.
 * Returns its new place, freed with free(); p itself if the table is small. */
void *mem_to_large_pages(void *p, size_t size_bytes);

/* A NUL-terminated copy of len bytes. */
char *mem_strndup(const char *s, size_t len);
char *mem_strdup(const char *s);

#endif
