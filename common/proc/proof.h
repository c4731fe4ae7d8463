/*
 * struct proof: what the key of one request proves. It is passed on with the request. keys.h makes
 * and verifies keys.
 */
#ifndef RG_PROC_PROOF_H
#define RG_PROC_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct err;

enum key_scope { KEY_NONE, KEY_AGENT, KEY_RUNNER, KEY_ADMIN, KEY_EXECUTOR };

/* What the one key of a request proves (presented.h). If no keys are in use, what the key claims.
 */
struct proof {
    enum key_scope scope; /* KEY_NONE: the request has no valid key */
    struct str id;        /* id in a session key, else absent; borrowed from the head */
    /* worker index in the id; set if `claims`, even if the key proves nothing */
    uint32_t index;
    bool claims; /* index is set */
    bool meant;  /* the request has a text in the form of a session key, valid or not */
};

/* Checks whether the proof covers a session: an admin's covers all, a session key its own. Returns
 * -1 with ERR_MISSING_KEY or ERR_WRONG_SCOPE. session absent: the request is about no session. */
int proof_covers(const struct proof *p, struct str session, struct err *e);

#endif
