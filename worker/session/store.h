/*
 * The bodies of struct session, struct session_store and struct plan, for the files of this folder
 * and (reading only) for worker/export. What everybody else may know is in session.h.
 */
#ifndef RG_SESSION_STORE_H
#define RG_SESSION_STORE_H

#include "common/base/list.h"
#include "worker/model/model.h"
#include "worker/session/forest.h"
#include "worker/session/score.h"
#include "worker/session/session.h"

struct policy;

struct reward_member {
    struct str key, json;
};

/* A JSON object kept as members in order, the newest write per key (reward_info). */
struct reward {
    struct str response_id; /* absent: the session's */
    VEC(struct reward_member) members;
};

struct session_options {
    const struct policy *policy;
    struct matcher matcher;
    bool rollback_last_assistant, idempotent_retry, ignore_tools, branch_on_rewrite;
    bool compare_tokens; /* timeline_compare_level == "token" */
    uint64_t prompt_length, response_length, ttl_ms;
    const struct json *sampling, *lock_sampling, *labels, *metadata, *score; /* or NULL */
    enum session_truncated on_truncated;                                     /* not AUTO */
    bool refuse_completed;
    struct str reseeded_from; /* the unknown id of the call that it was made for ("": the call named
                                 none); absent: made by POST /sessions */
    bool hold;                /* finalized, it is kept until it is deleted */
    bool dispatched;          /* made by the dispatcher; a fork or an import of it is not */
    bool no_sinks;            /* no sink gets it */
    struct session_wants wants;
    struct str adapter; /* of the weights that sample; absent: none */
    uint32_t max_nodes;
    bool evaluation;             /* its samples are not for training */
    uint32_t max_turns;          /* calls that are recorded; 0: no limit */
    uint64_t max_total_tokens;   /* stored, of all branches; 0: no limit */
    struct str group;            /* absent: none (group.h) */
    int32_t rollout, group_size; /* -1, 0: not said */
};

/* policy chains: one append-only chain; its checkpoints are the path of `head`. */
struct chain {
    uint32_t id;
    uint32_t seq; /* of its last commit or of its closing */
    struct checkpoint *head;
    bool closed;                /* max_trajectory_length */
    struct checkpoint *dropped; /* closed by a call that had rolled it back: this answer is gone,
                             and of its ids the first `kept` stay, behind `head` */
    uint32_t kept;
    const void *reserved;                 /* the plan that holds it, or NULL */
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
    uint64_t place;
    struct list_item item; /* of store->all */
    struct list_item lru;  /* of store->lru; RESIDENT ones that were used are in it */
    enum residence residence;
    struct session_share share;
    uint64_t counted_evicted; /* the part of share.evicted_bytes that the sums have */
    bool counted_as_evicted;
    struct str row;       /* EVICTED: its row, or absent */
    uint64_t label_names; /* a bit for each label, by its name's hash; all: they are not known */
    struct str id;        /* at id_text */
    enum session_phase phase;
    bool told_basis;      /* that logprobs are not of what was sampled from is in the log */
    bool told_experts;    /* that an engine told no routed experts, likewise */
    bool told_support;    /* that an engine told no sampling support, likewise */
    bool expired, filled; /* filled: its content is (being put) in memory */
    bool held;            /* finalized, with the option hold */
    uint64_t idle_ms;     /* nothing has happened since then: for the TTL */
    uint64_t read_ms;     /* finalized: kept since then */
    uint64_t exported_ms; /* delivered whole; 0: not yet */
    uint64_t kept_ms;     /* LOADING: what updated_ms was */
    enum session_sink sink;
    struct str sink_options; /* while resident */
    uint64_t created_ms, updated_ms, ended_ms;
    struct session_options options;
    struct forest forest;
    VEC(struct payload *) payloads;
    uint64_t payload_bytes, payload_evicted; /* in memory; evicted */
    uint32_t record;                 /* number of its next one in the journal; not EVICTED */
    uint64_t used;                   /* the store's clock at its last use */
    struct model_fingerprint origin; /* tokenizer 0: not known */
    uint64_t next_call;
    uint32_t next_seq;
    uint32_t inflight, pins;
    bool unlinked;          /* deleted; freed when the last plan and pin are gone */
    struct list_head plans; /* live ones */

