/*
 * struct proof: what the key of one request proves, as it goes with the request. How keys are made
 * and verified is keys.h's.
 */
#ifndef RG_PROC_PROOF_H
#define RG_PROC_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct err;

enum key_scope { KEY_NONE, KEY_AGENT, KEY_RUNNER, KEY_ADMIN, KEY_EXECUTOR };

/* What the one key of a request proves (presented.h). Without keys in use it is what the key says
 * of itself. */
struct proof {
    enum key_scope scope; /* KEY_NONE: there is no good key */
    struct str id;        /* id of a session key, else absent; borrows the head */
    uint32_t index;       /* in the id, or, if the key proves nothing, what it says (`claims`) */
    bool claims;          /* index is set */
    bool meant;           /* a session key's form was shown, good or not */
};

/* Whether the proof, valid or not, may be for a session id: an admin's for every, a session key for
 * its own. -1 with ERR_MISSING_KEY or ERR_WRONG_SCOPE. session absent: any. */
int proof_covers(const struct proof *p, struct str session, struct err *e);

#endif
