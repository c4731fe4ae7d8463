/*
 * Writes errors in the form of miles' session server (--error-body=miles): {"error": TEXT}.
 */
#ifndef RG_SERVICE_MILES_ERRORS_H
#define RG_SERVICE_MILES_ERRORS_H

#include "common/base/str.h"

struct buf;
struct err;

/* Appends the error body. For a session that is missing or has ended the text is "session not
 * found", with the id in the path. */
void miles_write_error(const struct err *e, struct str path, struct buf *out);

#endif
