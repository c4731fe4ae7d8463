/*
 * What a control-plane request may hold, held against one table (inputs.def): unknown names, values
 * of another type, values out of range, and names that stand twice are ERR_INVALID with the name,
 * the value and what is allowed. Handlers read what has passed. Pure.
 */
#ifndef RG_API_INPUTS_H
#define RG_API_INPUTS_H

#include "common/base/err.h"
#include "common/codec/json.h"
#include "worker/api/routes.h"

enum input_place { PLACE_BODY = 1, PLACE_QUERY = 2, PLACE_EITHER = 3 };

enum input_kind {
    INPUT_KIND_BOOL,     /* true, false */
    INPUT_KIND_SWITCH,   /* the same, or on, off, 1, 0 */
    INPUT_KIND_INTEGER,  /* min to max */
    INPUT_KIND_NUMBER,   /* min to max */
    INPUT_KIND_TEXT,     /* min to max bytes */
    INPUT_KIND_NAME,     /* one of choices */
    INPUT_KIND_OBJECT,   /* any members */
    INPUT_KIND_LOCKS,    /* a list of names of sampling parameters */
    INPUT_KIND_LABELS,   /* an object of texts and numbers */
    INPUT_KIND_SAMPLING, /* an object of sampling parameters */
    INPUT_KIND_WEIGHTS,  /* a version of weights: an integer from 0, a text or null */
    INPUT_KIND_TEXTS,    /* a list of at most max texts that are not empty */
    INPUT_KIND_FILTER,   /* NAME=VALUE or NAME */
    INPUT_KIND_HIDDEN,   /* between workers; not told to clients */
};

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
 * table. 0, or -1 and ERR_INVALID with e->param = the field at fault. */
int inputs_check(const struct api_route *route, struct str query, struct str body, struct err *e);

/* Sampling parameters of a session: unknown names are refused, known ones hold what they can be. */
int inputs_check_sampling(const struct json *given, struct err *e);

#endif
