/* Growing bytes (buf.h). The capacity doubles, so appending takes linear time in total. An empty
 * buf owns no memory. A pointer into a buf is valid until the next call that may grow it. */

#include "common/base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"

void buf_done(struct buf *b)
{
    free(b->p);
    *b = (struct buf){0};
}

/* Makes the first allocation even if `more` is 0, so that p is never NULL afterwards. */
char *buf_reserve(struct buf *b, size_t more)
{
    if (b->cap - b->len < more || !b->p) {
        size_t want = b->cap ? b->cap : 64;

        CHECK(more < SIZE_MAX / 4 && b->len < SIZE_MAX / 4);
        while (want - b->len < more)
            want *= 2;
        b->p = mem_grow(b->p, b->cap, want);
        b->cap = want;
    }
    return b->p + b->len;
}

void buf_add_up_to(struct buf *b, struct str s, size_t max)
{
    buf_add_str(b, str_sub(s, 0, max > b->len ? max - b->len : 0));
}

void buf_consume(struct buf *b, size_t n)
{
    CHECK(n <= b->len);
    b->len -= n;
    if (b->len > 0 && n > 0)
        memmove(b->p, b->p + n, b->len);
}

/* Formats into the free space of the buffer, which is usually large enough. Otherwise enlarges it
 * and formats again. */
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    enum { ROOM = 96 };

    va_list again;
    char *at = buf_reserve(b, ROOM);
    size_t room = b->cap - b->len;
    int n;

    va_copy(again, ap);
    n = vsnprintf(at, room, fmt, ap);
    CHECK(n >= 0);
    if ((size_t)n >= room)
        (void)vsnprintf(buf_reserve(b, (size_t)n + 1), (size_t)n + 1, fmt, again);
    b->len += (size_t)n;
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

/* Formats without the C library, because millions of token ids are written. */
void buf_add_u64(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t n = sizeof(digits);

    do {
        digits[--n] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_add(b, digits + n, sizeof(digits) - n);
}

void buf_add_i64(struct buf *b, int64_t v)
{
    if (v < 0)
        buf_add_c(b, '-');
    buf_add_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

char *buf_take(struct buf *b)
{
    char *p;

    buf_add_c(b, 0);
    p = b->p;
    *b = (struct buf){0};
    return p;
}

char *path_join(const char *folder, const char *name)
{
    struct buf path = {0};

    buf_printf(&path, "%s/%s", folder, name);
    return buf_take(&path);
}
