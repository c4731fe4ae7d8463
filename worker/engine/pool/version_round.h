/*
 * struct version_round: sets the version of the weights on every engine of the set, by its own
 * route, so that its answers contain it from then on. One round at a time. Engines that have no
 * such route, refuse, or do not answer in time are named in the result. Their answers get the
 * trainer's version for the gateway (engine_pool_set_version).
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

/* Asks all engines. `told` is called once, later, after all answers or timeout_ms. Returns -1 with
 * ERR_STATE_CONFLICT if a round is running. */
int version_round_begin(struct engine_pool *p, struct str version, uint64_t timeout_ms,
                        void (*told)(void *ctx, struct version_round *r), void *ctx, struct err *e);

/* Writes a list of {"name", "told", "why"?}. For `told`, which may read the round while it is
 * called. */
void version_round_write(const struct version_round *r, struct json_out *o);

/* Ends the pool's round at once, if there is one; `told` is called from inside. */
void version_round_stop(struct engine_pool *p);

/* Forgets an engine that is about to be freed. */
void version_round_forget(struct engine_pool *p, const struct replica *r);

#endif
