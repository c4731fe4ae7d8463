/*
 * The bodies of struct session and struct session_store, for the files of this folder and (reading
 * only) for those of worker/export that walk a session. What everybody else may know is in
 * session.h; the body of a plan is in plan.h.
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

struct buf;
struct call_bulk;
struct checkpoint;
struct commit_answer;
struct commit_record;
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
    const struct json *pools;            /* names that its calls may ask by model; NULL: all */
    enum session_truncated on_truncated; /* not AUTO */
    bool refuse_completed;
    struct str reseeded_from; /* the unknown id of the call that it was made for ("": the call named
                                 none); absent: made by POST /sessions */
    bool hold;                /* finalized, it is kept until it is deleted */
    bool dispatched;          /* made by the dispatcher; a fork or an import of it is not */
    bool no_sinks;            /* no sink gets it */
    struct session_wants wants;
    struct str adapter; /* adapter of the weights that sample; absent: none */
    struct str pool; /* pool of engines that answers unless a request names one; absent: policy's */
    uint32_t max_nodes;
    bool evaluation;             /* its samples are not for training */
    uint32_t max_turns;          /* calls that are recorded; 0: no limit */
    uint64_t max_total_tokens;   /* stored, of all branches; 0: no limit */
    struct str group;            /* absent: none (group.h) */
    int32_t rollout, group_size; /* -1, 0: not said */
    uint32_t copies; /* in a create record only: number of following records that make the copy
                        which it begins (session_copying); 0: not a copy */
};

/* policy chains: one append-only chain; its checkpoints are the path of `head`. */
struct chain {
    uint32_t id;
    uint32_t seq; /* sequence number of its last commit or of its closing */
    struct checkpoint *head;
    bool closed;                /* max_trajectory_length */
    struct checkpoint *dropped; /* closed by a call that had rolled it back: this answer is gone,
                             and of its ids the first `kept` stay, behind `head` */
    uint32_t kept;
    struct plan *reserved;                /* the plan of the call that continues it, or NULL */
    struct chain *next_head, **prev_head; /* in node->heads */
    struct chain *next_back, **prev_back; /* in node->backs */
};

enum residence {
    EVICTED, /* only its records have it */
    LOADING, /* they are applied once more */
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
    struct list_item lru;  /* in store->lru; has the RESIDENT ones that were used */
    enum residence residence;
    struct session_share share;
    uint64_t counted_evicted; /* the part of share.evicted_bytes that the sums have */
    bool counted_as_evicted;
    struct str row;       /* EVICTED: its row, or absent */
    uint64_t label_names; /* a bit for each label, by its name's hash; all: they are not known */
    struct str id;        /* at id_text */
    enum session_phase phase;
    unsigned told_lacks;  /* a bit for each enum session_lack that is in the log */
    bool expired, filled; /* filled: its content is (being put) in memory */
    bool held;            /* finalized, with the option hold */
    uint64_t idle_ms;     /* nothing has happened since then: for the TTL */
    uint64_t read_ms;     /* finalized: kept since then */
    uint64_t exported_ms; /* delivered whole; 0: not yet */
    uint64_t kept_ms;     /* LOADING: what updated_ms was */
    bool rests;           /* LOADING: nothing is being read, records that come are new */
    enum session_sink sink;
    struct str sink_options; /* while resident */
    uint64_t created_ms, updated_ms, ended_ms;
    struct session_options options;
    struct forest forest;
    VEC(struct payload *) payloads;
    uint64_t payload_bytes, payload_evicted; /* in memory; evicted */
    uint64_t room_bytes;                     /* for evicted ones that are being read back */
    uint32_t record;       /* number of its next one in the journal; not EVICTED */
    uint32_t lost_records; /* that did not apply, without fragments; and a copy's last one */
    uint64_t used;         /* the store's clock at its last use */
    struct model_fingerprint *origin; /* the model that made it, own; NULL: unknown */
    uint64_t next_call;
    uint32_t next_seq;
    uint32_t inflight, pins;
    bool unlinked;          /* deleted; freed when the last plan and pin are gone */
    struct list_head plans; /* live ones */

