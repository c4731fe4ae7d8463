/* Blocks of what was recorded in parts (text_parts.h). */
#include "worker/session/text_parts.h"

enum { BLOCK = 256 << 10 }; /* small parts share one; a larger one has its own */

void text_parts_add(struct text_parts *t, struct str part)
{
    struct buf *last = t->blocks.n > 0 ? &vec_last(&t->blocks) : NULL;
    size_t had;

    if (!last || last->len + part.len > BLOCK) {
        last = vec_push(&t->blocks);
        *last = (struct buf){0};
    }
    had = last->cap;
    buf_add_str(last, part);
    t->len += part.len;
    t->bytes += last->cap - had;
}

struct str text_parts_whole(struct text_parts *t)
{
    struct buf all = {0};

    if (t->blocks.n == 1)
        return buf_str(&t->blocks.at[0]);
    if (t->len > 0)
        (void)buf_reserve(&all, t->len);
    for (size_t i = 0; i < t->blocks.n; i++) {
        buf_add_str(&all, buf_str(&t->blocks.at[i]));
        buf_done(&t->blocks.at[i]);
    }
    vec_clear(&t->blocks);
    *vec_push(&t->blocks) = all;
    t->bytes = all.cap;
    return buf_str(&all);
}

void text_parts_done(struct text_parts *t)
{
    for (size_t i = 0; i < t->blocks.n; i++)
        buf_done(&t->blocks.at[i]);
    vec_done(&t->blocks);
    t->len = t->bytes = 0;
}
