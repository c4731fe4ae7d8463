/*
 * struct plan: the body of a session_plan (session_call.h), for the files of this folder: where the
 * call stands, and what render makes of it.
 */
#ifndef RG_SESSION_PLAN_H
#define RG_SESSION_PLAN_H

#include "common/base/list.h"
#include "common/base/str.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/forest.h"
#include "worker/text/request/chat.h"
#include "worker/text/tokens/span.h"

struct arena;
struct call_bulk;
struct bulk_span;
struct chain;
struct checkpoint;
struct err;
struct new_env;
struct new_messages;
struct policy;
struct prompt_env;
struct ready_answers;
struct recall;
struct session;
struct session_answer;

/* The private side of a session_plan. */
struct plan {
    struct session_plan pub; /* first */
    struct session *session;
    struct list_item item; /* in session->plans */
    struct str session_id;

    /* borrowed from the call's arena */
    struct chat chat; /* messages NULL: a completion */
    struct walk walk;
    bool walks;  /* it has not come to its end */
    bool stands; /* the call has its place: what follows is known, and the path is held */
    struct arena *arena;
    struct prompt_env *env; /* NULL: a new one */
    struct env_key env_key; /* key of chat and pool */
    struct str label, parent_label, dropped_fields;
    struct str pool; /* pool of engines; absent: the policy's */
    uint64_t body_hash[2];
    struct str key;
    int64_t max_tokens;
    float temperature;
    struct str asked, asked_brief, instructions;
    bool look;        /* no call will follow: nothing is refused */
    bool text;        /* nothing was rendered */
    uint32_t max_ids; /* a prompt of more cannot be sent; 0: nothing is refused */

    /* where it stands */
    struct checkpoint *parent; /* NULL: full render */
    struct checkpoint *held;   /* the payloads of its path stay in memory */
    struct recall *recall;     /* own; NULL: that path is all there */
    bool compares;     /* context that plan_shared_run compares is being read back, or has been, */
    bool alone;        /* or cannot be: the record holds the whole context */
    uint32_t covered;  /* first messages of the request that parent's ids hold */
    uint32_t n_stored; /* first ones of chat.messages that are as they are stored */
    struct message_node *prompt; /* deepest node of the walk; new messages hang below */
    struct chain *chain;         /* chains: continued or rolled back, or NULL */
    bool rollback;               /* chains: the chain's last assistant is dropped */
    bool left;                   /* chains: no client waits for the call: its chain is free */
    uint64_t head_version;       /* linear */
    uint32_t n_context, n_close, trim;
    bool settled; /* it is known which ids its answers have (commit.c) */

    /* The long bytes of its record (bulk_record.c), once any stand before it. */
    struct {
        struct call_bulk *written; /* own: what did so far; NULL: all are in the record */
        struct bulk_span
            *spans; /* ranges that are still to be written, in this order; in the arena, */
        size_t n_spans, span, byte;  /* the next byte is this one's */
        struct answer_place *places; /* places of its answers, in the arena */
        size_t texts_from;           /* the new messages, from this byte of their texts on */

        /* what its context begins with: not in the record */
        bool settled;
        struct checkpoint *run; /* or NULL */
        uint32_t common;
    } bulk;

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
        bool audited, audit_differs; /* see struct session_plan */
        bool anew; /* the template rewrites earlier checkpoints: not on the parent */
        struct new_messages
            *messages;       /* prepared messages after the walk if they are long, else NULL */
        struct new_env *env; /* the environment when it is new and long, else NULL */
        struct ready_answers *answers; /* its answers' long messages, once they are made, or NULL */
        bool exhausts; /* by its bytes alone the prompt is beyond what the session may hold */
    } made;
};

/* How the call attaches: what another pool than the policy's answers is a tree beside the session's
 * history, whatever the session's own policy is. */
const struct policy *plan_policy(const struct plan *p);

/* plan.c: a new one, of the session's. No number yet: a call gets it in session_prepare_end. */
struct plan *plan_new(struct session *s, struct arena *a, const struct session_call_input *in);

/* plan_path.c: holds the payloads of the path that ends in t, and no others any more, as long as
 * the plan lives, or until plan_let. t may be NULL. */
void plan_hold(struct plan *p, struct checkpoint *t);
void plan_let(struct plan *p);

/* Reads back what of that path is not in memory, a step's worth. 1: there is more, for a later
 * turn; 0: all is there; -1: the journal cannot give it back. */
int plan_recall(struct plan *p, struct err *e);

/* The checkpoint whose context the call's starts with, and with how many ids; NULL: none, or it
 * cannot be read back. */
struct checkpoint *plan_shared_run(struct plan *p, uint32_t *ret_n);

/* plan_images.c: counts the pictures of the conversation as it will be rendered. -1 ERR_INVALID:
 * the model takes none, or not as they are asked for. */
int plan_count_images(struct plan *p, struct err *e);

/* Checks that each picture is one placeholder of the made prompt, in order: engines and exports
 * rely on that. -1 ERR_INVALID if the template makes others. */
int plan_check_images(const struct plan *p, struct err *e);

/* cause.c: fills cause and diff_* of a plan whose walk and position are known. */
void cause_find(struct session *s, struct plan *p);

/* Unlinks and frees a plan (after its release or its commit). It gives back what it has
 * reserved and held. */
void plan_free(struct plan *p);

/* commit.c: what other calls stored since the plan was made is not new any more. */
void plan_renew(struct plan *p);

/* Part of render: makes the new messages and the new environment ready for the record when they are
 * long, or `always` (new_messages.h, new_env.h). */
void plan_make_ready(struct plan *p, bool always);

/* The texts of the environment as a record has them; absent: they were not made ready. */
struct str plan_env_texts(const struct plan *p);

/* Text of the environment that the request asks for, counted up to `enough` each. */
size_t plan_env_bytes(const struct plan *p, size_t enough);

/* Returns the texts, as a record has them, of the request's messages that the forest lacks. Absent:
 * there are no such messages, or they were not prepared. */
struct str plan_new_texts(const struct plan *p);

/* The first of them, ready to be compared; NULL as above. Lives as long as the plan. */
const struct message *plan_new_message(const struct plan *p);

/* duplicate.c: the checkpoint of this very answer, with this message, when it was recorded at this
 * very place before: with idempotent_retry a client that sent a request twice gets one checkpoint.
 * Else NULL. Only under policy tree. *ret_in_use: something stands on it. */
struct checkpoint *plan_duplicate(const struct plan *p, const struct json *message,
                                  bool *ret_in_use);

/* Positions of an answer's long bytes (call_bulk.h). */
struct answer_place {
    uint32_t piece, apart[ROWS_KINDS]; /* apart: 0 if that block is in `piece` */
    size_t text_at;                    /* position of its message, if it was prepared */
};

/* commit.c: what the context begins with, which stays so. */
void plan_settle_run(struct plan *p);

/* bulk_record.c: writes the next fragment of more than max_bytes of long bytes. Returns false if
 * there are not so many, or none is left. Such bytes are not to be read afterwards. */
bool plan_bulk_record(struct plan *p, const struct session_answer *answers, size_t n,
                      size_t max_bytes, uint64_t now_ms, struct buf *record);

/* The ids that the call adds before its answers, without the first `common`. */
struct token_span plan_own_context(const struct plan *p, uint32_t common);

/* The live plan with this call number, or NULL. */
struct plan *plan_find(struct session *s, uint64_t call);

#endif
