/*
 * struct import_reading: a snapshot that came, until a session can be made of it: the body is read,
 * its records are applied to a store that is thrown away, its pictures are held against them and
 * stored.
 */
#ifndef RG_CONTROL_IMPORT_READING_H
#define RG_CONTROL_IMPORT_READING_H

#include "common/base/arena.h"
#include "common/proc/ids.h"
#include "worker/control/import_pictures.h"
#include "worker/request/request_limits.h"
#include "worker/session/snapshot.h"

struct service_request;

struct import_reading {
    struct exchange *x; /* whose body it is */
    struct arena arena;
    struct request_limits limits;
    struct snapshot_target to; /* its id and time are the session's that is to be */
    struct snapshot_records records;
    struct import_pictures pictures;
    struct str from; /* which session it is of, or absent; in the body */
    char id[ID_TEXT_MAX];
};

/* On the loop; zeroed before. Takes all settings that the reading looks at. */
void import_reading_begin(struct import_reading *r, const struct service_request *request);

/* Reads it; ->records are what session_apply takes. Touches nothing but `r`, the model, the state
 * folder and the body, so a helper may do it. -1 and e: what is wrong with it; pictures may be
 * stored all the same (r->pictures.stored). */
int import_reading_run(struct import_reading *r, struct err *e);

/* Frees all but `r`. The pictures stay. */
void import_reading_end(struct import_reading *r);

#endif
