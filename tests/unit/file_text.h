/*
 * Reads files of the test data.
 */
#ifndef RG_UNIT_FILE_TEXT_H
#define RG_UNIT_FILE_TEXT_H

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/buf.h"

/* Appends the whole file at `path` to b. Returns false if there is none. */
static inline bool file_bytes(const char *path, struct buf *b)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    while ((n = fread(buf_reserve(b, 65536), 1, 65536, f)) > 0)
        b->len += n;
    (void)fclose(f);
    return true;
}

/* Returns the file at `path` as a text in the arena. Absent if there is no such file. */
static inline struct str file_text(struct arena *a, const char *path)
{
    struct buf b = {0};
    struct str ret = {0};

    if (file_bytes(path, &b))
        ret = arena_str(a, str_of(b.p ? b.p : "", b.len));
    buf_done(&b);
    return ret;
}

#endif
