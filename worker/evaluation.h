/*
 * The setting --evaluation-sampling, checked against the known sampling parameters.
 */
#ifndef RG_WORKER_EVALUATION_H
#define RG_WORKER_EVALUATION_H

#include "common/base/err.h"

/* Checks the setting. `text` is a JSON object of sampling parameters, or NULL. Returns -1 with
 * ERR_INVALID or ERR_CONFIG that says what is wrong. */
int evaluation_check(const char *text, struct err *e);

#endif
