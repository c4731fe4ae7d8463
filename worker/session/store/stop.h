/*
 * Budgets of a session (max_turns, max_total_tokens; the ledger checks the one of its records), and
 * the cause of its stop, which is derived from its records, so that it is the same after a restart.
 */
#ifndef RG_SESSION_STOP_H
#define RG_SESSION_STOP_H

#include "common/base/str.h"
#include "worker/session/store/session.h"

struct json_out;

/* Bit in the flags of RECORD_END, above `finished`, from which on they say who ended the
 * session. */
enum { STOP_SHIFT = 2 };

/* Returns the cause of that name: "model", "budget", "agent", "trainer", "infrastructure".
 * SESSION_STOP_NONE for others. */
enum session_stop stop_named(struct str name);

/* Reports whether the session stopped, by whom, and the reason as a word. The session must be
 * filled. */
bool session_stopped(const struct session *s, enum session_stop *ret_by, const char **ret_reason);

/* Returns the reason that a session will have after it is ended in that way: "deleted", "unknown"
 * (it is not in memory), or a word of session_stopped. */
const char *session_stop_reason(const struct session *s, enum session_end how);

/* Writes the member "stop_reason". */
void session_put_stop(const struct session *s, struct json_out *o);

/* Checks whether the session may make a further call. Returns -1 with ERR_BUDGET and the option's
 * name as param if not. */
int session_check_turns(const struct session *s, struct err *e);

/* Like session_check_turns, for a call that adds so many context tokens. *left becomes the number
 * of tokens its answer may have, if that is less. */
int session_check_tokens(const struct session *s, uint64_t context, uint64_t *left, struct err *e);

#endif
