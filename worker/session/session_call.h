/*
 * A call of a session, from where it attaches to what it adds: session_prepare makes a plan, the
 * engine answers, session_commit writes the record (session.h has the order); or session_release
 * gives the plan back. And the calls that were committed, for who repeats a request.
 */
#ifndef RG_SESSION_SESSION_CALL_H
#define RG_SESSION_SESSION_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/model/model.h"
#include "worker/session/cause.h"
#include "worker/tokens/span.h"

struct arena;
struct buf;
struct chat;
struct err;
struct json;
struct session;
struct session_store;

struct session_call_input {
    const struct chat *chat;   /* NULL for text / token-id completions */
    struct token_span raw;     /* the prompt of such a completion */
    struct str label;          /* x-claude-code-agent-id and the like, or absent */
    struct str parent_label;   /* x-parent-session-id, or absent */
    struct str dropped_fields; /* names that the request brought in vain, a JSON list, or absent */
    uint64_t body_hash[2];     /* of the request body, for retries */
    struct str key;            /* Idempotency-Key, or absent */
    int64_t max_tokens;        /* asked for; 0: none */
    float temperature;         /* sampled with; for trainers that want it per token */
    uint32_t context_length;   /* of engine and model; 0: unknown */
    uint64_t now_ms;
    struct str asked; /* what a stored answer echoes of its request, or absent;
                         opaque here, and kept once while a session's calls say the same */
    bool text; /* the engine is asked with messages: nothing is rendered, the prompt stays empty */
    bool look; /* only a look (a token count): nothing is refused for where it would stand or for
                  what is left, and the session stays as it is */
};

/* The position of one call. Fields are the caller's to read; the struct is freed by
 * session_commit's session_apply or session_release, never both. */
struct session_plan {
    uint64_t call;            /* number of this call in its session, from 0 */
    struct token_span prompt; /* exact ids to send; lives as long as the plan */
    size_t reused;            /* how many of them were stored before */
    uint32_t images;          /* pictures in the prompt; each is one id of it */
    uint64_t image_extra;     /* how many ids more the engine makes of them all */
    uint32_t experts_known;   /* routed experts are stored for so many of them, from the first on */
    uint32_t trimmed;         /* how many stored ones the template's next turn repeats: dropped */
    uint32_t max_tokens;      /* clamped to context and budgets */
    bool drops;     /* linear: this retry discards the newest checkpoint; session_drop_record
                       stands in the journal before the engine is asked */
    bool exhausted; /* budgets leave no room: no engine call; answer 200, finish_reason
                       "length", empty content, usage prompt.n + 0, and commit one
                       answer with ids.n == 0 (closes the chain; nothing else is kept) */
    enum model_audit
        audit; /* what the comparison with the whole chat's rendering showed, if made */
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

/* The same in three steps, for prompts that take long. begin finds the attach point; the plan is to
 * be released from then on. render makes the exact ids and is pure: it may run in another thread,
 * which has the plan's arena for itself meanwhile; the session may go on, or end. *ret is the
 * prompt as far as it is known then. end takes it over on the session's thread and gives the call
 * its number. `in` is the same for begin and end. */
int session_prepare_begin(struct session *s, struct arena *a, const struct session_call_input *in,
                          struct session_plan **ret, struct err *e);
int session_prepare_render(struct session_plan *p, struct model_scratch *scratch,
                           struct token_span *ret, struct err *e);
int session_prepare_end(struct session_plan *p, const struct session_call_input *in, struct err *e);

/* The conversation as it is rendered; NULL: a completion. As long as the plan. */
const struct json *session_plan_messages(const struct session_plan *p);

/* The response id of the answer that the call goes on from; absent: from none. It lives as long as
 * the session. */
struct str session_plan_parent(const struct session_plan *p);

/* About how many bytes render will go over; stops counting at `enough`. */
size_t session_prompt_bytes(const struct session_plan *p, size_t enough);

/* Writes the record of what a plan with `drops` discards. Once applied, the checkpoint is gone from
 * the history whatever becomes of the call; its tokens stay on record. */
void session_drop_record(struct session_plan *p, uint64_t now_ms, struct buf *record);

/* Gives the plan back without a trace (it is not in any trajectory; an applied drop stays); safe
 * after the session ended. NULL is fine. */
void session_release(struct session_store *st, struct session_plan *p);

/* The same for a plan that was only looked at (a token count) and never named to an engine: its
 * number is given to the next call. */
void session_release_unused(struct session_store *st, struct session_plan *p);

/* Per-token weight version span, text as the engine wrote it. */
struct session_version {
    struct str version;
    uint32_t start, end;
};

/* One sampled answer. All borrowed for the call. */
struct session_answer {
    struct token_span ids;
    const float *logprobs; /* ids.n or NULL */
    const struct session_version *versions;
    size_t n_versions;
    bool cut;                   /* did not end at a stop id of the model */
    struct str finish_reason;   /* "stop", "length", "tool_calls" */
    const struct json *message; /* assistant message, normalised (chat.h), as the client is told */
    struct str response_id;
    struct str parse_warning; /* absent when none */
    struct str odds;          /* a block of odds.h, or absent */
    struct str experts;       /* raw block or absent */
    uint32_t experts_from, experts_rows, experts_layers, experts_topk;
    uint64_t queue_us, engine_us, gateway_us;
    struct str
        logprob_basis; /* which distribution the logprobs come from; absent: none are there */
    uint32_t
        drifted_tokens;     /* of the prompt that the engine made, others than were sent; 0: none */
    uint32_t scored_tokens; /* whose logprob was asked for afterwards */
    bool cached_told;
    uint32_t cached_tokens; /* of the prompt, as the engine told; when cached_told */
    struct str told; /* what the client was told besides (opaque here), for replays; or absent */

    /* An upstream that was asked with messages: what stands in the plan's prompt was not sent. Its
     * ids count when it told its own prompt's, too; else the answer is kept as text alone and its
     * trajectories have no tokens. */
    bool upstream;
    struct token_span prompt;
    uint32_t prompt_tokens; /* as the upstream counted them */
};

/* Writes the record that commits n >= 1 answers of one plan (n > 1: siblings). Errors:
 * ERR_SESSION_ENDED, ERR_STATE_CONFLICT; then release the plan. After session_apply of that record
 * the plan is gone. */
int session_commit(struct session_plan *p, const struct session_answer *answers, size_t n,
                   uint64_t now_ms, struct buf *record, struct err *e);

/* A committed call with this body hash: its answers' response ids, messages (JSON text), finish
 * reasons and token counts (none: a call without room). ids and logprobs are borrowed until the
 * loop's next turn. NULL when there is none; with e set when it cannot be read back. */
struct session_past_call {
    uint64_t call;
    uint32_t n_answers;
    uint32_t prompt_tokens, completion_tokens;

    const struct session_past_answer {
        struct str response_id, message_json, finish_reason, told;
        struct token_span ids;
        const float *logprobs;
    } * answers;
};
const struct session_past_call *session_past(struct session *s, struct arena *a, uint64_t call,
                                             struct err *e);

/* The newest call with this body hash that a request with this Idempotency-Key (or none) may mean:
 * one with the same key, else one without a key; with no key any. False when there is none. */
bool session_find_call(const struct session *s, const uint64_t body_hash[2], struct str key,
                       uint64_t *ret_call);

#endif
