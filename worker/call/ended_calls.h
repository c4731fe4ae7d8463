/*
 * Calls of sessions that have ended while they ran. A session may have hundreds, each with many
 * engine requests and clients, so they fail one after the other, in steps of about a millisecond
 * with other sessions' turns between.
 *
 * From the end on, before its own failure, such a call is as good as failed: no step of it is run,
 * nothing that engines still tell is passed on, none of its answers that waits is sent to an
 * engine, and no request finds it (it is in no call_row). It still counts as running. Who makes a
 * session of the same id meanwhile has nothing to do with it.
 */
#ifndef RG_CALL_ENDED_CALLS_H
#define RG_CALL_ENDED_CALLS_H

#include <stddef.h>

#include "common/base/str.h"

struct call_env;

/* Engine requests, clients and calls, all counted, that are ended in a step at most. */
enum { ENDED_CALLS_STEP = 16 };

/* The calls of a session which has ended, but for those whose commit is written, fail: some at
 * once, the others in turns of the loop. When all have, the engines hear of the end, unless there
 * is a session of that id again. */
void ended_calls_take(struct call_env *env, struct str session_id);

/* All that is left, at once: the worker ends. */
void ended_calls_finish(struct call_env *env);

#endif
