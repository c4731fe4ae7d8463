/*
 * The bodies of struct session and struct session_store, for the files of this folder and (reading
 * only) for those of worker/export that walk a session. Other files use session.h. The body of a
 * plan is in plan.h.
 */
#ifndef RG_SESSION_STORE_H
#define RG_SESSION_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/str.h"
#include "common/base/vec.h"
#include "worker/session/forest/forest.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session.h"

struct call_bulk;
struct checkpoint;
struct json;
struct json_out;
struct model;
struct model_fingerprint;
struct new_messages;
struct payload;
struct plan;
struct policy;
struct commit_texts;
struct record_in;
struct score;

struct session_options {
    const struct policy *policy;
    struct matcher matcher;
    bool rollback_last_assistant, idempotent_retry, ignore_tools, branch_on_rewrite;
    bool compare_tokens; /* timeline_compare_level == "token" */
    uint64_t prompt_length, response_length, ttl_ms;
    const struct json *sampling, *lock_sampling, *labels, *metadata, *score; /* or NULL */
    const struct json *pools;            /* names that its calls may give as model; NULL: all */
    enum session_truncated on_truncated; /* not AUTO */
    bool refuse_completed;
    /* the unknown id of the call for which it was made ("": the call named none); absent: made
     * by POST /sessions */
    struct str reseeded_from;
    bool hold;       /* after finalize it is kept until it is deleted */
    bool dispatched; /* made by the dispatcher; a fork or an import of it is not */
    bool no_sinks;   /* no sink gets it */
    struct session_wants wants;
    struct str adapter; /* adapter of the weights that sample; absent: none */
    struct str pool; /* pool of engines that answers unless a request names one; absent: policy's */
    uint32_t max_nodes;
    bool evaluation;             /* the session's samples are not for training */
    uint32_t max_turns;          /* most calls that are recorded; 0: no limit */
    uint64_t max_total_tokens;   /* most stored tokens, of all branches; 0: no limit */
    struct str group;            /* absent: none (group.h) */
    int32_t rollout, group_size; /* -1, 0: not set */
    /* in a create record only: number of following records that complete the copy
     * (session_copying); 0: not a copy */
    uint32_t copies;
};

/* policy chains: one append-only chain. Its checkpoints are the path of `head`. */
struct chain {
    uint32_t id;
    uint32_t seq; /* sequence number of its last commit or of its closing */
    struct checkpoint *head;
    bool closed; /* by max_trajectory_length */
    /* closed by a call that had rolled it back: this answer was dropped, and the first `kept` of
     * its ids stay after `head` */
    struct checkpoint *dropped;
    uint32_t kept;
    struct plan *reserved;                /* plan of the call that continues it, or NULL */
    struct chain *next_head, **prev_head; /* in node->chains->heads */
    struct chain *next_back, **prev_back; /* in node->chains->backs */
};

enum residence {
    EVICTED, /* only its records have the content */
    LOADING, /* the session's records are applied again */
    RESIDENT,
};

/* What a session adds to the store's sums. */
struct session_share {
    uint64_t nodes, tokens, bytes, evicted_bytes;
};

struct session {
    struct session_store *store;
    uint64_t serial;       /* number of the session in the store, from 1 */
    struct list_item item; /* in store->all */
    struct list_item lru;  /* in store->lru, if RESIDENT and used */
    enum residence residence;
    struct session_share share;
    uint64_t counted_evicted; /* the part of share.evicted_bytes that is in the sums */
    bool counted_as_evicted;
    struct str row;       /* EVICTED: its row, or absent */
    uint64_t label_names; /* a bit for each label, by its name's hash; all bits: unknown */
    struct str id;        /* stored in id_text */
    enum session_phase phase;
    unsigned told_lacks;  /* a bit for each enum session_lack that was logged */
    bool expired, filled; /* filled: its content is in memory, or is being read */
    bool held;            /* finalized, with the option hold */
    uint64_t idle_ms;     /* time of the last event, for the TTL */
    uint64_t read_ms;     /* finalized: time of the end or of the last read */
    uint64_t exported_ms; /* time at which the export was delivered whole; 0: not yet */
    uint64_t kept_ms;     /* LOADING: updated_ms before */
    bool absorbs;         /* LOADING: nothing is being read, so records that are applied are new */
    enum session_sink sink;
    struct str sink_options; /* set while resident */
    uint64_t created_ms, updated_ms, ended_ms;
    struct session_options options;
    struct forest forest;
    struct session_remains *remains; /* made by the first hold (session_hold_messages), or NULL */
    VEC(struct payload *) payloads;
    uint64_t payload_bytes, payload_evicted; /* bytes of payloads in memory; evicted */
    /* memory for evicted payloads that are being read back */
    uint64_t room_bytes;
    uint32_t record; /* number of its next record in the journal; not valid if EVICTED */
    /* records that could not be applied, without fragments; and a copy's last one */
    uint32_t lost_records;
    uint64_t doubt_since_ms, doubt_until_ms; /* wall clock: when answers may be missing; 0: none */
    uint64_t used;                           /* the store's clock at its last use */
    struct model_fingerprint *origin;        /* the model that made it, own; NULL: unknown */
    uint64_t next_call;
    uint32_t next_seq;
    uint32_t inflight, pins;
    bool unlinked;          /* deleted; freed when the last plan and pin are gone */
    struct list_head plans; /* plans of running calls */

