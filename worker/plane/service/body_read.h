/*
 * struct body_read: what a control request's body says, read once, before its handler is called: in
 * a helper where it is long.
 */
#ifndef RG_SERVICE_BODY_READ_H
#define RG_SERVICE_BODY_READ_H

#include "common/base/arena.h"

struct json;

struct body_read {
    struct arena arena;      /* holds all of it: nothing lies in the body */
    const struct json *json; /* an object; NULL: there is none */
};

#endif
