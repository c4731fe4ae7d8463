/*
 * struct replicas: the engines that serve one model: the one to which each session's calls go, and
 * which of them are up. A session keeps its replica (weighted rendezvous hashing) so that its
 * prefix cache hits. When a replica goes down only its sessions move. When it is loaded beyond its
 * bound, calls go to the next one in the session's order. The bound is 1.25 x its share of the
 * running calls, + 8. It balances two costs: a call that moves has its prefix computed once more, a
 * call that stays shares the engine with the others. A quarter above the mean is usual for hashing
 * with bounded loads. The 8 are for few calls: with a share of 2 the factor alone would make the
 * third call move, although 8 more of them make one batch.
 *
 * An observation is a finished probe, a whole answer, or a failed connection. Health has
 * hysteresis, because taking a replica down is expensive and waiting is not: all its sessions move
 * to others, which compute their prefixes again. So it takes 3 bad observations in a row: one may
 * be a lost packet, a second a pause of the engine. 2 good ones bring it up again: one may come
 * from a server that answers while it starts and then fails. They are counts, not times:
 * --engine-health-interval sets how long either takes. Probes run in addition to calls. A busy
 * engine that is slow to answer probes while tokens still come does not count as down.
 *
 * The set may change while it runs. A replica that is removed gets no further call and is closed
 * when its running calls have ended. A new one may be opened and probed in addition to the others
 * first (staged). A replica keeps its number for life: all workers count its requests under it
 * (API: `place`).
 */
#ifndef RG_ENGINE_REPLICAS_H
#define RG_ENGINE_REPLICAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/os/loop.h"
#include "worker/engine/pool/adapter.h"

struct engine_set;
struct loop;
struct metrics_page;
struct replicas;
struct vision_probe;
struct vision_sample;

/* IN: calls may go there. STAGED: on trial in addition to the set. OUT: finishes its running
 * calls. */
enum replica_stage { REPLICA_IN, REPLICA_STAGED, REPLICA_OUT };

/* ASKED: no figure has come yet. UNTOLD: it does not report, so it counts as having space. */
enum kv_state { KV_ASKED, KV_UNTOLD, KV_TOLD };

struct kv_room {
    enum kv_state state;
    struct engine_kv told;
    uint64_t others; /* tokens in use that belong to no lease */
    uint64_t leased; /* tokens of this worker's leases */
    bool asking;
};

struct replica {
    const char *text; /* the engine argument */
    unsigned number;  /* number of its counters in metrics and on the board */
    enum replica_stage stage;
    bool rests;         /* removed from the set, and seen once without calls */
    struct arena arena; /* memory of text and target */
    struct engine_target target;
    const struct engine_adapter *adapter;
    void *impl;
    enum engine_half half; /* prefill, decode or both, as the engine last reported */
    uint32_t inflight;
    uint32_t queued; /* waiting calls of sessions that keep it */
    bool up;         /* true from the start: calls need not wait for the first probe */
    bool proven;     /* the replica has answered at least once */
    bool probing;
    uint8_t bad, good;      /* numbers of observations in a row */
    uint64_t full_until_ms; /* when it may be used again after its 429; 0: it is not full */
    uint64_t hash;          /* hash of its name */
    uint64_t alive_ms;      /* when the last bytes of an answer came */
    uint64_t requests, errors, retries;
    uint64_t answer_us; /* mean time of about eight last answers; 0: none has come */
    struct buf version; /* version of the weights in the last answer that had one; empty: no answer
                           had one */
    bool contradicts;   /* the replica's last answer had a version different from the trainer's */
    struct vision_probe *vision; /* in the arena */
    struct kv_room kv;
    struct replicas *all;
};

struct replica_list {
    struct replica **at;
    size_t n, cap;
};

struct replicas {
    struct loop *loop;
    struct replica **at;
    size_t n;
    struct replica_list out, staged;
    size_t on_trial; /* number of staged replicas whose probe is pending */
    const struct engine_options *opt;
    struct arena arena; /* memory of the sample */
    bool lets_drift;    /* pictures may be sent even to replicas with VISION_DRIFTS */
    /* prompt that shows how engines treat pictures; in the arena, set by replicas_begin */
    struct vision_sample *sample;
    enum engine_half missing; /* the half of a split of which no replica is up, or UNTOLD */
    bool held;                /* model calls are paused, so nothing else is asked either */
    struct loop_timer timer, reap, trial;
    struct engine_pool *pool;
    struct metrics_page *metrics;
};

/* What the pool does when its replicas change. pool_changed: one has begun or ceased to serve;
 * pool_forget: one is about to be freed, and no call runs there; pool_tried: a trial is over. */
void pool_changed(struct engine_pool *p);
void pool_forget(struct engine_pool *p, struct replica *r);
void pool_tried(struct engine_pool *one);

/* Starts without replicas: replicas_set opens them and starts probing. The options are borrowed. */
void replicas_begin(struct replicas *r, const struct engine_options *o);

/* Makes these engines the set, in their order. Those with the same argument continue, others are
 * added (staged ones as they are) or removed. Returns -1 if one cannot be opened; then nothing has
 * changed. */
int replicas_set(struct replicas *r, const struct engine_set *set, struct err *e);

/* Opens the engines of the set that are new, as staged replicas. Returns -1 if one cannot be
 * opened; then none is staged. */
int replicas_stage(struct replicas *r, const struct engine_set *set, struct err *e);

/* Probes all staged replicas. pool_tried is called once, later. From then on replica_serves()
 * reports for each whether it answers. */