    struct reward reward;
    VEC(struct reward *) checkpoint_rewards;
    struct map rewards_by_response;
    enum session_stop stated; /* cause of its end, as the complete or abort request said */
    struct str forked_from;   /* the session that its beginning was copied from, or absent */
    size_t copied_calls;      /* the first of forest.calls, which a fork or an import brought */
    uint32_t copying;         /* records that a fork or an import still owes it; 0: it is whole */
    uint32_t copy_left;       /* the same number while its records are applied once more */
    struct str budget;        /* the budget that refused a call first, or absent */
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
    bool uncounted;        /* no export since it ended was counted among the run's figures; lost
                              with the worker, for no record says it of a sink's export */

    uint64_t forks[CAUSE_COUNT];
    uint64_t trimmed, refreshed;
    uint32_t merge_repaired, merge_lost; /* the most that an export's merge did */
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
    char *history, *matcher, *compare_level; /* copies behind defaults */
    struct map sessions;                     /* by id, ended but retained ones included */
    struct session *found;                   /* session that the last look-up found; or NULL */
    struct list_head all;                    /* sessions, oldest first */
    struct map tombstones;
    struct tombstone *oldest, *newest; /* queue by time of death */
    struct tombstone *swept;           /* a sweep has come so far; NULL: to no place */
    VEC(char *) gone;                  /* ids of deleted and aborted sessions (session_take_gone) */
    struct list_head lru;              /* resident sessions by their last use, oldest first */
    struct list_head payload_lru;      /* payloads in memory, in the same order */
    uint64_t clock;                    /* counts uses */
    session_source source;             /* NULL: payloads stay */
    void *source_ctx;
    /* A remains_fn; NULL: what sessions held is freed at once. */
    void (*bury_content)(void *ctx, struct session_remains *r);
    void *bury_ctx;
    bool lazy;           /* sessions that records make are EVICTED from the start: a replay */
    bool evicts;         /* sessions may leave memory: a journal has their records */
    uint64_t n_serials;  /* ever made */
    uint64_t n_suffixes; /* prompts that were to be built on stored ones */
    struct session_totals *totals;
};

/* Whether the record that is applied now is one that is read back. */
static inline bool session_reads(const struct session *s)
{
    return s->residence == LOADING && !s->rests;
}

/* Whether the record that is applied now is not for its content, which is not there. */
static inline bool session_absorbs(const struct session *s)
{
    return s->residence == EVICTED || s->rests;
}

static inline bool session_has_ended(const struct session *s)
{
    return s->phase == SESSION_FINALIZED || s->phase == SESSION_ABORTED;
}

/* --- store.c --- */

/* Counts an answer by its cause, for the sums. */
void session_count_fork(struct session_store *st, enum session_cause cause);

/* A new session with an entry in the store and its lists. */
struct session *session_new(struct session_store *st, struct str id, uint64_t now_ms);

/* Changes the phase and the store's counts by phase. Tombstone and waiters are session_finish's. */
void session_set_phase(struct session *s, enum session_phase phase);

/* So many records of a copy are still to come. */
void session_set_copying(struct session *s, uint32_t records);

/* The tombstone of a session whose end is all that the journal has. */
void session_bury(struct session_store *st, struct str id, uint64_t now_ms);

/* Phase and time of a completion. */
void session_complete(struct session *s, uint64_t now_ms);

/* Phase and tombstone of an end; the caller holds a pin. */
void session_finish(struct session *s, enum session_end how, uint64_t now_ms);

/* Evicts a session that nobody uses any more, if its records are in a journal. */
void session_rest(struct session *s);

/* Out of the store; freed when its last holder lets go. */
void session_unlink(struct session *s);

/* Frees a session whose last holder may just have gone. */
void session_maybe_free(struct session *s);

/* --- plan.c --- */

