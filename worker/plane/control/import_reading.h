/*
 * struct import_reading: a snapshot that came, until a session can be made of it: the body is read,
 * its records are applied to a store that is thrown away, its pictures are held against them and
 * stored.
 */
#ifndef RG_CONTROL_IMPORT_READING_H
#define RG_CONTROL_IMPORT_READING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct err;
struct import_reading;
struct service_request;

/* On the loop. Takes all settings that the reading looks at; the request's exchange outlives it.
 * now_ms: the time that the newest record gets. */
struct import_reading *import_reading_new(const struct service_request *request, uint64_t now_ms);

/* Frees it, if no helper reads it any more. The pictures stay. */
void import_reading_free(struct import_reading *r);

/* Reads it. Touches nothing but `r`, the model, the state folder and the body, so a helper may do
 * it. -1 and e: what is wrong with it; pictures may be stored all the same. */
int import_reading_run(struct import_reading *r, struct err *e);

/* The id of the session that is to be, and the time of its newest record. */
struct str import_reading_id(const struct import_reading *r);
uint64_t import_reading_now_ms(const struct import_reading *r);

/* The session that it was taken of, or absent. */
struct str import_reading_from(const struct import_reading *r);

/* After a reading that went well: how many records session_apply takes, and the one at `i`. */
size_t import_reading_records(const struct import_reading *r);
struct str import_reading_record(const struct import_reading *r, size_t i);

/* Whether some picture of the session is in the store: the caller's to drop after an error. */
bool import_reading_stored(const struct import_reading *r);

#endif