    struct reward reward;
    VEC(struct reward *) checkpoint_rewards;
    struct map rewards_by_response;
    enum session_stop stated;    /* who ended it, as complete or abort said */
    struct str forked_from;      /* the session that its beginning was copied from, or absent */
    struct str budget;           /* the budget that refused a call first, or absent */
    bool has_finished, finished; /* of complete */
    struct str complete_reason;

    struct checkpoint *head; /* policy linear: the newest kept checkpoint */
    uint64_t head_version;   /* changes with every commit and rollback */
    VEC(struct chain *) chains;
    VEC(struct score) scores;
    uint32_t rollbacks;
    uint64_t rollback_dropped;

    uint64_t forks[CAUSE_COUNT];
    uint64_t trimmed, refreshed;
    uint32_t merge_repaired, merge_lost; /* the most that an export's merge did */
    char id_text[];
};

struct tombstone {
    struct str id;
    uint64_t at_ms;
    bool exportable; /* finalized or expired, not deleted */
    struct tombstone *next;
};

struct session_store {
    const struct model *model;
    struct session_defaults defaults;
    char *history, *matcher, *compare_level; /* copies behind defaults */
    struct map sessions;                     /* by id, ended but retained ones included */
    struct list_head all;                    /* sessions, oldest first */
    struct map tombstones;
    struct tombstone *oldest, *newest; /* queue by time of death */
    VEC(char *) gone;                  /* ids of deleted and aborted sessions (session_take_gone) */
    struct list_head lru;              /* resident sessions by their last use, oldest first */
    struct list_head payload_lru;      /* payloads in memory, in the same order */
    uint64_t clock;                    /* counts uses */
    session_source source;             /* NULL: payloads stay */
    void *source_ctx;
    bool lazy, evicts;
    uint64_t n_places;   /* ever made */
    uint64_t n_suffixes; /* turns that were to be built on stored ones */
    struct session_totals totals;
};

/* The private side of a session_plan. */
struct plan {
    struct session_plan pub; /* first */
    struct session *session;
    struct list_item item; /* of session->plans */
    struct str session_id;

    /* borrowed from the call's arena */
    struct chat chat; /* messages NULL: a completion */
    struct walk walk;
    struct arena *arena;
    struct prompt_env *env; /* NULL: a new one */
    struct str label, parent_label, dropped_fields;
    uint64_t body_hash[2];
    struct str key;
    int64_t max_tokens;
    float temperature;
    struct str asked;
    bool look;        /* no call will follow: nothing is refused */
    bool text;        /* nothing was rendered */
    uint32_t max_ids; /* a prompt of more cannot be sent; 0: nothing is refused */

    /* where it stands */
    struct checkpoint *parent;   /* NULL: full render */
    struct checkpoint *held;     /* the payloads of its path stay in memory */
    uint32_t covered;            /* messages inside parent */
    struct message_node *prompt; /* deepest node of the walk; new messages hang below */
    struct chain *chain;         /* chains: continued or rolled back, or NULL */
    bool rollback;               /* chains: the chain's last assistant is dropped */
    uint64_t head_version;       /* linear */
    uint32_t n_context, n_close, trim;
    uint32_t kept; /* exhausted, chains: ids that stay of a chain that is rolled back and closed */

    /* What session_prepare_render works with and makes; nothing else of the plan changes meanwhile,
     * since other calls of the session look at it. */
    struct {
        int32_t *stored;          /* the parent's ids, with room behind them */
        bool stored_known;        /* the model has every id that the session holds */
        struct token_span prompt; /* made */
        size_t reused;
        uint32_t n_context, n_close, trim;
        bool audits; /* set before: the suffix is to be held against the whole chat */
        enum model_audit audit;
        bool anew;     /* the template rewrites earlier checkpoints: not on the parent */
        bool exhausts; /* by its bytes alone the prompt is beyond what the session may hold */
    } made;
};

