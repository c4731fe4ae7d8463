/*
 * struct api_route: one row of routes.def. Code that looks up a route, checks its inputs or
 * describes it (/openapi.json) reads these two tables.
 */
#ifndef RG_API_ROUTES_H
#define RG_API_ROUTES_H

#include <stddef.h>

#include "common/proc/proof.h"

struct service_request;

enum {
    SCOPE_A = 1u << KEY_ADMIN,
    SCOPE_R = 1u << KEY_RUNNER,
    SCOPE_G = 1u << KEY_AGENT,
    SCOPE_E = 1u << KEY_EXECUTOR, /* for routes of the dispatcher */
    SCOPE_P = 1u << 15,           /* public: no key is needed */
};

/* Inputs of a route: a set of rows of inputs.def. */
enum input_set {
    INPUT_NOTHING = 0,
    INPUT_CREATE = 1u << 0,
    INPUT_LISTING = 1u << 1,
    INPUT_VERSION = 1u << 2,
    INPUT_PAUSE = 1u << 3,
    INPUT_RESUME = 1u << 4,
    INPUT_STATE = 1u << 5,
    INPUT_REWARD = 1u << 6,
    INPUT_COMPLETE = 1u << 7,
    INPUT_WAIT = 1u << 8,
    INPUT_TRAJECTORIES = 1u << 9,
    INPUT_FINALIZE = 1u << 10,
    INPUT_SAMPLES = 1u << 11,
    INPUT_DELIVER = 1u << 12,
    INPUT_GROUP_RESULT = 1u << 13,
    INPUT_TOKENS = 1u << 14,
    INPUT_EVENTS = 1u << 15,
    INPUT_IMPORT = 1u << 23,
    INPUT_ENGINES = 1u << 16,      /* for PUT and POST */
    INPUT_ENGINES_LESS = 1u << 17, /* for DELETE */
    INPUT_ABORT = 1u << 18,
    INPUT_BULK_ABORT = 1u << 19,
    INPUT_BULK_FINALIZE = 1u << 20,
    INPUT_FORK = 1u << 21,
    INPUT_ADAPTER = 1u << 22,
    INPUT_STATS = 1u << 24,
    INPUT_LOGPROBS = 1u << 25,
    INPUT_FLEET = 1u << 26,
    INPUT_EXPORTS = INPUT_TRAJECTORIES | INPUT_FINALIZE | INPUT_SAMPLES | INPUT_DELIVER,
    INPUT_ORDERS = INPUT_VERSION | INPUT_ADAPTER | INPUT_PAUSE | INPUT_RESUME | INPUT_ENGINES,
};

struct api_route {
    const char *method, *path;
    unsigned scopes;
    void (*handler)(struct service_request *r);
    unsigned inputs; /* bits of enum input_set */
    const char *summary;
};

struct routes {
    const struct api_route *at;
    size_t n;
};

extern const struct routes routes_global;  /* for whole paths */
extern const struct routes routes_session; /* for the text after /sessions/{id} */

#endif
