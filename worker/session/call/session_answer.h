/*
 * What a call adds to its session: session_commit writes the record of one plan's answers, after
 * the fragments of session_bulk_record when they are long.
 */
#ifndef RG_SESSION_SESSION_ANSWER_H
#define RG_SESSION_SESSION_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/session/store/session.h"
#include "worker/text/request/token_rows.h"
#include "worker/text/tokens/span.h"

struct buf;
struct err;
struct json;
struct session;
struct session_plan;

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
    const struct json *message; /* assistant message, normalised (chat.h), as the client gets it */
    struct str
        message_text; /* its JSON, the plan's, when it is long and was made ready; else absent
                       */
    struct str response_id;
    struct str parse_warning; /* absent when none */
    struct str odds;          /* a block of odds.h, or absent */
    struct token_rows rows[ROWS_KINDS];
    uint64_t queue_us, engine_us, gateway_us;
    struct str logprob_basis; /* distribution of the logprobs; absent: there are none */
    struct str
        asked_basis; /* the one that the engine was asked for; absent: it has no such field */
    uint32_t drifted_tokens; /* tokens of the engine's own, different prompt; 0: none */
    uint32_t scored_tokens;  /* whose logprob was asked for afterwards */
    bool cached_told;
    uint32_t cached_tokens; /* tokens of the prompt that the engine had cached, as it reports; valid
                               if cached_told */
    struct str told; /* further data that the client got (opaque here), for replays; or absent */

    /* An upstream that was asked with messages: what stands in the plan's prompt was not sent. Its
     * ids count when it told its own prompt's, too, one for all answers, and the policy can place
     * them; else the answers are kept as text alone and their trajectories have no tokens. */
    bool upstream;
    struct token_span prompt;
    uint32_t prompt_tokens; /* number by the upstream's count */
};

/* First of all: of an upstream's answers that are kept as text alone, ids and what belongs to them
 * are dropped. */
void session_settle_answers(struct session_plan *p, struct session_answer *answers, size_t n);

/* Then, in a turn each while it is true: reads back, a part at a time, what the call's context is
 * compared with when it is recorded (plan_shared_run). What cannot be read is not shared. */
bool session_compares_context(struct session_plan *p);

/* What it takes to read, hash and compare those messages of the answers that are not short, in
 * bytes of text; each tool call is as much as some. 0: so little that it is done with their
 * records, which are of max_bytes. */
size_t session_long_messages(const struct session_answer *answers, size_t n, size_t max_bytes);

/* Once, for a helper where there are such messages: makes their JSON (message_text), and what the
 * forest takes over of them when they are applied. Touches besides only what is the plan's own, and
 * reads the messages. Others, and those that a cancelled job has no time for, are written and read
 * with their record. */
void session_make_messages(struct session_plan *p, struct session_answer *answers, size_t n);

/* Bytes of numbers and long texts that the record of these answers has. */
size_t session_bulk_bytes(const struct session_plan *p, const struct session_answer *answers,
                          size_t n);

/* More of them than max_bytes are recorded before the commit: writes the next fragment, of so many
 * bytes at most, to be journaled and applied. Returns false if there is none (left), or
 * session_commit would refuse the answers; it comes next, with the same answers. max_bytes is the
 * same in all calls. Texts and long rows that were written may read as zeros from then on. Here and
 * in session_commit answers are settled (session_settle_answers) that are not yet. */
bool session_bulk_record(struct session_plan *p, struct session_answer *answers, size_t n,
                         size_t max_bytes, uint64_t now_ms, struct buf *record);

/* Writes the record that commits n >= 1 answers of one plan (n > 1: siblings). Errors:
 * ERR_SESSION_ENDED, ERR_STATE_CONFLICT; then release the plan. After session_apply of that record
 * the plan is gone. */
int session_commit(struct session_plan *p, struct session_answer *answers, size_t n,
                   uint64_t now_ms, struct buf *record, struct err *e);

/* Why the answer stands where it stands, as its commit found; `otherwise` for unknown ids. */
enum session_cause session_response_cause(const struct session *s, struct str response_id,
                                          enum session_cause otherwise);

#endif