    struct reward reward;
    VEC(struct reward *) checkpoint_rewards;
    struct map rewards_by_response;
    enum session_stop stated; /* cause of its end, from the complete or abort request */
    struct str forked_from;   /* the session from which its beginning was copied, or absent */
    uint64_t report_bytes;    /* bytes of all reports of logprobs in its records */
    size_t copied_calls;      /* number of leading forest.calls that a fork or an import copied */
    /* records of a fork or an import that are still missing; 0: complete */
    uint32_t copying;
    uint32_t copy_left;          /* the number in `copying`, while the records are applied again */
    struct str budget;           /* the budget that was the first to refuse a call, or absent */
    bool has_finished, finished; /* members of the complete request */
    struct str complete_reason;

    struct checkpoint *head; /* policy linear: the newest kept checkpoint */
    uint64_t head_version;   /* changes with every commit and rollback */
    VEC(struct chain *) chains;
    VEC(struct score) scores;
    struct map bulks;    /* by call: struct call_bulk that no commit has named yet */
    uint64_t bulk_bytes; /* their bytes and those of running calls, without the map */
    struct commit_texts
        *ready; /* prepared texts of the commit that is applied next, or NULL (session_texts.h) */
    uint32_t rollbacks;
    uint64_t rollback_dropped;

    uint64_t completed_ms; /* 0: it was not completed */
    /* no export since its end was counted in the run's figures; lost with the worker, because no
     * record contains it */
    bool uncounted;

    uint64_t forks[CAUSE_COUNT];
    uint64_t trimmed, refreshed;
    uint32_t merge_repaired, merge_lost; /* the maximum over its exports' merges */
    char id_text[];
};

struct tombstone {
    struct str id;
    uint64_t at_ms;
    bool exportable;      /* finalized or expired, not deleted */
    uint64_t label_names; /* the session's */
    struct tombstone *next;
};

struct session_remains;

struct session_store {
    const struct model *model;
    struct session_defaults defaults;
    char *history, *matcher, *compare_level; /* copies of the texts of `defaults` */
    struct map sessions;                     /* by id, including ended but retained ones */
    struct session *found;                   /* the session that the last look-up found; or NULL */
    struct list_head all;                    /* sessions, oldest first */
    struct map tombstones;
    struct tombstone *oldest, *newest; /* queue by the time of the end */
    struct tombstone *swept;           /* the last tombstone that a sweep has visited; NULL: none */
    VEC(char *) gone;                  /* ids of deleted and aborted sessions (session_take_gone) */
    struct list_head lru;              /* resident sessions by their last use, oldest first */
    struct list_head payload_lru;      /* payloads in memory, in the same order */
    uint64_t clock;                    /* counts uses */
    session_source source;             /* NULL: payloads are not evicted */
    void *source_ctx;
    /* A remains_fn. NULL: what sessions held is freed at once. */
    void (*bury_content)(void *ctx, struct session_remains *r);
    void *bury_ctx;
    bool lazy;           /* sessions that records make are EVICTED from the start: a replay */
    bool evicts;         /* sessions may be evicted, because a journal has their records */
    uint64_t n_serials;  /* number of sessions ever made */
    uint64_t n_suffixes; /* number of prompts that were made from stored ids and a suffix */
    struct session_totals *totals;
};

/* Reports whether the record that is applied now is being read back. */
static inline bool session_reads(const struct session *s)
{
    return s->residence == LOADING && !s->absorbs;
}

/* Reports whether the record that is applied now must not change the content, which is not in
 * memory. */
static inline bool session_absorbs(const struct session *s)
{
    return s->residence == EVICTED || s->absorbs;
}

static inline bool session_has_ended(const struct session *s)
{
    return s->phase == SESSION_FINALIZED || s->phase == SESSION_ABORTED;
}

/* --- store.c --- */

/* Counts an answer by its cause, for the sums. */
void session_count_fork(struct session_store *st, enum session_cause cause);

/* Makes a session with an entry in the store and its lists. */
struct session *session_new(struct session_store *st, struct str id, uint64_t now_ms);

/* Changes the phase and the store's counts by phase. session_finish handles tombstone and
 * waiters. */
void session_set_phase(struct session *s, enum session_phase phase);

/* Sets the number of records of a copy that are still missing. */
void session_set_copying(struct session *s, uint32_t records);

/* Makes the tombstone of a session of which the journal has only the end. */
void session_bury(struct session_store *st, struct str id, uint64_t now_ms);

/* Sets phase and time of a completion. */
void session_complete(struct session *s, uint64_t now_ms);

