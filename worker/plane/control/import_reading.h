/*
 * struct import_reading: a snapshot from which a session will be made. Parses the body, applies its
 * records to a temporary store, and checks and stores its pictures.
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

/* Runs on the loop. Copies all settings that the reading needs. The request's exchange must outlive
 * the result. now_ms: the time for the newest record. */
struct import_reading *import_reading_new(const struct service_request *request, uint64_t now_ms);

/* Frees the reading, when no helper uses it any more. The pictures stay stored. */
void import_reading_free(struct import_reading *r);

/* Reads the snapshot. Uses only `r`, the model, the state folder and the body, so it may run in a
 * helper. Returns -1 with the error in e; pictures may be stored even then. */
int import_reading_run(struct import_reading *r, struct err *e);

/* Returns the id of the new session. */
struct str import_reading_id(const struct import_reading *r);

/* Returns the time of its newest record. */
uint64_t import_reading_now_ms(const struct import_reading *r);

/* Returns the id of the session of which the snapshot was taken. Absent if unknown. */
struct str import_reading_from(const struct import_reading *r);

/* After a successful import_reading_run: returns the number of records for session_apply, and the
 * record at index `i`. */
size_t import_reading_records(const struct import_reading *r);
struct str import_reading_record(const struct import_reading *r, size_t i);

/* Reports whether some picture of the session is in the store. After an error the caller drops
 * it. */
bool import_reading_stored(const struct import_reading *r);

#endif
