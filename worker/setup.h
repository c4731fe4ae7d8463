/*
 * From the settings of one run to the options of the worker's parts. Values only.
 */
#ifndef RG_WORKER_SETUP_H
#define RG_WORKER_SETUP_H

#include "common/journal/journal.h"
#include "common/proc/heritage.h"
#include "worker/call/model_call.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/session/session.h"

struct model_options setup_model(const struct config *c);
struct session_defaults setup_sessions(const struct config *c);

/* `engines` of the result borrows the config; without --engine it is the built-in. */
struct engine_options setup_engines(const struct config *c, const struct model *m);

/* The folder's path is written into `dir`. -1 when it is too long. */
int setup_journal(const struct heritage *h, uint32_t index, char *dir, size_t size,
                  struct journal_options *ret);

/* The settings among env's fields; called again after a reload. */
void setup_calls(struct call_env *env, const struct config *c, const struct model *m);

#endif
