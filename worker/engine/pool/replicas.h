/*
 * struct replicas: the engines that serve one model: which of them a session's calls go to, and
 * which of them are alive. A session keeps its replica (weighted rendezvous hashing) so that its
 * prefix cache hits; when a replica dies only its sessions move, and when it is loaded beyond its
 * bound calls go to the next one in the session's order. The bound is 1.25 x its share of the calls
 * that run, + 8: chosen, not measured. It weighs two costs: a call that moves has its prefix
 * computed once more, a call that stays shares the engine with the others. A quarter above the mean
 * is what hashing with bounded loads usually allows. The 8 are for few calls: with a share of 2 the
 * factor alone would let the third call move, though 8 more of them make one batch.
 *
 * An observation is a probe that ended, a whole answer, or a connection that could not be made.
 * Health has hysteresis, as being taken down is dear and being waited for is not: a replica that is
 * down loses all its sessions to others, which compute their prefixes anew. So 3 bad observations
 * in a row take it down: one may be a lost packet, a second a pause of the engine. 2 good ones
 * bring it up: one may come from a server that answers while it starts and then falls. They are
 * counts, not times: --engine-health-interval sets how long either takes. Probes run beside the
 * data path; a busy engine that is slow to answer them while tokens still come is not a dead one.
 *
 * The set may change while it runs. Who is taken out gets no further call and is closed when those
 * that it runs have ended. Who is new may be opened and probed beside the others first (staged). A
 * replica keeps its number for its life: all workers count its requests under it (API: `place`).
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

/* in: calls may go there; staged: on trial beside the set; out: it ends what it runs. */
enum replica_stage { REPLICA_IN, REPLICA_STAGED, REPLICA_OUT };

/* ASKED: no figure came yet. UNTOLD: it does not report, so there is always space. */
enum kv_state { KV_ASKED, KV_UNTOLD, KV_TOLD };

struct kv_room {
    enum kv_state state;
    struct engine_kv told;
    uint64_t others; /* tokens in use that are no leases' */
    uint64_t leased; /* tokens that this worker's leases hold */
    bool asking;
};

struct replica {
    const char *text; /* the engine argument */
    unsigned number;  /* number of its counts in metrics and on the board */
    enum replica_stage stage;
    bool rests;         /* out: it was seen without calls */
    struct arena arena; /* text and target */
    struct engine_target target;
    const struct engine_adapter *adapter;
    void *impl;
    enum engine_half half; /* half as it reported last */
    uint32_t inflight;
    uint32_t queued; /* calls that wait whose session keeps it */
    bool up;         /* from the start: calls need not wait for the first probe */
    bool proven;     /* it has answered */
    bool probing;
    uint8_t bad, good;      /* observations in a row */
    uint64_t full_until_ms; /* end of the wait after its 429; 0: it is not full */
    uint64_t hash;          /* hash of its name */
    uint64_t alive_ms;      /* when bytes of an answer last came */
    uint64_t requests, errors, retries;
    uint64_t answer_us; /* mean time of the last answers, about eight; 0: none has come */
    struct buf
        version;      /* version of the weights in the last answer that had one; empty: none had */
    bool contradicts; /* its last answer had a version other than the trainer's */
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
    size_t on_trial;          /* staged ones whose probe is out */
    void (*tried)(void *ctx); /* it is over */
    void *tried_ctx;
    const struct engine_options *opt;
    struct arena arena;           /* the sample's */
    bool lets_drift;              /* VISION_DRIFTS does not keep pictures from a replica */
    struct vision_sample *sample; /* prompt that shows how engines treat pictures; in the arena,
                                     from replicas_begin on */
    enum engine_half missing;     /* the half of a split of which none is up, or UNTOLD */
    bool held;                    /* model calls are paused: nothing else is asked either */
    struct loop_timer timer, reap, trial;
    void (*changed)(void *ctx);                   /* one began or ceased to serve */
    void (*forget)(void *ctx, struct replica *r); /* it is about to be freed */
    void *ctx;
    struct metrics_page *metrics;
};

/* There are none yet: replicas_set opens them and starts probing. The options are borrowed. */
void replicas_begin(struct replicas *r, const struct engine_options *o);

/* Makes these engines the set, in their order. Those with the same argument continue, others are
 * added (staged ones as they are) or removed. -1: one cannot be opened, nothing has changed. */
int replicas_set(struct replicas *r, const struct engine_set *set, struct err *e);

/* Opens those of the set that are not in it yet, beside it. -1: nothing is staged. */
int replicas_stage(struct replicas *r, const struct engine_set *set, struct err *e);

/* Probes all that are staged; `tried` is called once, later: replica_serves() then says of each
 * whether it answers. */
void replicas_try(struct replicas *r, void (*tried)(void *ctx), void *ctx);

/* Closes what is staged; `tried` is not called any more. */
void replicas_unstage(struct replicas *r);

/* The options given to replicas_begin have changed. */
void replicas_reload(struct replicas *r);

