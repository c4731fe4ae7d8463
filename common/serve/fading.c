/* Answers' memory that goes back a piece a turn (fading.h), from its end: the rest is one
 * allocation until nothing is left of it. */
#include "common/serve/fading.h"

#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/mem.h"

/* What goes in a turn: so much, and of very much this part, so that it cannot come faster for ever
 * than it goes. */
enum { FADE_PIECE = 1 << 20, FADE_PART = 64 };

enum { FADE_LEAST = 4 << 20 }; /* shorter ones are freed at once */

struct faded {
    struct list_item item;
    char *p;
    size_t left_bytes;
};

static void end(struct faded *d)
{
    list_remove(&d->item);
    free(d->p);
    free(d);
}

static void on_turn(struct loop_task *t)
{
    struct fading *f = CONTAINER_OF(t, struct fading, task);
    size_t left = MAX_OF((size_t)FADE_PIECE, f->bytes / FADE_PART);
    struct faded *d, *next;

    LIST_EACH_SAFE(&f->bufs, d, next, struct faded, item) {
        size_t n = MIN_OF(d->left_bytes, left);

        d->left_bytes -= n;
        f->bytes -= n;
        left -= n;
        mem_drop_pages(d->p + d->left_bytes, n);
        if (d->left_bytes == 0)
            end(d);
        if (left == 0)
            break;
    }
    if (f->bytes > 0)
        loop_task_post_behind(f->loop, t, on_turn);
}

void fading_init(struct fading *f, struct loop *l)
{
    *f = (struct fading){.loop = l};
}

void fading_take(struct fading *f, struct buf *b)
{
    struct faded *d;

    if (b->cap < FADE_LEAST) {
        buf_done(b);
        return;
    }
    d = mem_zalloc(sizeof(*d));
    d->left_bytes = b->cap;
    d->p = b->p;
    *b = (struct buf){0};
    f->bytes += d->left_bytes;
    list_append(&f->bufs, &d->item);
    loop_task_post_behind(f->loop, &f->task, on_turn);
}

void fading_done(struct fading *f)
{
    struct faded *d, *next;

    LIST_EACH_SAFE(&f->bufs, d, next, struct faded, item)
        end(d);
    f->bytes = 0;
    loop_task_cancel(f->loop, &f->task);
}
