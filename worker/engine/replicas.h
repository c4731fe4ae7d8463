/*
 * struct replicas: the engines that serve one model: which of them a session's calls go to, and
 * which of them are alive. A session keeps its replica (weighted rendezvous hashing) so that its
 * prefix cache hits; when a replica dies only its sessions move, and when it is loaded beyond its
 * share (1.25 times, and 8 more) calls go to the next one in the session's order.
 *
 * Health has hysteresis: 3 bad observations in a row take a replica down, 2 good probes bring it
 * up. Probes run beside the data path; a busy engine that is slow to answer them while tokens
 * still come is not a dead one.
 */
#ifndef RG_ENGINE_REPLICAS_H
#define RG_ENGINE_REPLICAS_H

#include "common/base/arena.h"
#include "common/os/loop.h"
#include "worker/engine/adapter.h"

struct metrics_page;
struct replicas;

struct replica {
    struct engine_target target;
    const struct engine_adapter *adapter;
    void *impl;
    uint32_t inflight;
    bool up;     /* from the start: calls need not wait for the first probe */
    bool proven; /* it has answered */
    bool probing;
    uint8_t bad, good; /* observations in a row */
    uint64_t hash;     /* of its name */
    uint64_t alive_ms; /* when bytes of an answer last came */
    uint64_t requests, errors, retries;
    uint64_t answer_us; /* mean time of the last answers, about eight; 0: none has come */
    struct buf version; /* of the weights, as the last answer that had one told; empty: none had */
    struct replicas *all;
};

struct replicas {
    struct loop *loop;
    struct replica *at;
    size_t n;
    const struct engine_options *opt;
    struct loop_timer timer;
    void (*changed)(void *ctx); /* one began or ceased to serve */
    void *ctx;
    struct metrics_page *metrics;
};

/* Opens them all and starts probing. Memory is the arena's. */
int replicas_open(struct replicas *r, struct arena *a, const struct engine_options *o,
                  struct err *e);

/* The options given to replicas_open have changed. */
void replicas_reload(struct replicas *r);

/* No call may be running. */
void replicas_close(struct replicas *r);

/* Whether a call could go anywhere: a replica that is down is left alone until its probes say that
 * it is back. */
bool replicas_any_up(const struct replicas *r);

/* Where the session's next call goes, or NULL when no replica that is up has a free place. `avoid`
 * (or NULL) is taken only when there is no other. */
struct replica *replicas_pick(struct replicas *r, struct str session_id,
                              const struct replica *avoid);

/* Whether it is up and not only hoped to be. */
bool replica_serves(const struct replica *r);

/* One of the two ends of a request at a replica, for load and metrics. False: other workers have
 * taken its last place, nothing has begun. */
bool replica_begin(struct replica *r);
void replica_end(struct replica *r);

/* For the metrics: a request that this replica did not answer is sent again. */
void replica_retried(struct replica *r);

/* A request failed for good: its client hears of it. */
void replica_failed(struct replica *r);

/* We gave a running request up, because its client left or its session ended. */
void replica_aborted(struct replica *r);

/* Bytes of an answer have come: probes that time out meanwhile say nothing against the replica. */
void replica_alive(struct replica *r);

/* A whole answer has come: a good observation, which ends a row of bad ones. Notes its time and the
 * weights that sampled its end. */
void replica_answered(struct replica *r, const struct engine_result *answer);

/* There was no connection: a bad observation. */
void replica_unreachable(struct replica *r);

#endif
