/*
 * struct session_homes: which replica each session's last call went to, to tell when one moves. A
 * table of a fixed size: of sessions that meet in one place the last one is known, so a move may
 * go unnoticed among very many sessions, and none is told that was not. Zeroed: nothing is known.
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
