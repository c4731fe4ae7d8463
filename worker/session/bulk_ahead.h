/*
 * struct bulk_ahead: the bulk of one record of a call (payload.h), as the records before it bring
 * it, a part each (BLOCK_BULK). The record itself then tells lengths alone; what was brought
 * becomes the bytes of its payload, which comes back from the same records. A part is copied to
 * where the payload has it: to put a long bulk together at the end would take some milliseconds. A
 * zeroed struct is valid and empty.
 */
#ifndef RG_SESSION_BULK_AHEAD_H
#define RG_SESSION_BULK_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/base/vec.h"
#include "worker/session/payload.h"

struct arena;

struct bulk_ahead {
    uint32_t answer;  /* so many are in records before its own */
    struct str bytes; /* so far */
    char *room;       /* where they lie, as payload_resize says, of `cap` bytes */
    size_t cap;
    VEC(struct payload_part) places; /* of the parts */
};

/* Bytes of memory that it takes. */
size_t bulk_ahead_bytes(const struct bulk_ahead *b);

/* Copies a part, of that record of the session, behind the others. False: they would be too many
 * bytes for a payload. */
bool bulk_ahead_add(struct bulk_ahead *b, struct str part, uint32_t record);

/* Gives the bytes away, as the caller's own (payload_free_room), and tells in the
 * arena where they come from. Empty afterwards. */
char *bulk_ahead_take(struct bulk_ahead *b, struct arena *a, const struct payload_parts **ret);

/* Empty afterwards. */
void bulk_ahead_done(struct bulk_ahead *b);

#endif