/* Sets phase and tombstone of an end. The caller must hold a pin. */
void session_finish(struct session *s, enum session_end how, uint64_t now_ms);

/* Evicts a session that is not in use any more, if its records are in a journal. */
void session_rest(struct session *s);

/* Takes the session out of the store. It is freed when its last holder releases it. */
void session_unlink(struct session *s);

/* Frees a session if its last holder has just released it. */
void session_maybe_free(struct session *s);

/* --- plan.c --- */

/* Frees the plan of the call with that number, if it is in progress here, because the call is
 * recorded. */
void session_call_recorded(struct session *s, uint64_t call);

/* Returns the prepared new messages of that call: from its request if it is in progress here, or
 * from its record if that is read back. Returns NULL if there are none. */
struct new_messages *session_new_messages(struct session *s, uint64_t call);

/* Like session_new_messages, for the request's environment: its key, and the arena with the key's
 * values. */
struct arena *session_new_env(struct session *s, uint64_t call, struct env_key *ret);

/* Like session_new_messages, for the message of one of its answers, whose node is not linked
 * yet. */
struct new_messages *session_ready_answer(struct session *s, uint64_t call, uint32_t answer);

/* --- eviction.c --- */

/* Notes a use of the session and begins a new one: payloads that were used before are older. */
void session_use(struct session *s);

/* Takes the session out of all sums and lists except the store's own. */
void session_displace(struct session *s);

/* Clears the options whose values are in the session's content, which is about to be freed. */
void session_forget_options(struct session *s);

/* Notes the names of its labels, for session_may_have_label. */
void session_note_labels(struct session *s, const struct json *labels);

/* Updates the sums after a change. */
void session_account(struct session *s);

/* Applies of a record of an evicted session what stays in memory: phase, times, sums. */
int session_absorb(struct session *s, uint64_t type, struct record_in *r, uint64_t now_ms,
                   struct err *e);

/* Parses and checks POST /sessions options (a JSON object, or NULL) over the store's defaults. JSON
 * values are borrowed. */
int session_options_read(const struct session_store *st, const struct json *v,
                         struct session_options *ret, struct err *e);

/* Writes the resolved options as the object that session_options_read reads back. */
void session_options_write(const struct session_options *o, struct buf *json);

/* Applies the body of one commit record (apply.c). */
int session_apply_commit(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e);

/* Appends the fingerprint of the store's model to a record, as its last part. */
void origin_put(struct buf *record, const struct session_store *st);

/* Reads a fingerprint. Returns -1 if the record is incomplete. */
int origin_read(struct record_in *r, struct model_fingerprint *ret);

/* Keeps a copy of f as the model that made the session. NULL, or without a tokenizer: unknown. */
void session_set_origin(struct session *s, const struct model_fingerprint *f);

/* --- session_sums.c --- */

/* Counts the answers of a call that was committed at this time. */
void session_sums_add(struct session *s, struct checkpoint *const *answers, uint32_t n,
                      uint64_t now_ms);

/* Resets the sums, because earlier answers were copied. */
void session_sums_reset(struct session *s);

/* Writes the members time_s, turns, sampled_tokens and truncated_turns. */
void session_sums_put(const struct session *s, struct json_out *o);

/* Applies the body of RECORD_LOGPROBS. */
int session_apply_report(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_SCORE. */
int session_apply_score(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_FORK. */
int session_apply_fork(struct session *s, struct record_in *r, struct err *e);

/* Hides a checkpoint of s: takes it out of its message's node, so that it is in no branch any
 * more. */
void checkpoint_hide(struct session *s, struct checkpoint *t);

/* Counts t in forest.leaves (by: 1) or removes it (-1), if it is a leaf now. Called before and
 * after each change that may make it one. */
void session_count_leaf(struct session *s, const struct checkpoint *t, int by);

/* Applies the body of RECORD_BUDGET. */
int session_apply_budget(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_DOUBT. Adds the sentence about it to a list of warnings, if any. */
int session_apply_doubt(struct session *s, struct record_in *r, struct err *e);
void session_put_doubt(const struct session *s, struct json_out *o);

/* Applies the body of a record of the sinks. */
int session_apply_sink(struct session *s, struct record_in *r, struct err *e);

/* --- call_bulk.c --- */

/* Returns the long values so far of a call that runs, or is read back or copied; or NULL. */
struct call_bulk *session_bulk(struct session *s, uint64_t call);

/* Returns the type of a copy of a record of the type: rows are in the second copy if this store's
 * are. */
uint64_t session_copied_type(const struct session_store *st, uint64_t type);

/* Applies the body of RECORD_BULK. Returns -1 if it does not follow the fragments before it. */
int session_apply_bulk(struct session *s, struct record_in *r, struct err *e);

/* Frees fragments that no commit has named: of one call, or of all calls that do not run. */
void session_drop_bulk(struct session *s, uint64_t call);
void session_free_bulks(struct session *s);

#endif
