/*
 * What a call adds to its session: session_commit_record writes the record of one plan's answers.
 * If they are long, session_bulk_record writes fragments before.
 */
#ifndef RG_SESSION_SESSION_ANSWER_H
#define RG_SESSION_SESSION_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/session/store/session.h"
#include "worker/text/request/token_rows.h"
#include "worker/text/tokens/span.h"

struct buf;
struct err;
struct json;
struct session;
struct session_plan;

/* Weight version of a span of tokens, as text from the engine. */
struct session_version {
    struct str version;
    uint32_t start, end;
};

/* One sampled answer. All members are borrowed for the call. */
struct session_answer {
    struct token_span ids;
    const float *logprobs; /* ids.n logprobs, or NULL */
    const struct session_version *versions;
    size_t n_versions;
    bool cut;                   /* the answer did not end at a stop id of the model */
    struct str finish_reason;   /* "stop", "length", "tool_calls" */
    const struct json *message; /* assistant message, normalised (chat.h), as the client gets it */
    struct str message_text;    /* JSON of the message, the plan's, if it is long and was prepared;
                                   else absent */
    struct str response_id;
    struct str parse_warning; /* absent: none */
    struct str odds;          /* a block of odds.h, or absent */
    struct token_rows rows[ROWS_KINDS];
    uint64_t queue_us, engine_us, gateway_us;
    struct str logprob_basis; /* distribution of the logprobs; absent: no logprobs */
    struct str
        asked_basis; /* distribution that the engine was asked for; absent: it has no such field */
    uint32_t drifted_tokens; /* number of tokens of the engine's own, different prompt; 0: none */
    uint32_t scored_tokens;  /* number of tokens whose logprobs were requested afterwards */
    bool cached_told;
    /* tokens of the prompt that the engine had cached, as it reports; valid if cached_told */
    uint32_t cached_tokens;
    struct str told; /* further data that the client got, for replays; or absent. Only its stop
                        string is read here (checkpoint_stop) */

    /* The answer is from an upstream that was asked with messages, so the ids of the plan's prompt
     * were not sent. The answers' ids are kept if the upstream also returned its prompt's ids, the
     * same for all answers, and the policy can place them. Otherwise the answers are kept only as
     * text, and their trajectories have no tokens. */
    bool upstream;
    struct token_span prompt;
    uint32_t prompt_tokens; /* tokens of the prompt by the upstream's count */
};

/* First of these functions: drops the ids, and everything that depends on them, of an upstream's
 * answers that are kept only as text. */
void session_settle_answers(struct session_plan *p, struct session_answer *answers, size_t n);

/* Reads back the context with which the call's is compared when it is recorded (plan_shared_run),
 * and keeps it in memory until then. Context that cannot be read is not shared. Returns -1 with
 * ERR_CANCELLED if the task was cancelled. */
MAY_PAUSE RG_MUSTCHECK int session_read_compared(struct session_plan *p, struct err *e);

/* Estimates the work of reading, hashing and comparing those messages of the answers that are not
 * short, in bytes of text, with a price for each tool call. Returns 0 if the work is small enough
 * to be done with their records, which have at most max_bytes. */
size_t session_long_messages(const struct session_answer *answers, size_t n, size_t max_bytes);

/* Called once, in a helper if there are such messages: makes their JSON (message_text), and what
 * the forest takes over when they are applied. Otherwise uses only the plan's own data, and reads
 * the messages. Messages for which a cancelled job has no time are made with their record. */
void session_make_messages(struct session_plan *p, struct session_answer *answers, size_t n);

/* Returns the bytes of numbers and long texts in the record of these answers. */
size_t session_bulk_bytes(const struct session_plan *p, const struct session_answer *answers,
                          size_t n);

/* Writes the next fragment, of at most max_bytes, of the answers' long values if they have more
 * than max_bytes, or rows that the second copy lacks; the caller journals and applies it before the
 * commit. Returns false if none is left, or if session_commit_record would refuse the answers:
 * session_commit_record comes next, with the same answers. max_bytes must be the same in all calls.
 * Texts and long rows that were written may read as zeros from then on. Like session_commit_record,
 * first settles answers that are not settled (session_settle_answers). */
bool session_bulk_record(struct session_plan *p, struct session_answer *answers, size_t n,
                         size_t max_bytes, uint64_t now_ms, struct buf *record);

/* Writes the record that commits n >= 1 answers of one plan (n > 1: siblings). Returns -1 with
 * ERR_SESSION_ENDED or ERR_STATE_CONFLICT; the caller then releases the plan. The session_apply of
 * that record frees the plan. */
int session_commit_record(struct session_plan *p, struct session_answer *answers, size_t n,
                          uint64_t now_ms, struct buf *record, struct err *e);

/* Returns the cause of the answer's position, as its commit found it. Returns `otherwise` for
 * unknown ids. */
enum session_cause session_response_cause(const struct session *s, struct str response_id,
                                          enum session_cause otherwise);

#endif
