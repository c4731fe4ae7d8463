/*
 * Budgets of a session (max_turns, max_total_tokens; the one of its records is the ledger's), and
 * why a session stopped: derived from what its records say, so that a restart tells the same.
 */
#ifndef RG_SESSION_STOP_H
#define RG_SESSION_STOP_H

#include "common/base/str.h"
#include "worker/session/store/session.h"

struct json_out;

/* In the flags of RECORD_END: who ended it, above `finished`. */
enum { STOP_SHIFT = 2 };

/* "model", "budget", "agent", "trainer", "infrastructure"; others: SESSION_STOP_NONE. */
enum session_stop stop_named(struct str name);

/* Why the session stopped: who, and a word for it. false: it goes on. The session is filled. */
bool session_stopped(const struct session *s, enum session_stop *ret_by, const char **ret_reason);

/* The word that a session will have for why it stopped once it is ended that way ("deleted",
 * "unknown": it is not in memory, or one of session_stopped). */
const char *session_stop_reason(const struct session *s, enum session_end how);

/* Writes the member "stop_reason". */
void session_put_stop(const struct session *s, struct json_out *o);

/* -1, ERR_BUDGET with the option's name as param: the session may make no further call. */
int session_check_turns(const struct session *s, struct err *e);

/* The same of a call that adds so many context tokens; *left becomes what its answer may have, if
 * that is less. */
int session_check_tokens(const struct session *s, uint64_t context, uint64_t *left, struct err *e);

#endif
