/*
 * struct buf: a growing byte buffer. Bytes [0, len) of p are the content; cap >= len. Embed by
 * value. A zeroed struct is a valid empty buffer.
 */
#ifndef RG_BASE_BUF_H
#define RG_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct buf {
    char *p;
    size_t len;
    size_t cap;
};

/* Frees the bytes and leaves an empty buffer. */
void buf_done(struct buf *b);

/* Frees the memory of a scratch buffer if it has more than `keep` bytes, for example after a long
 * text. */
static inline void buf_done_above(struct buf *b, size_t keep)
{
    if (b->cap > keep)
        buf_done(b);
}

/* Makes space for `more` bytes after len and returns its address; len does not change. A long
 * buffer is not copied when it grows (mem_grow). */
char *buf_reserve(struct buf *b, size_t more);

/* Removes `n` bytes from the front by moving the rest. */
void buf_consume(struct buf *b, size_t n);

/* Formats a text and appends it. */
void buf_printf(struct buf *b, const char *fmt, ...) RG_PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) RG_PRINTF(2, 0);

/* Append the number in decimal. */
void buf_add_u64(struct buf *b, uint64_t v);
void buf_add_i64(struct buf *b, int64_t v);

/* Returns the bytes, NUL-terminated, which the caller frees with free(). b is empty afterwards. */
char *buf_take(struct buf *b);

/* Returns "folder/name" in memory of its own. */
char *path_join(const char *folder, const char *name);

static inline void buf_clear(struct buf *b)
{
    b->len = 0;
}

static inline void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    memcpy(RG_LIKELY(b->cap - b->len >= n) ? b->p + b->len : buf_reserve(b, n), p, n);
    b->len += n;
}

static inline void buf_add_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.len);
}

/* Appends s, or the part of it with which b has max bytes. */
void buf_add_up_to(struct buf *b, struct str s, size_t max);

/* Sets the content to s, which is not of b. */
static inline void buf_set(struct buf *b, struct str s)
{
    buf_clear(b);
    buf_add_str(b, s);
}

static inline void buf_add_c(struct buf *b, char c)
{
    *(RG_LIKELY(b->len < b->cap) ? b->p + b->len : buf_reserve(b, 1)) = c;
    b->len++;
}

/* Appends a literal or a different NUL-terminated text. */
static inline void buf_puts(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

/* Returns the content, borrowed until the buffer changes. */
static inline struct str buf_str(const struct buf *b)
{
    return str_of(b->p ? b->p : "", b->len);
}

#endif
