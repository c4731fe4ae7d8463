/*
 * Profiles of settings for replacing a different gateway (--compat). compat.def holds their rows.
 */
#ifndef RG_PROC_COMPAT_H
#define RG_PROC_COMPAT_H

#include "common/proc/config_internal.h"

/* Applies the profile of l->config to settings that still have their default. Call it after all
 * other sources. */
void compat_apply(struct config_load *l);

/* Returns the reason why the profile of c sets `row` to `value` (config_value_text); NULL if it
 * does not. */
const char *compat_why(const struct config *c, const struct config_row *row, struct str value);

#endif
