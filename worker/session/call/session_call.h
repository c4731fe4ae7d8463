/*
 * A call of a session, from where it attaches to what it adds: session_prepare_begin makes a plan,
 * session_prepare_render and session_prepare_end complete it (session_prepare: all three at once),
 * the engine answers, session_bulk_record writes long bytes, session_commit
 * (session_answer.h) the call's record (session.h has the order); or session_release gives the plan
 * back.
 */
#ifndef RG_SESSION_SESSION_CALL_H
#define RG_SESSION_SESSION_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    const struct chat *chat;   /* NULL for text / token-id completions */
    struct token_span raw;     /* the prompt of such a completion */
    struct str label;          /* x-claude-code-agent-id and the like, or absent */
    struct str parent_label;   /* x-parent-session-id, or absent */
    struct str pool;           /* pool of engines that answers; absent: the policy's */
    struct str dropped_fields; /* names that the request brought in vain, a JSON list, or absent */
    uint64_t body_hash[2];     /* hash of the request body, for retries */
    struct str key;            /* Idempotency-Key, or absent */
    int64_t max_tokens;        /* asked for; 0: none */
    float temperature;         /* sampled with; for trainers that want it per token */
    uint32_t context_length;   /* context length of engine and model; 0: unknown */
    uint64_t now_ms;
    struct str asked; /* the request's data that a stored answer echoes, or absent; opaque here, and
                         kept once for equal ones of a session's calls */
    struct str asked_brief; /* echo without `instructions`, to be kept instead if these are the text
                               of the conversation's first message; or absent */
    struct str instructions; /* with asked_brief */
    bool text; /* the engine is asked with messages: nothing is rendered, the prompt stays empty */
    bool look; /* only a look (a token count): nothing is refused for where it would stand or for
                  what is left, and the session stays as it is */
};

/* The position of one call. Fields are the caller's to read; the struct is freed by
 * session_commit's session_apply or session_release, never both. */
struct session_plan {
    uint64_t call;                   /* number of this call in its session, from 0 */
    bool ran;                        /* the policy's engines have answered the session itself */
    struct token_span prompt;        /* exact ids to send; lives as long as the plan */
    size_t reused;                   /* how many of them were stored before */
    uint32_t images;                 /* pictures in the prompt; each is one id of it */
    uint64_t image_extra;            /* how many ids more the engine makes of them all */
    uint32_t rows_known[ROWS_KINDS]; /* number of stored rows, from the first position on, */
    uint32_t indexer_row;            /* and the bytes of one, where there are any of the indexer */
    uint32_t trimmed;    /* how many stored ones the template's next message repeats: dropped */
    uint32_t max_tokens; /* clamped to context and budgets */
    bool drops;          /* linear: this retry discards the newest checkpoint; session_drop_record
                            stands in the journal before the engine is asked */
    bool exhausted;      /* budgets leave no room: no engine call; answer 200, finish_reason
                            "length", empty content, usage prompt.n + 0, and commit one
                            answer with ids.n == 0 (closes the chain; nothing else is kept) */
    bool audited;        /* the suffix was compared with the whole chat's rendering, */
    bool audit_differs;  /* and is not what the template makes of it */
    struct session_plan *displaced; /* chains: plan of a call without clients, whose chain this one
                            took; the caller ends that call, then sets NULL. Usually NULL */
    enum session_cause cause;
    uint32_t diff_message; /* where the request left what was stored (cause other than extended) */
    struct str diff_field; /* "content", "role", "tools", ...; absent when it does not apply */
    struct str diff_stored, diff_request; /* both texts from shortly before the first difference */
};

/* Finds the attach point, builds the prompt, reserves what the policy reserves. `a` is the call's
 * arena. Errors: ERR_SESSION_ENDED, ERR_TRUNCATED, ERR_HISTORY_CONFLICT, ERR_CONTEXT_LENGTH,
 * ERR_MAX_NODES, ERR_INVALID. Nothing is changed but reservations. */
int session_prepare(struct session *s, struct model_scratch *scratch, struct arena *a,
                    const struct session_call_input *in, struct session_plan **ret, struct err *e);

/* The same in steps, for prompts that take long. begin finds the attach point; the plan is to be
 * released from then on. render makes the exact ids and is pure: it may run in another thread,
 * which has the plan's arena for itself meanwhile; the session may go on, or end. *ret is the
 * prompt as far as it is known then. end takes it over on the session's thread and gives the call
 * its number. `in` is the same for all of them.
 *
 * begin and go_on return 1 where a long history is to be gone through further, or more of it is to
 * be read back from the journal: by go_on, in a later turn, on and on until that is 0. With -1 and
 * e there is no plan (any more). end returns 1, too, where more is to be read back, and is then
 * called again in a later turn; with -1 the plan stays, to be released. */
int session_prepare_begin(struct session *s, struct arena *a, const struct session_call_input *in,
                          struct session_plan **ret, struct err *e);
int session_prepare_continue(struct session_plan **plan, struct err *e);
int session_prepare_render(struct session_plan *p, struct model_scratch *scratch,
                           struct token_span *ret, struct err *e);
int session_prepare_end(struct session_plan *p, const struct session_call_input *in, struct err *e);

/* The conversation as it is rendered; NULL: a completion. As long as the plan. */
const struct json *session_plan_messages(const struct session_plan *p);

/* Lists the signed data of the stored answers among the call's messages (message_is_signed), in the
 * order of its assistant messages: for each an object, whose tool_calls have their ids, or null.
 * NULL: there is none. A copy in the arena. */
const struct json *session_plan_signed(struct session_plan *p, struct arena *a);

/* The response id of the answer that the call goes on from; absent: from none. It lives as long as
 * the session. */
struct str session_plan_parent(const struct session_plan *p);

/* At least about how many bytes the records of the call will take, but for its answers: its new
 * texts where they are long, and new ids of its prompt. Once it is complete. */
uint64_t session_plan_adds(const struct session_plan *p);

/* About how many bytes render will go over; stops counting at `enough`. */
size_t session_prompt_bytes(const struct session_plan *p, size_t enough);

/* Writes the record of what a plan with `drops` discards. Once applied, the checkpoint is gone from
 * the history whatever becomes of the call; its tokens stay on record. */
void session_drop_record(struct session_plan *p, uint64_t now_ms, struct buf *record);

/* Whether the session would still take the call's commit: -1 and ERR_SESSION_ENDED, or what its
 * policy says (ERR_STATE_CONFLICT). session_commit asks the same. */
int session_check_commit(const struct session_plan *p, struct err *e);

/* Records whether clients wait for the call. If none does, another call may take its chain
 * (session_plan.displaced). NULL is fine. */
void session_set_left(struct session_plan *p, bool left);

/* True if the session's policy is chains: calls reserve what they continue. */
bool session_reserves_chains(const struct session *s);

/* The call commits nothing any more, but its plan is needed still: another call may go on where it
 * would have. NULL is fine. */
void session_release_chain(struct session_plan *p);

/* Gives the plan back without a trace (it is not in any trajectory; an applied drop stays); safe
 * after the session ended. NULL is fine. */
void session_release(struct session_store *st, struct session_plan *p);

/* Releases a plan that was only read (a token count) and never sent to an engine: its number is
 * given to the next call. */
void session_release_unused(struct session_store *st, struct session_plan *p);

#endif
