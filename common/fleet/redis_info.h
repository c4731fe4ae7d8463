/*
 * The answer of INFO: lines "name:value" of a Redis or Valkey server about itself. Pure.
 */
#ifndef RG_FLEET_REDIS_INFO_H
#define RG_FLEET_REDIS_INFO_H

#include <stdint.h>

#include "common/base/str.h"

enum { REDIS_OLDEST_MAJOR = 7 };

/* Returns the value of a line, or absent. */
struct str redis_info_find(struct str info, const char *name);

/* 0: there is no such line, or its value is no number. */
uint64_t redis_info_number(struct str info, const char *name);

/* Major version; 0: unknown. */
uint64_t redis_info_major(struct str info);

/* Returns why the server cannot be the store of a fleet, or NULL. */
const char *redis_info_fault(struct str info);

#endif
