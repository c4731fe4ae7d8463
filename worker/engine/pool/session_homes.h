/*
 * struct session_homes: the replica of each session's last call, to detect moves. A table of a
 * fixed size: of several sessions with the same slot only the last one is known. So among very many
 * sessions a move may go unnoticed, but no false move is reported. Zeroed: nothing is known.
 */
#ifndef RG_ENGINE_SESSION_HOMES_H
#define RG_ENGINE_SESSION_HOMES_H

#include <stdint.h>

#include "common/base/str.h"

struct session_homes {
    struct session_home *at; /* NULL: no call was recorded */
};

/* Records that the session's call goes to the replica of that hash (not 0). Returns the hash of the
 * one before; 0: unknown. */
uint64_t session_homes_note(struct session_homes *h, struct str session_id, uint64_t replica);

void session_homes_done(struct session_homes *h);

#endif
