/*
 * Merges what the agent asked for with the session's trusted sampling defaults: a name the agent
 * may not override (lock_sampling) or did not send takes the default.
 */
#ifndef RG_TURN_MERGE_H
#define RG_TURN_MERGE_H

#include "common/base/arena.h"
#include "worker/parsers/kinds.h"
#include "worker/turn/request.h"

/* defaults: object or NULL; locked: array of names or NULL. Fields of req->sampling_given are
 * applied last unless locked. -1: a default cannot be used (ERR_INVALID). */
int merge_sampling(struct arena *a, const struct chat_request *req, const struct json *defaults,
                   const struct json *locked, struct sampling *ret, struct err *e);

/* tool_choice required or a function becomes a grammar, where the model's call format allows it
 * and the client gave no grammar itself. Engines without grammars ignore it. */
void merge_tool_choice(struct arena *a, const struct chat_request *req, enum tool_kind kind,
                       struct sampling *s);

#endif
