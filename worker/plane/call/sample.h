/*
 * struct sample: one of the n answers of a model call while an engine samples it.
 */
#ifndef RG_CALL_SAMPLE_H
#define RG_CALL_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/engine/pool/engine.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/token_rows.h"
#include "worker/text/tokens/span.h"

struct engine_result;
struct model_call;
struct sampled_answer;
struct session_answer;
struct session_version;

/* One of the n engine calls of a model call, and its results. */
struct sample {
    struct model_call *model_call;
    struct engine_call *call;      /* NULL: no engine call runs */
    struct sampled_answer *answer; /* in the call's arena, from sample_begin on */
    bool done;                     /* the engine has returned all results, */
    bool taken;                    /* which have been consumed: text, logprobs, tool calls */
    enum engine_finish finish;
    struct str replica;  /* name of the engine that answered */
    bool speculates;     /* the engine may sample several tokens in one step */
    bool takes_stop_ids; /* the engine was asked with stop ids */
    /* number of ids before the last piece of an answer that was interrupted; 0: not interrupted */
    size_t resumed_at;
    int32_t *ids; /* in the call's arena, from done on */
    size_t n_ids;
    float *logprobs; /* n_ids, or NULL */
    struct session_version *versions;
    size_t n_versions;
    struct token_rows rows[ROWS_KINDS];
    char *bulk[ROWS_KINDS]; /* memory of the rows' blocks, own, or NULL */
    char *replay_text;      /* memory of session_answer.told, own, or NULL */
    struct str odds, stop_text;
    char *odds_own; /* memory of the odds, own, or NULL */

    struct { /* how the alternatives are placed in the odds */
        int32_t *ids;
        float *logprobs;
        size_t at; /* tokens whose alternatives were placed */
        uint32_t n_top;
    } kept;

    bool unbudgeted;  /* the engine was not given max_thinking_tokens */
    bool has_support; /* the engine returned the sampling support of every token */
    bool recomputed;  /* engine_result.recomputed */
    bool indexer_large;
    uint64_t queue_us, engine_us;
    enum logprob_basis basis,
        asked; /* logprob basis of the engine's result, and the basis that was requested */
    uint32_t scored, drifted;
    int64_t cached_tokens; /* -1: the engine did not report it */
    /* id by which the engine ended the turn, -1: none; from done on */
    int32_t end_id;
    /* n_top alternatives a token, until the end of a long answer is consumed */
    const struct engine_top *top;
    uint32_t n_top;
    /* alternatives from the engine, n_told_top a token, own; NULL: none, or not kept */
    struct engine_top *told_top;
    uint32_t n_told_top;
    struct token_logprob *lp; /* logprobs for the client, if it asked for them */
    size_t n_lp, cap_lp, lp_sent;
    size_t n_rows; /* rows of an upstream's complete answer: all that lp has, of which n_lp were
                      sent */
    struct str response_id;
    struct finished_answer out;

    /* the answer is from an upstream that was asked with messages */
    bool upstream, filtered;
    struct token_span prompt_ids;
    uint32_t prompt_tokens, completion_tokens;
};

/* Starts converting a sample's ids to text, tool calls and thought, as the request allows. */
void sample_begin(struct model_call *t, struct sample *r, uint32_t index);

/* Starts the block of odds that the session keeps, after the engine has returned all. */
void sample_begin_odds(struct model_call *t, struct sample *r, const struct engine_result *res);

/* Places more alternatives in the odds. Returns the work done, in alternatives: about `most`; 0 if
 * nothing is missing. */
size_t sample_keep_odds(struct sample *r, size_t most);

/* Copies the engine's alternatives to r->told_top, so that they outlive the engine's callback. */
void sample_hold_top(struct sample *r, const struct engine_result *res);

/* Consumes the rest of the engine's results at the end, perhaps over several loop iterations. When
 * all answers are consumed, the call continues. r->ids and r->logprobs must be set. */
void sample_consume_end(struct sample *r, const struct engine_result *res);

/* Consumes the rest of long answers. Returns -1 if the call does not continue. */
MAY_PAUSE RG_MUSTCHECK int sample_consume_next(struct model_call *t);

/* Drops all tokens from the n-th on, and their data. The whole answer must have been consumed. */
void sample_cut(struct sample *r, size_t n);

/* Marks an upstream's answer as consumed. Only logprobs are still to be sent. */
void sample_taken(struct sample *r);

/* Cancels the sample's engine call, if it runs, and frees its answer. A second call does
 * nothing. */
void sample_end(struct sample *r);

/* Sends the listeners the logprobs that they have not received. */
void sample_send_logprobs(struct model_call *t, struct sample *r);

/* Takes an engine call's events; ctx is the sample. */
extern const struct engine_events sample_events;

/* Makes a sample's two results: r->out for the listeners and *ret (borrowed from the sample) for
 * the record. Adds its tokens to the call's usage. */
void sample_result(struct model_call *t, struct sample *r, struct session_answer *ret);

/* Appends and sends the logprobs of ids, if the client asked for them. */
void sample_logprobs(struct model_call *t, struct sample *r, struct token_span ids,
                     const float *logprobs, const struct engine_top *top, uint32_t n_top);

/* Returns how many of the n logprobs lp amount to about `most`, with their alternatives counted; at
 * least 1. */
size_t sample_lp_within(const struct token_logprob *lp, size_t n, size_t most);

/* Makes space for more of the client's logprobs. */
void sample_lp_reserve(struct model_call *t, struct sample *r, size_t more);

#endif
