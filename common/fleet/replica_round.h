/*
 * struct replica_round: the appends of one loop iteration, and the drops between them. One WAIT
 * follows. The answers are kept in their order until a replica of the server has the records.
 */
#ifndef RG_FLEET_REPLICA_ROUND_H
#define RG_FLEET_REPLICA_ROUND_H

#include "common/fleet/fleet_store.h"
#include "common/fleet/redis_link.h"

struct replica_round;

/* Sends WAIT for one replica. fn gets the number of replicas that have all earlier writes. */
void replica_wait(struct redis_link *link, uint64_t limit_ms, redis_reply_fn fn, void *ctx);

/* `answer` ends each call. */
struct replica_round *replica_round_new(void (*answer)(void *call, struct store_answer *a));

/* Keeps the answer to a call, which is copied. */
void replica_round_add(struct replica_round *r, void *call, const struct store_answer *a);

/* Sends WAIT with this limit. Afterwards all calls end: with STORE_LOST if no replica has confirmed
 * the records. Then r is freed. */
void replica_round_send(struct replica_round *r, struct redis_link *link, uint64_t limit_ms);

#endif
