/*
 * struct version_round: the version of the weights is told to every engine of the set, by its own
 * route for that, so that its answers tell it from then on. One at a time. An engine without such a
 * route, one that refuses, and one that does not answer in time are named; what they sample is
 * stamped by the trainer's word for the gateway (engine_pool_set_version).
 */
#ifndef RG_ENGINE_VERSION_ROUND_H
#define RG_ENGINE_VERSION_ROUND_H

#include <stdint.h>

#include "common/base/str.h"

struct engine_pool;
struct err;
struct json_out;
struct replica;
struct version_round;

/* Asks all engines. `told` is called once, later, when each has answered or timeout_ms are over. -1
 * ERR_STATE_CONFLICT: another round is under way. */
int version_round_begin(struct engine_pool *p, struct str version, uint64_t timeout_ms,
                        void (*told)(void *ctx, struct version_round *r), void *ctx, struct err *e);

/* For `told`, which may look at the round while it is called: a list of {"name", "told", "why"?}.
 */
void version_round_write(const struct version_round *r, struct json_out *o);

/* Ends the pool's round at once, if there is one; `told` is called from inside. */
void version_round_stop(struct engine_pool *p);

/* The engine is about to be freed. */
void version_round_forget(struct engine_pool *p, const struct replica *r);

#endif
