/*
 * struct plan: the body of a session_plan (session_call.h), for the files of this folder: the
 * position of the call, and the results of its rendering.
 */
#ifndef RG_SESSION_PLAN_H
#define RG_SESSION_PLAN_H

#include "common/base/attrs.h"
#include "common/base/list.h"
#include "common/base/str.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/forest.h"
#include "worker/text/request/chat.h"
#include "worker/text/tokens/span.h"

struct call_bulk;
struct bulk_span;
struct chain;
struct checkpoint;
struct err;
struct new_env;
struct new_messages;
struct policy;
struct ready_answers;
struct recall;
struct session;
struct session_answer;

/* The private part of a session_plan. */
struct plan {
    struct session_plan pub; /* must be the first member */
    struct session *session;
    struct list_item item; /* in session->plans */
    struct str session_id;

    /* borrowed from the call's arena */
    struct chat chat; /* messages NULL: a completion */
    struct walk walk;
    struct arena *arena;
    struct prompt_env *env; /* environment of the call; NULL: a new one */
    struct env_key env_key; /* key of the chat's and the pool's environment */
    struct str label, parent_label, dropped_fields;
    struct str pool; /* pool of engines; absent: the policy's */
    uint64_t body_hash[2];
    struct str key;
    int64_t max_tokens;
    float temperature;
    struct str asked, asked_brief, instructions;
    bool look;        /* no call will follow, so nothing is refused */
    bool text;        /* a text capture: nothing was rendered */
    uint32_t max_ids; /* longest prompt that can be sent; 0: nothing is refused */

    /* where it stands */
    struct checkpoint *parent; /* the checkpoint that the call continues; NULL: full render */
    struct checkpoint *held;   /* checkpoint whose path's payloads are kept in memory */
    /* context that plan_shared_run compares, held in memory; in the arena; NULL: none */
    struct recall *compared;
    struct checkpoint *neighbour; /* checkpoint of that context, or NULL */
    bool alone; /* that context cannot be read back, so the record contains the whole context */
    uint32_t covered;  /* number of leading messages of the request that parent's ids contain */
    struct str added;  /* what the last of them has after the parent's text; absent: nothing */
    bool exact;        /* an answer with added text is not the parent */
    uint32_t n_stored; /* number of leading messages of chat.messages in their stored spelling */
    struct message_node *prompt; /* deepest node of the walk; new messages become its descendants */
    struct chain *chain;         /* chains: the chain that is continued or rolled back, or NULL */
    bool rollback;               /* chains: the chain's last assistant message is dropped */
    /* chains: no client waits for the call, so its chain may be taken */
    bool left;
    uint64_t head_version; /* linear: version of the head that the call saw */
    uint32_t n_context, n_close, trim;
    bool settled; /* commit.c has decided which ids the answers have */

    /* The long values of the call's record (bulk_record.c), if some are written before it. */
    struct {
        struct call_bulk *written; /* what was written so far, own; NULL: all are in the record */
        struct bulk_span
            *spans; /* ranges that are still to be written, in this order; in the arena, */
        size_t n_spans, span, byte;  /* and the next byte, as a range and a byte in it */
        struct answer_place *places; /* positions of the answers, in the arena */
        /* byte of the new messages' texts from which they are written before */
        size_t texts_from;
        bool rows_apart;    /* pieces of rows are RECORD_ROWS, */
        uint32_t rows_from; /* from this piece on */

        /* the beginning of the context, which the record does not contain */
        bool settled;
        struct checkpoint *run; /* run that the context begins with, or NULL */
        uint32_t common;
    } bulk;

    /* exhausted, chains: number of ids that are kept of a chain that is rolled back and closed */
    uint32_t kept;

    /* Input and results of session_prepare_render. Nothing else of the plan changes meanwhile,
     * because other calls of the session read it. */
    struct {
        struct token_span *stored; /* the parent's ids (checkpoint_parts) */
        size_t stored_parts;
        bool stored_known;         /* the model has every id that the session stores */
        struct token_parts prompt; /* the prompt that was made */
        size_t reused;
        uint32_t n_context, n_close, trim;
        bool audits; /* input: the suffix must be compared with the rendering of the whole chat */
        bool audited, audit_differs; /* see struct session_plan */
        bool anew; /* the template changes earlier checkpoints, so the parent's ids are not used */
        struct new_messages
            *messages;       /* prepared messages after the walk if they are long, else NULL */
        struct new_env *env; /* the environment if it is new and long, else NULL */
        /* long messages of the answers once they are made, or NULL */
        struct ready_answers *answers;
        bool exhausts; /* the prompt's bytes alone show that it exceeds what the session may hold */
    } made;
};

