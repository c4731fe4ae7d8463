/*
 * struct body_read: the parsed body of a control request. It is parsed once, before the handler is
 * called, in a helper if it is long.
 */
#ifndef RG_SERVICE_BODY_READ_H
#define RG_SERVICE_BODY_READ_H

#include "common/base/arena.h"

struct json;

struct body_read {
    struct arena arena;      /* memory of all values; none lies in the body */
    const struct json *json; /* the body as an object; NULL: no body */
};

#endif
