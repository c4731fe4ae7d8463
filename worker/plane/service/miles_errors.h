/*
 * Errors as miles' session server writes them (--error-body=miles): {"error": TEXT}.
 */
#ifndef RG_SERVICE_MILES_ERRORS_H
#define RG_SERVICE_MILES_ERRORS_H

#include "common/base/str.h"

struct buf;
struct err;

/* Appends the body. A session that is missing or has ended is "session not found", with the id that
 * the path has. */
void miles_write_error(const struct err *e, struct str path, struct buf *out);

#endif