/* Returns the policy by which the call attaches. Answers of a pool other than the policy's form a
 * tree beside the session's history, whatever the session's own policy is. */
const struct policy *plan_policy(const struct plan *p);

/* plan.c: makes a plan of the session. It has no number yet: session_prepare_end gives the call its
 * number. */
struct plan *plan_new(struct session *s, struct arena *a, const struct session_call_input *in);

/* plan_path.c: keeps the payloads of the path that ends in t in memory, and of no other path, until
 * the plan is freed or plan_let. t may be NULL. */
void plan_hold(struct plan *p, struct checkpoint *t);
void plan_let(struct plan *p);

/* Reads back what is missing of that path. Returns -1 if the journal cannot be read, or if the
 * session has ended meanwhile. */
MAY_PAUSE int plan_read_path(struct plan *p, struct err *e);

/* Fails with ERR_SESSION_ENDED if the session has ended. */
int plan_check_open(const struct plan *p, struct err *e);

/* Returns the checkpoint with which the call's context shares its beginning, and the number of ids
 * shared. Returns NULL if there is none, or if it cannot be read back. */
struct checkpoint *plan_shared_run(struct plan *p, uint32_t *ret_n);

/* plan_images.c: counts the pictures of the conversation that will be rendered. Returns -1 with
 * ERR_INVALID if the model takes no pictures, or not in the requested form. */
int plan_count_images(struct plan *p, struct err *e);

/* Checks that each picture is exactly one placeholder of the prompt, in order, because engines and
 * exports rely on that. Returns -1 with ERR_INVALID if the template makes different ones. */
int plan_check_images(const struct plan *p, struct err *e);

/* cause.c: sets cause and diff_* of a plan whose walk has ended and whose position is known. */
void cause_find(struct session *s, struct plan *p);

/* Unlinks and frees a plan after its release or its commit. Releases what the plan has reserved and
 * held. */
void plan_free(struct plan *p);

/* commit.c: updates the plan: messages that other calls have stored meanwhile are no longer new. */
void plan_renew(struct plan *p);

/* Part of render: prepares the new messages and the new environment for the record if they are
 * long, or `always` (new_messages.h, new_env.h). */
void plan_make_ready(struct plan *p, bool always);

/* Returns the texts of the environment in the form of a record. Absent if they were not
 * prepared. */
struct str plan_env_texts(const struct plan *p);

/* Counts the bytes of the request's tools and kwargs, up to `enough` each. */
size_t plan_env_bytes(const struct plan *p, size_t enough);

/* Returns the texts, in the form of a record, of the request's messages that the forest lacks.
 * Absent if there are none, or if they were not prepared. */
struct str plan_new_texts(const struct plan *p);

/* Returns the first of these messages, ready to be compared. Returns NULL if plan_new_texts is
 * absent. Valid as long as the plan. */
const struct message *plan_new_message(const struct plan *p);

/* Positions of an answer's long values (call_bulk.h). */
struct answer_place {
    /* pieces of its values and rows; apart is 0 if the rows are in `piece` */
    uint32_t piece, apart[ROWS_KINDS];
    size_t text_at; /* position of its message, if that was prepared */
};

/* commit.c: decides, finally, with what run the context begins. */
void plan_settle_run(struct plan *p);

/* bulk_record.c: writes the next fragment of more than max_bytes of long values, or of rows that
 * the second copy lacks. Returns false if there is less, or nothing is left. Values that were
 * written must not be read afterwards. */
bool plan_bulk_record(struct plan *p, const struct session_answer *answers, size_t n,
                      size_t max_bytes, uint64_t now_ms, struct buf *record);

/* Returns the ids that the call adds before its answers, without the first `common`. */
struct token_span plan_own_context(const struct plan *p, uint32_t common);

/* Returns ids that are in one place, as a part in the arena. */
struct token_parts plan_one_part(const struct plan *p, struct token_span ids);

/* Returns the plan in progress with this call number, or NULL. */
struct plan *plan_find(struct session *s, uint64_t call);

#endif
