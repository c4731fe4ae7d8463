/*
 * The setting --evaluation-sampling, held against what sampling parameters there are.
 */
#ifndef RG_WORKER_EVALUATION_H
#define RG_WORKER_EVALUATION_H

#include "common/base/err.h"

/* text: a JSON object of sampling parameters, or NULL. -1: ERR_INVALID or ERR_CONFIG says what is
 * wrong with it. */
int evaluation_check(const char *text, struct err *e);

#endif