/* The call of that number, if it is under way here, is over with its record: its plan goes. */
void session_call_recorded(struct session *s, uint64_t call);

/* What that call, if it is under way here, has made ready of its request's new messages, or what
 * was made ready of its record, which is read back; or NULL. */
struct new_messages *session_new_messages(struct session *s, uint64_t call);

/* The same of the request's environment: its key, and the arena with the key's values. */
struct arena *session_new_env(struct session *s, uint64_t call, struct env_key *ret);

/* The same of the message of one of its answers: the node is not hung yet. */
struct new_messages *session_ready_answer(struct session *s, uint64_t call, uint32_t answer);

/* --- eviction.c --- */

/* Notes a use of the session and begins another one: payloads that were used before are older. */
void session_use(struct session *s);

/* Takes it out of all sums and lists but the store's own. */
void session_displace(struct session *s);

/* Clears the options whose values lie in the session's content, which is about to be freed. */
void session_forget_options(struct session *s);

/* Notes the names of its labels, for session_may_have_label. */
void session_note_labels(struct session *s, const struct json *labels);

/* Brings the sums up to date after a change. */
void session_account(struct session *s);

/* Takes from a record of an evicted session what stays in memory: phase, times, sums. */
int session_absorb(struct session *s, uint64_t type, struct record_in *r, uint64_t now_ms,
                   struct err *e);

/* Parses and checks POST /sessions options (a JSON object, or NULL) over the store's defaults.
 * JSON values stay borrowed. */
int session_options_read(const struct session_store *st, const struct json *v,
                         struct session_options *ret, struct err *e);

/* Writes them, resolved, as the object that session_options_read reads back. */
void session_options_write(const struct session_options *o, struct buf *json);

/* Applies the body of one commit record (apply.c). */
int session_apply_commit(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e);

/* Appends the fingerprint of the store's model to a record: it is the last of it. */
void origin_put(struct buf *record, const struct session_store *st);

/* Reads one. Returns -1 if the record is torn. */
int origin_read(struct record_in *r, struct model_fingerprint *ret);

/* Keeps a copy of f as the model that made the session. NULL, or without a tokenizer: not known. */
void session_set_origin(struct session *s, const struct model_fingerprint *f);

/* Applies the body of RECORD_ORIGIN. */
int session_apply_origin(struct session *s, struct record_in *r, struct err *e);

/* --- session_sums.c --- */

/* Counts the answers of a call that was committed at this time. */
void session_sums_add(struct session *s, struct checkpoint *const *answers, uint32_t n,
                      uint64_t now_ms);

/* Starts again: what came before was copied. */
void session_sums_reset(struct session *s);

/* Writes the members time_s, turns, sampled_tokens and truncated_turns. */
void session_sums_put(const struct session *s, struct json_out *o);

/* Applies the body of RECORD_LOGPROBS. */
int session_apply_report(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_SCORE. */
int session_apply_score(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_FORK. */
int session_apply_fork(struct session *s, struct record_in *r, struct err *e);

/* Takes a checkpoint of s out of its message: it is on record, and on no branch any more. */
void checkpoint_hide(struct session *s, struct checkpoint *t);

/* Counts t in forest.leaves (by: 1) or takes it out (-1), if it is one now: around each change of
 * what makes it one. */
void session_count_leaf(struct session *s, const struct checkpoint *t, int by);

/* Applies the body of RECORD_BUDGET. */
int session_apply_budget(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of a record of the sinks. */
int session_apply_sink(struct session *s, struct record_in *r, struct err *e);

/* --- call_bulk.c --- */

/* What came of the long bytes of a call that runs, or is read back or copied; or NULL. */
struct call_bulk *session_bulk(struct session *s, uint64_t call);

/* Applies the body of RECORD_BULK. -1: it does not follow those before it. */
int session_apply_bulk(struct session *s, struct record_in *r, struct err *e);

/* Frees what no commit has named: of a call, or of all that do not run. */
void session_drop_bulk(struct session *s, uint64_t call);
void session_free_bulks(struct session *s);

#endif
