/*
 * struct session_ends: pending notices of ended sessions for an engine that keeps state by session
 * (POST /close_session). A trainer may finalize thousands at once. So only few calls run at a time,
 * the others wait, and their number is limited. An engine that is away gets its notices when it is
 * back. Lost notices are counted (engine_ends_lost). Part of struct remote.
 */
#ifndef RG_WIRE_SESSION_ENDS_H
#define RG_WIRE_SESSION_ENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct metrics_page;

enum { SESSION_ENDS_AT_ONCE = 8, SESSION_ENDS_WAITING = 8192 };

struct session_ends {
    char **ring; /* ids that wait, SESSION_ENDS_WAITING slots; NULL: none was ever added */
    size_t first, n;
    size_t running;
};

/* Adds an ended session; the id is copied. Beyond the limit the notice is lost. page may be
 * NULL. */
void session_ends_add(struct session_ends *s, struct str session_id, struct metrics_page *page);

/* Returns the oldest waiting id when a call for it may begin. It counts as running then, and the
 * caller frees the text. NULL: none waits, or enough run. */
char *session_ends_next(struct session_ends *s);

/* Ends a call. told: the engine has answered. */
void session_ends_over(struct session_ends *s, bool told, struct metrics_page *page);

/* Forgets all notices, because the engine keeps no state by session. */
void session_ends_forget(struct session_ends *s);

/* Frees s together with the engine. Notices that were not sent are lost. */
void session_ends_done(struct session_ends *s, struct metrics_page *page);

#endif
