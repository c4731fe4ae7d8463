/*
 * Decides which of an engine's own paths may be called through the gateway, and with which key.
 * Pure.
 *
 *     agents   what the kind's adapter lists (`read`) and what --passthrough adds
 *     admins   every path that is plainly spelt
 *     nobody   what samples: tokens would come that no session has recorded
 *
 * Agents' paths are compared byte by byte with what is allowed, so no second spelling of a path
 * gets past. The query goes along and is not looked at: engines' paths do not depend on it.
 */
#ifndef RG_ENGINE_DOORS_H
#define RG_ENGINE_DOORS_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct door_request {
    struct str method, path; /* path: without its query */
    bool admin;
    bool keyless;        /* no keys are configured: handled like an agent, with a different error */
    const char *setting; /* value of --passthrough */
    /* paths of this kind that agents may read: `METHOD /path` each, separated by commas; NULL: the
     * engine has no paths */
    const char *reads;
};

/* Returns 0, or -1 with the reason: ERR_NOT_FOUND, ERR_WRONG_SCOPE or ERR_INVALID (an unusual
 * spelling). */
int door_check(const struct door_request *q, struct err *e);

/* Checks that --passthrough is `off`, or a list of `read`, `/path` and `METHOD /path`, separated by
 * commas, none of which samples. Returns -1 with ERR_CONFIG. */
int door_setting_check(const char *setting, struct err *e);

#endif