void replicas_try(struct replicas *r);

/* Closes the staged replicas; pool_tried is not called any longer. */
void replicas_unstage(struct replicas *r);

/* Applies changes of the options that were given to replicas_begin. */
void replicas_reload(struct replicas *r);

/* Closes all replicas. No call may be running. */
void replicas_close(struct replicas *r);

/* Reports whether any replica is up, so that a call could go somewhere. A replica that is down gets
 * no calls until its probes succeed. */
bool replicas_any_up(const struct replicas *r);

/* Reports whether any replica serves (replica_serves). */
bool replicas_any_serves(const struct replicas *r);

/* Wishes for the replica of a session's request. */
struct replica_wish {
    struct str session_id;
    const struct replica *kept;  /* first choice while it is up, or NULL */
    const struct replica *avoid; /* used only if there is no other; or NULL */
    /* the request, if not every kind accepts it; NULL: every kind does */
    const struct engine_request *request;
    /* replicas that have just answered 429 are possible, too */
    bool takes_full;
};

/* Returns the half that it reported last. A replica that is up again counts as what it was until it
 * reports again. */
enum engine_half replica_half(const struct replica *r);

/* Records the present reports of halves. Logs when no half of one kind is up, and when one is up
 * again. */
void replicas_note_halves(struct replicas *r);

/* Reports whether it is one half of a split, and no other half is up. By itself it answers
 * nothing. */
bool replica_unpaired(const struct replica *r);

/* Reports whether the set has both halves of a split. A single kind may be a router, which reports
 * the kind of a server. */
bool replicas_split(const struct replicas *r);

/* Returns the prefill half for a call: among those that are up, have a free slot and suit the
 * request, the one with the fewest calls for its weight; among equal ones the session's. NULL:
 * there is none. */
struct replica *replicas_prefill(const struct replicas *all, const struct replica_wish *w);

/* Chooses the replica of the session's next call. Returns NULL if no replica that is up and accepts
 * the call has a free slot. */
struct replica *replicas_pick(struct replicas *r, const struct replica_wish *w);

/* Why a session's call goes to a different replica than the one before. The one before was removed,
 * is down, has just failed this call, or is loaded beyond its share. HOME: it was not the session's
 * own, and the own one is new, up again or free again. */
enum replica_move { MOVE_REMOVED, MOVE_DOWN, MOVE_FAILED, MOVE_LOAD, MOVE_HOME };

/* Returns why the session moves. before: hash of the replica before. now: result of replicas_pick
 * for the wish. */
enum replica_move replicas_move(const struct replicas *r, const struct replica_wish *w,
                                uint64_t before, const struct replica *now);

/* Returns "removed", "down", "failed", "load" or "home". */
const char *replica_move_name(enum replica_move m);

/* Reports whether any replica accepts the request, as far as they have reported (later: or may
 * accept it when they have). The request was prepared for earlier engines, and the present ones may
 * be of other kinds. */
bool replicas_suit(const struct replicas *r, const struct engine_request *q, bool later);

/* Reports whether this replica accepts it, as far as it has reported. */
bool replica_suits(const struct replica *r, const struct engine_request *q);

/* Returns whether it samples with adapters. */
enum engine_lora replica_lora(const struct replica *r);

/* Returns the replica that the session keeps: where the request goes if there is a free slot. Only
 * replicas that are up count, while any is. NULL: no replica accepts the request. */
struct replica *replicas_home(const struct replicas *r, const struct replica_wish *w);

/* Count a waiting call of a session that keeps this replica, for load and metrics: replica_queue
 * when it begins to wait, the other function when it ends. */
void replica_queue(struct replica *r);
void replica_unqueue(struct replica *r);

/* Returns the basis of its logprobs, as far as it is known. */
enum logprob_basis replica_basis(const struct replica *r);

/* Reports whether it is up and has answered. */
bool replica_serves(const struct replica *r);

/* Begin and end a request at a replica, for load and metrics. replica_begin returns false if other
 * workers have taken its last slot; then nothing has begun. */
bool replica_begin(struct replica *r);
void replica_end(struct replica *r);

/* replica_has_slot reports whether a further request may run there, as far as is known now.
 * replica_score returns the preference of a session for the replica: the highest score in a set is
 * the session's own. */
bool replica_has_slot(const struct replica *r);
double replica_score(const struct replica *r, struct str session_id);

/* Undoes replica_begin, because no request was sent. */
void replica_unbegin(struct replica *r);

/* Counts a request that this replica did not answer and that is sent again. */
void replica_retried(struct replica *r);

/* Counts a request that failed for good, so that its client gets the error. */
void replica_failed(struct replica *r);

/* Counts a running request that we have aborted, because its client left or its session ended. */
void replica_aborted(struct replica *r);

/* Records that bytes of an answer have come: probes that time out meanwhile do not count against
 * the replica. */
void replica_alive(struct replica *r);

/* Records a whole answer, which is a good observation and ends a row of bad ones, with its time and
 * the weights that sampled its end. */
void replica_answered(struct replica *r, const struct engine_result *answer);

/* Records its 429, with the wait that it asks for (0: none given, which counts as one second).
 * Until then calls go to other replicas that have a free slot. */
void replica_full(struct replica *r, uint32_t wait_s);

/* Reports whether the request could go to a replica that is up, has a free slot and is not full. */
bool replicas_any_free(const struct replicas *r, const struct engine_request *q);

/* Records a failed connection, which is a bad observation. */
void replica_unreachable(struct replica *r);

#endif
