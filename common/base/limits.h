/*
 * The limits of input (limits.def): constants by name, and their errors. An error names the field,
 * its value and the limit. The value of a setting is in struct config.
 */
#ifndef RG_BASE_LIMITS_H
#define RG_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#define CONSTANT(name, value, unit, bounds, protects, cost) name = (value),

enum {

#include "common/base/limits.def"
};

#define SETTING(field, unit, bounds, protects, cost) LIMIT_##field,
#define CONSTANT(name, value, unit, bounds, protects, cost) LIMIT_##name,

enum limit {

#include "common/base/limits.def"
    LIMIT_COUNT
};

struct limit_row {
    const char *name; /* name of the setting in struct config, or of the constant */
    bool setting;
    uint64_t most; /* value of a constant */
    const char *unit, *bounds, *protects, *cost;
};

extern const struct limit_row limit_rows[LIMIT_COUNT];

/* Fills e with ERR_INVALID: the request's field has n, and `most` are allowed. Returns -1. */
int limit_refuse(enum limit limit, const char *field, uint64_t n, uint64_t most,
                 struct err *e) RG_COLD;

/* Returns 0 if n is at most the constant `constant`, otherwise fails like limit_refuse. */
int limit_check(enum limit constant, const char *field, uint64_t n, struct err *e);

#endif
