/*
 * struct track: one trajectory that an export will hold: its last checkpoint and the authors of its
 * messages. trajectory.h makes the arrays of it.
 */
#ifndef RG_EXPORT_TRACK_H
#define RG_EXPORT_TRACK_H

#include <stddef.h>
#include <stdint.h>

struct checkpoint;

struct track {
    struct checkpoint *head;  /* the last that is kept (max_tokens may have cut some) */
    struct checkpoint *whole; /* the last before that */
    uint32_t seq;
    const char *reason;      /* materialization_reason, or NULL */
    struct checkpoint *tail; /* its context follows the head (struct branch), or NULL */
    uint32_t tail_end;
    struct checkpoint *
        *authors; /* merged timelines: by message index, its author here; else NULL */
};

struct track_vec {
    struct track *at;
    size_t n, cap;
};

/* How many ids it has while nothing is merged. */
uint32_t track_total(const struct track *t);

#endif
