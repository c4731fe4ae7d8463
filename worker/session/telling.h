/*
 * GET /sessions/{id} in steps: a session with many calls is told a call at a time.
 */
#ifndef RG_SESSION_TELLING_H
#define RG_SESSION_TELLING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/codec/json.h"

struct err;
struct session;

/* session_write_state in steps, a call each, for sessions that a whole answer would hold the loop
 * for. The caller sets session (which it pins), records and out, and may take what was written
 * between two steps. Calls that are committed meanwhile are not told. */
struct session_telling {
    struct session *session;
    bool records;
    struct json_out out;
    size_t at, n_calls; /* the steps' own */
};

/* The next step: 1 that was all, 0 there is more, -1 what was evicted cannot be read back. */
int session_tell(struct session_telling *t, struct err *e);

#endif
