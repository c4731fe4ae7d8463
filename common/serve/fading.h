/*
 * struct fading: long answers that nobody reads any more, on their way back to the system. It takes
 * back a megabyte in up to half a millisecond, so a piece goes in each turn of the loop; others'
 * work comes between.
 */
#ifndef RG_SERVE_FADING_H
#define RG_SERVE_FADING_H

#include <stddef.h>

#include "common/base/list.h"
#include "common/os/loop.h"

struct buf;

struct fading {
    struct loop *loop;
    struct list_head bufs;
    struct loop_task task;
    size_t bytes; /* that are not given back yet */
};

/* Nothing fades. */
void fading_init(struct fading *f, struct loop *l);

/* Frees b, at once or in later turns; b is empty afterwards. */
void fading_take(struct fading *f, struct buf *b);

/* Frees what is left at once. */
void fading_done(struct fading *f);

#endif
