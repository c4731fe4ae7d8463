/* struct spooled: a spooled export, mapped for reading, with its trajectories found. */
#ifndef RG_SINK_SPOOLED_H
#define RG_SINK_SPOOLED_H

#include "worker/sink/pieces.h"

struct spooled {
    struct str bytes;
    struct pieces pieces;
};

/* ERR_NOT_FOUND: it is gone; ERR_INVALID: it is not a whole export; ERR_IO: it cannot be read now.
 */
int spooled_open(const char *path, struct spooled *ret, struct err *e);

/* Opens a file that is one piece as a whole. */
int spooled_open_whole(const char *path, struct spooled *ret, struct err *e);
void spooled_close(struct spooled *s);

/* The bytes of one trajectory. */
static inline struct str spooled_piece(const struct spooled *s, size_t i)
{
    return str_sub(s->bytes, s->pieces.at[i].start, s->pieces.at[i].len);
}

#endif