/* No call may be running. */
void replicas_close(struct replicas *r);

/* Whether a call could go anywhere: a replica that is down is left alone until its probes say that
 * it is back. */
bool replicas_any_up(const struct replicas *r);

/* Reports whether any replica serves (replica_serves). */
bool replicas_any_serves(const struct replicas *r);

/* Where a request of the session may go. */
struct replica_wish {
    struct str session_id;
    const struct replica *kept;           /* the first choice while it is up, or NULL */
    const struct replica *avoid;          /* taken only when there is no other; or NULL */
    const struct engine_request *request; /* some kinds cannot take it; NULL: any can */
    bool takes_full;                      /* replicas that answered 429 just now count, too */
};

/* Returns the half that it reported last. A replica that comes back counts as what it was until it
 * reports again. */
enum engine_half replica_half(const struct replica *r);

/* Records the halves as reported now. Logs when no half of one kind is up, and when there is one
 * again. */
void replicas_note_halves(struct replicas *r);

/* Whether it is a half of a split of which no other half is up: by itself it answers nothing. */
bool replica_unpaired(const struct replica *r);

/* Reports whether the set has both halves of a split: a single kind may be a router, which reports
 * the kind of a server. */
bool replicas_split(const struct replicas *r);

/* The prefill half for a call: of those that are up, have room and suit the request, the one with
 * the least calls for its weight; among equals the session's. NULL: none. */
struct replica *replicas_prefill(const struct replicas *all, const struct replica_wish *w);

/* Chooses the replica of the session's next call; NULL if no replica that is up and accepts it has
 * a free slot. */
struct replica *replicas_pick(struct replicas *r, const struct replica_wish *w);

/* Why a session's call goes to another replica than the one before: it was taken out, is down, has
 * just failed this call, is loaded beyond its share, or is not the session's own (a new one, or one
 * that is back or free again, is). */
enum replica_move { MOVE_REMOVED, MOVE_DOWN, MOVE_FAILED, MOVE_LOAD, MOVE_HOME };

/* before: the hash of that one. now: what replicas_pick gave for the wish. */
enum replica_move replicas_move(const struct replicas *r, const struct replica_wish *w,
                                uint64_t before, const struct replica *now);

/* "removed", "down", "failed", "load", "home". */
const char *replica_move_name(enum replica_move m);

/* Reports whether any replica accepts the request, as far as they have reported (later: or may,
 * when they have). The request was prepared for earlier engines, and the present ones may be of
 * other kinds.
 */
bool replicas_suit(const struct replicas *r, const struct engine_request *q, bool later);

/* Reports whether this replica accepts it, as far as it has reported. */
bool replica_suits(const struct replica *r, const struct engine_request *q);

/* Whether it samples with adapters. */
enum engine_lora replica_lora(const struct replica *r);

/* The replica that the session keeps: where the request goes when there is room. Only of those that
 * are up, while any is. NULL: none can take it. */
struct replica *replicas_home(const struct replicas *r, const struct replica_wish *w);

/* A call whose session keeps it waits, or waits no more, for load and metrics. */
void replica_queue(struct replica *r);
void replica_unqueue(struct replica *r);

/* The basis of its logprobs, as far as is known. */
enum logprob_basis replica_basis(const struct replica *r);

/* Whether it is up and not only hoped to be. */
bool replica_serves(const struct replica *r);

/* One of the two ends of a request at a replica, for load and metrics. False: other workers have
 * taken its last slot, nothing has begun. */
bool replica_begin(struct replica *r);
void replica_end(struct replica *r);

/* Whether another request may run there, as far as can be seen now; what of the session it keeps,
 * as a number: the highest of a set is the session's own. */
bool replica_has_slot(const struct replica *r);
double replica_score(const struct replica *r, struct str session_id);

/* Undoes replica_begin: no request was sent. */
void replica_unbegin(struct replica *r);

/* For the metrics: a request that this replica did not answer is sent again. */
void replica_retried(struct replica *r);

/* Counts a request that failed for good, and whose client gets the error. */
void replica_failed(struct replica *r);

/* We gave a running request up, because its client left or its session ended. */
void replica_aborted(struct replica *r);

/* Bytes of an answer have come: probes that time out meanwhile say nothing against the replica. */
void replica_alive(struct replica *r);

/* A whole answer has come: a good observation, which ends a row of bad ones. Notes its time and the
 * weights that sampled its end. */
void replica_answered(struct replica *r, const struct engine_result *answer);

/* Records its 429, with the wait that it asks for (0: it asks for no time, which counts as one
 * second). Until then calls go to other replicas that have a free slot. */
void replica_full(struct replica *r, uint32_t wait_s);

/* Whether the request could go to a replica that is up, has room and is not full. */
bool replicas_any_free(const struct replicas *r, const struct engine_request *q);

/* There was no connection: a bad observation. */
void replica_unreachable(struct replica *r);

#endif
