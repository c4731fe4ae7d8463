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

/* Makes a growing heap array longer. p has had_bytes (NULL: 0) and gets size_bytes; the array may
 * move. Free it with free(). From 2 MiB on it has 32 MiB of address space at a large page, so it is
 * never copied again; unused address space takes no memory. (realloc copies at each doubling and
 * touches each page: 9 ms for 16 MiB.) */
void *mem_grow(void *p, size_t had_bytes, size_t size_bytes);

/* Maps zeroed pages, which return to the system when they are unmapped. For long, short-lived
 * memory. From 2 MiB on they are large pages, if the kernel has some. Free them with mem_unmap,
 * which works in steps, since other threads that map memory wait meanwhile. */
void *mem_map(size_t size_bytes);
void mem_unmap(void *ptr, size_t size_bytes);

/* Has the pages of these bytes made in one call (none of more than 8 MiB): for what mem_map gave
 * and is about to be written. In a virtual machine a page that is touched by itself may cost ten
 * microseconds. */
void mem_touch(void *p, size_t size_bytes);

/* Finds the first large page at or after p, and its length. Call mem_ask_large just before you
 * write the page as a whole; false: the kernel has no large page. mem_unask_large takes back the
 * request for several pages in a row, so that later content may use small pages. */
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

/* Moves a table to large pages, if the kernel gives some, so that lookups need no walks through
 * page tables. For tables that are read at random for the life of the process. Returns the new
 * address (free it with free()), or p itself if the table is small. */
void *mem_to_large_pages(void *p, size_t size_bytes);

/* A NUL-terminated copy of len bytes. */
char *mem_strndup(const char *s, size_t len);
char *mem_strdup(const char *s);

#endif
