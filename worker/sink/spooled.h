/* struct spooled: a spooled export, mapped into memory, with the positions of its trajectories. */
#ifndef RG_SINK_SPOOLED_H
#define RG_SINK_SPOOLED_H

#include "worker/sink/pieces.h"

struct spooled {
    struct str bytes;
    struct pieces pieces;
};

/* Maps the file and finds its trajectories. Fails with ERR_NOT_FOUND (no such file), ERR_INVALID
 * (not a whole export) or ERR_IO (unreadable now). Close it with spooled_close. */
int spooled_open(const char *path, struct spooled *ret, struct err *e);

/* Maps the file of a settled group, a JSON object with members, as a single piece. Otherwise like
 * spooled_open. */
int spooled_open_group(const char *path, struct spooled *ret, struct err *e);
/* Unmaps the file and frees the positions. Accepts a zeroed struct. */
void spooled_close(struct spooled *s);

/* Returns the bytes of trajectory i, borrowed from s. */
static inline struct str spooled_piece(const struct spooled *s, size_t i)
{
    return str_sub(s->bytes, s->pieces.at[i].start, s->pieces.at[i].len);
}

#endif
