/*
 * The only way in which the control plane ends a session.
 */
#ifndef RG_CONTROL_ENDING_H
#define RG_CONTROL_ENDING_H

#include "worker/session/store/session.h"

struct err;
struct export_options;
struct json;
struct ledger_done;
struct service;

/* Ends a session: writes the record, ends its running calls, answers its long polls. `detail` is
 * the request's body or NULL. */
int control_end(struct service *a, struct session *s, enum session_end how,
                const struct json *detail, struct ledger_done done, struct err *e);

/* Ends a session by FINALIZE or EXPIRE: its export, made with these options (NULL: the defaults),
 * is promised to the sinks and sent. */
int control_close(struct service *a, struct session *s, enum session_end how,
                  const struct export_options *o, struct ledger_done done, struct err *e);

/* Counts a session that was finalized, with or without a reward. */
void ending_count_reward(struct service *a, bool rewarded);

#endif
