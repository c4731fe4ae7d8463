/*
 * struct track: one trajectory of an export: its last checkpoint and the authors of its messages.
 * trajectory.h makes its arrays.
 */
#ifndef RG_EXPORT_TRACK_H
#define RG_EXPORT_TRACK_H

#include <stddef.h>
#include <stdint.h>

struct checkpoint;

struct track {
    struct checkpoint *head;  /* last checkpoint that is kept (max_tokens may have cut some) */
    struct checkpoint *whole; /* last checkpoint before the cut */
    uint32_t seq;
    const char *reason; /* materialization_reason, or NULL */
    /* checkpoint whose context follows the head (struct branch), or NULL */
    struct checkpoint *tail;
    uint32_t tail_end;
    struct checkpoint **authors; /* merged timelines: author of each message, by index; else NULL */
};

struct track_vec {
    struct track *at;
    size_t n, cap;
};

/* Returns the number of ids without merging. */
uint32_t track_total(const struct track *t);

#endif
