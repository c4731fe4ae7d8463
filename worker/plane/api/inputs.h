/*
 * Checks a control-plane request against one table (inputs.def). Unknown names, values of a wrong
 * type, values out of range, and repeated names are ERR_INVALID with the name, the value and what
 * is allowed. Handlers read what has passed. Pure.
 */
#ifndef RG_API_INPUTS_H
#define RG_API_INPUTS_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/codec/input_value.h"

struct api_route;
struct json;

enum input_place { PLACE_BODY = 1, PLACE_QUERY = 2, PLACE_EITHER = 3 };

struct input {
    unsigned sets;
    const char *name;
    enum input_place place;
    enum input_kind kind;
    double min, max;
    const char *choices, *summary;
};

struct inputs {
    const struct input *at;
    size_t n;
};

extern const struct inputs inputs_all;

/* Checks the query (after '?') and the body (may be empty) of a request to `route` against the
 * table. Returns 0, or -1 and ERR_INVALID with e->param = the field at fault. *ret_body becomes
 * the body as an object, or NULL if it is empty or null; it is in the arena. If ret_body is NULL
 * the body is not kept: the arena has only what the checks needed. The caller frees it in both
 * cases. */
int inputs_check(const struct api_route *route, struct str query, struct str body, struct arena *a,
                 const struct json **ret_body, struct err *e);

#endif
