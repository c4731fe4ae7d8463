/*
 * A call of a session, from its position to its record: session_prepare_position makes a plan, the
 * other session_prepare_ functions complete it (session_prepare calls all of them). After the
 * engine has answered, session_bulk_record writes long values, and session_commit_record
 * (session_answer.h) the call's record (session.h has the order). session_release releases a plan
 * that is not committed.
 */
#ifndef RG_SESSION_SESSION_CALL_H
#define RG_SESSION_SESSION_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/session/store/session.h"
#include "worker/text/request/token_rows.h"
#include "worker/text/tokens/span.h"

struct arena;
struct buf;
struct chat;
struct err;
struct json;
struct model_scratch;
struct session;
struct session_store;

struct session_call_input {
    const struct chat *chat; /* NULL for text and token-id completions */
    struct token_span raw;   /* prompt of such a completion */
    struct str label;        /* x-claude-code-agent-id and similar headers, or absent */
    struct str parent_label; /* x-parent-session-id, or absent */
    struct str pool;         /* pool of engines that answers; absent: the policy's */
    /* names of request fields that were ignored, a JSON list, or absent */
    struct str dropped_fields;
    uint64_t body_hash[2];   /* hash of the request body, for retries */
    struct str key;          /* Idempotency-Key, or absent */
    int64_t max_tokens;      /* requested limit; 0: none */
    float temperature;       /* sampling temperature, for trainers that want it per token */
    uint32_t context_length; /* context length of engine and model; 0: unknown */
    uint64_t now_ms;
    /* the request's data that a stored answer echoes, or absent; opaque here, and stored once if
     * several calls of a session have the same */
    struct str asked;
    /* echo without `instructions`, stored instead if these are the text of the conversation's
     * first message; or absent */
    struct str asked_brief;
    struct str instructions; /* set with asked_brief */
    bool text; /* the engine is asked with messages: nothing is rendered, the prompt stays empty */
    /* a token count: nothing is refused because of position or limits, and the session does not
     * change */
    bool look;
};

/* A plan: the position of one call. The caller may read the fields. Either session_apply of the
 * commit or session_release frees the struct, never both. */
struct session_plan {
    uint64_t call;             /* number of this call in its session, from 0 */
    bool ran;                  /* the policy's engines have answered the session itself */
    struct token_parts prompt; /* exact ids to send; valid as long as the plan */
    size_t reused;             /* number of these ids that were stored before */
    uint32_t images;           /* pictures in the prompt; each is one id */
    /* number of additional ids that the engine makes of all pictures */
    uint64_t image_extra;
    uint32_t rows_known[ROWS_KINDS]; /* number of stored rows, from the first position on, */
    uint32_t indexer_row;            /* and the bytes of one row of the indexer, if there are any */
    /* number of stored ids that the template's next message repeats: dropped */
    uint32_t trimmed;
    uint32_t max_tokens; /* limited by context and budgets */
    /* linear: this retry discards the newest checkpoint; session_drop_record is in the journal
     * before the engine is asked */
    bool drops;
    /* budgets leave no space: no engine call; answer 200, finish_reason "length", empty content,
     * usage prompt.n + 0, and commit one answer with ids.n == 0 (closes the chain; nothing else is
     * kept) */
    bool exhausted;
    bool audited;       /* the suffix was compared with the rendering of the whole chat, */
    bool audit_differs; /* and differs from it */
    /* chains: plan of a call without clients, whose chain this one took; the caller ends that
     * call, then sets NULL. Usually NULL */
    struct session_plan *displaced;
    enum session_cause cause;
    /* index of the message in which the request differs from what is stored (cause other than
     * extended) */
    uint32_t diff_message;
    struct str diff_field; /* "content", "role", "tools", ...; absent: does not apply */
    struct str diff_stored, diff_request; /* both texts from shortly before the first difference */
};

/* Finds the position, makes the prompt, and reserves what the policy reserves. `a` is the call's
 * arena. Returns -1 with ERR_SESSION_ENDED, ERR_TRUNCATED, ERR_HISTORY_CONFLICT,
 * ERR_CONTEXT_LENGTH, ERR_MAX_NODES or ERR_INVALID. Changes only reservations. */
MAY_PAUSE int session_prepare(struct session *s, struct model_scratch *scratch, struct arena *a,
                              const struct session_call_input *in, struct session_plan **ret,
                              struct err *e);

/* The steps of session_prepare, in this order. `position` sets *ret while it pauses, and to NULL if
 * it fails; from then on the plan must be released. `path` reads back from the journal what the
 * path lacks in memory. `render` makes the exact ids and is pure: it may run in another thread if
 * nobody else uses the plan's arena meanwhile; the session may change or end. *ret is the prompt as
 * far as it is known then. `end` takes the prompt on the session's thread and gives the call its
 * number. `in` must be the same for all of them. */
MAY_PAUSE int session_prepare_position(struct session *s, struct arena *a,
                                       const struct session_call_input *in,
                                       struct session_plan **ret, struct err *e);
MAY_PAUSE int session_prepare_path(struct session_plan *p, struct err *e);
int session_prepare_render(struct session_plan *p, struct model_scratch *scratch,
                           struct token_parts *ret, struct err *e);
MAY_PAUSE int session_prepare_end(struct session_plan *p, const struct session_call_input *in,
                                  struct err *e);

/* Returns the conversation that is rendered, or NULL for a completion. Valid as long as the
 * plan. */
const struct json *session_plan_messages(const struct session_plan *p);

/* Returns the signed data of the stored answers among the call's messages (message_is_signed), in
 * the order of its assistant messages: for each an object, whose tool_calls have their ids, or
 * null. Returns NULL if there is none. A copy in the arena. */
const struct json *session_plan_signed(struct session_plan *p, struct arena *a);

/* Returns the response id of the answer that the call continues. Absent if none. Valid as long as
 * the session. */
struct str session_plan_parent(const struct session_plan *p);

/* Estimates the least bytes of the call's records without its answers: its new texts if they are
 * long, and new ids of its prompt. The plan must be complete. */
uint64_t session_plan_adds(const struct session_plan *p);

/* Estimates the bytes that render reads, up to `enough`. */
size_t session_prompt_bytes(const struct session_plan *p, size_t enough);

/* Writes the record of what a plan with `drops` discards. After it is applied the checkpoint is not
 * in the history any more, even if the call fails; its tokens stay on record. */
void session_drop_record(struct session_plan *p, uint64_t now_ms, struct buf *record);

/* Checks whether the session would still take the call's commit. Returns -1 with ERR_SESSION_ENDED,
 * or the policy's error (ERR_STATE_CONFLICT). session_commit_record checks the same. */
int session_check_commit(const struct session_plan *p, struct err *e);

/* Records whether the call has no clients left. A different call may then take its chain
 * (session_plan.displaced). Accepts NULL. */
void session_set_left(struct session_plan *p, bool left);

/* Reports whether the session's policy is chains: calls reserve what they continue. */
bool session_reserves_chains(const struct session *s);

/* Releases the chain of a call that will not commit but whose plan is still needed: a different
 * call may continue the chain. Accepts NULL. */
void session_release_chain(struct session_plan *p);

/* Releases the plan without a trace (in no trajectory; but an applied drop stays). Allowed after
 * the session ended. Accepts NULL. */
void session_release(struct session_store *st, struct session_plan *p);

/* Releases a plan that was only read (a token count) and never sent to an engine. Its number is
 * given to the next call if no later one was given out. */
void session_release_unused(struct session_store *st, struct session_plan *p);

#endif
