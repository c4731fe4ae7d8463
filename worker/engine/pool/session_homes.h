/*
 * struct session_homes: the replica of each session's last call, to detect moves. A table of a
 * fixed size: of sessions with the same slot the last one is known. So among very many sessions a
 * move may go unnoticed, but none is reported that did not happen. Zeroed: nothing is known.
 */
#ifndef RG_ENGINE_SESSION_HOMES_H
#define RG_ENGINE_SESSION_HOMES_H

#include <stdint.h>

#include "common/base/str.h"

struct session_homes {
    struct session_home *at; /* NULL: no call was noted */
};

/* The session's call goes to the replica of that hash (not 0). Returns that of the one before; 0:
 * not known. */
uint64_t session_homes_note(struct session_homes *h, struct str session_id, uint64_t replica);

void session_homes_done(struct session_homes *h);

#endif
