/*
 * Budgets of a session (max_turns, max_total_tokens), and why a session stopped: derived from what
 * its records say, so that a restart tells the same.
 */
#ifndef RG_SESSION_STOP_H
#define RG_SESSION_STOP_H

#include "common/base/str.h"
#include "worker/session/session.h"

/* In the flags of RECORD_END: who ended it, above `finished`. */
enum { STOP_SHIFT = 2 };

/* "model", "budget", "agent", "trainer", "infrastructure"; others: SESSION_STOP_NONE. */
enum session_stop stop_named(struct str name);

#endif
