/*
 * An object in a record as its members: n, and n times a key and the JSON text of its value.
 * Records of metadata and rewards with long values were written so (RECORD_VERSION_MEMBERS). They
 * are read, and no longer written.
 */
#ifndef RG_SESSION_MEMBER_RECORD_H
#define RG_SESSION_MEMBER_RECORD_H

#include "common/base/str.h"

struct arena;
struct err;
struct json;

/* Reads such a text as an object in the arena. 0, or -1 and ERR_IO. */
int member_record_read(struct str text, struct arena *a, const struct json **ret, struct err *e);

#endif
