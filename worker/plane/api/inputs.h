/*
 * What a control-plane request may hold, held against one table (inputs.def): unknown names, values
 * of another type, values out of range, and names that stand twice are ERR_INVALID with the name,
 * the value and what is allowed. Handlers read what has passed. Pure.
 */
#ifndef RG_API_INPUTS_H
#define RG_API_INPUTS_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/codec/input_value.h"

struct api_route;
struct arena;
struct json;
struct str;

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

/* Holds the query (behind '?') and the body (may be empty) of a request to `route` against the
 * table. 0, or -1 and ERR_INVALID with e->param = the field at fault. *ret_body becomes the body as
 * an object, or NULL when it is empty or null; all of it is in the arena. With ret_body NULL it is
 * not kept: the arena holds what the checks needed, and is the caller's to free either way. */
int inputs_check(const struct api_route *route, struct str query, struct str body, struct arena *a,
                 const struct json **ret_body, struct err *e);

#endif
