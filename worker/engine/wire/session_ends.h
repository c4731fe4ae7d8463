/*
 * struct session_ends: the ends of sessions that an engine which keeps things by sessions is still
 * to be told (POST /close_session). A trainer may finalize thousands at once: so few calls are out
 * at a time, the others wait, and of those that wait there is a bound. An engine that is away is
 * told when it is back. What is never told is counted (engine_ends_lost). Part of struct remote.
 */
#ifndef RG_WIRE_SESSION_ENDS_H
#define RG_WIRE_SESSION_ENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct metrics_page;

enum { SESSION_ENDS_AT_ONCE = 8, SESSION_ENDS_WAITING = 8192 };

struct session_ends {
    char **ring; /* ids of those that wait, SESSION_ENDS_WAITING places; NULL: none ever did */
    size_t first, n;
    size_t running;
};

/* The session has ended; the id is copied. Beyond the bound it is lost. page may be NULL. */
void session_ends_add(struct session_ends *s, struct str session_id, struct metrics_page *page);

/* The oldest that waits, once a call for it may begin; it counts as running then and the caller
 * frees its text. NULL: none waits, or enough run. */
char *session_ends_next(struct session_ends *s);

/* A call is over; told: the engine has answered. */
void session_ends_over(struct session_ends *s, bool told, struct metrics_page *page);

/* The engine keeps nothing by sessions: nobody has to be told. */
void session_ends_forget(struct session_ends *s);

/* The engine goes: what was not told is lost. */
void session_ends_done(struct session_ends *s, struct metrics_page *page);

#endif