static inline bool session_has_ended(const struct session *s)
{
    return s->phase == SESSION_FINALIZED || s->phase == SESSION_ABORTED;
}

/* --- store.c --- */

/* A new session with a place in the store and its lists. */
struct session *session_new(struct session_store *st, struct str id, uint64_t now_ms);

/* Changes the phase and the store's counts by phase. Tombstone and waiters are session_finish's. */
void session_set_phase(struct session *s, enum session_phase phase);

/* The tombstone of a session whose end is all that the journal has. */
void session_bury(struct session_store *st, struct str id, uint64_t now_ms);

/* Phase and tombstone of an end; the caller holds a pin. */
void session_finish(struct session *s, enum session_end how, uint64_t now_ms);

/* Evicts a session that nobody uses any more, if its records are in a journal. */
void session_rest(struct session *s);

/* Out of the store; freed when its last holder lets go. */
void session_unlink(struct session *s);

/* Frees the rewards, of the session and of its responses. */
void session_free_rewards(struct session *s);

/* Unlinks and frees a plan (after its release or its commit). */
void plan_free(struct plan *p);

/* The live plan with this call number, or NULL. */
struct plan *plan_find(struct session *s, uint64_t call);

/* Frees a session whose last holder may just have gone. */
void session_maybe_free(struct session *s);

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
struct record_in;
int session_absorb(struct session *s, uint64_t type, struct record_in *r, uint64_t now_ms,
                   struct err *e);

/* Reads all records of a resident session back from the journal (the store must have a source), in
 * any order. -1 and e: not all can be read, or the reader said so. */
int session_read_records(struct session *s, const struct session_reader *to, struct err *e);

/* Finds or makes the reward of a response (absent id: the session's). */
struct reward *session_reward(struct session *s, struct str response_id);

/* Parses and checks POST /sessions options (a JSON object, or NULL) over the store's defaults.
 * JSON values stay borrowed. */
int session_options_read(const struct session_store *st, const struct json *v,
                         struct session_options *ret, struct err *e);

/* Writes them, resolved, as the object that session_options_read reads back. */
void session_options_write(const struct session_options *o, struct buf *json);

/* Applies the body of one commit record (apply.c). */
int session_apply_commit(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e);

/* Appends a model's fingerprint to a record: it is the last of it. */
void origin_put(struct buf *record, const struct model_fingerprint *f);

/* Reads it. Returns -1 if the record is torn. */
int origin_read(struct record_in *r, struct model_fingerprint *ret);

/* Applies the body of RECORD_ORIGIN. */
int session_apply_origin(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_SCORE. */
int session_apply_score(struct session *s, struct record_in *r, struct err *e);

/* Applies the body of RECORD_FORK. */
int session_apply_fork(struct session *s, struct record_in *r, struct err *e);

/* Takes a checkpoint out of its message: it is on record, and on no branch any more. */
void checkpoint_hide(struct checkpoint *t);

/* Applies the body of RECORD_BUDGET. */
int session_apply_budget(struct session *s, struct record_in *r, struct err *e);

/* Why the session stopped: who, and a word for it. false: it goes on. The session is filled. */
bool session_stopped(const struct session *s, enum session_stop *ret_by, const char **ret_reason);

/* Writes the member "stop_reason". */
void session_put_stop(const struct session *s, struct json_out *o);

/* -1, ERR_BUDGET with the option's name as param: the session may make no further call. */
int session_check_turns(const struct session *s, struct err *e);

/* The same of a call that adds so many context tokens; *left becomes what its answer may have, if
 * that is less. */
int session_check_tokens(const struct session *s, uint64_t context, uint64_t *left, struct err *e);

/* Applies the body of a record of the sinks. */
int session_apply_sink(struct session *s, struct record_in *r, struct err *e);

#endif
