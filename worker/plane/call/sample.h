/*
 * struct sample: one of the n answers of a model call while the engine makes it.
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

struct engine_events;
struct engine_result;
struct engine_top;
struct model_call;
struct sampled_answer;
struct session_answer;
struct session_version;

/* One of the n engine calls of a call and what it gave. */
struct sample {
    struct model_call *model_call;
    struct engine_call *call;      /* NULL: not running */
    struct sampled_answer *answer; /* in the call's arena, from sample_begin on */
    bool done;                     /* the engine has returned all, */
    bool taken;                    /* which has been consumed: text, logprobs, calls */
    enum engine_finish finish;
    struct str replica;  /* name of the engine that answered */
    bool speculates;     /* a step of the engine may sample several tokens */
    bool takes_stop_ids; /* the engine was asked with stop ids */
    size_t resumed_at;   /* ids before the last piece of an answer that was broken off; 0: whole */
    int32_t *ids;        /* in the call's arena, from done on */
    size_t n_ids;
    float *logprobs; /* n_ids, or NULL */
    struct session_version *versions;
    size_t n_versions;
    struct token_rows rows[ROWS_KINDS];
    char *bulk[ROWS_KINDS]; /* the memory of their blocks, own, or NULL */
    char *told;             /* memory of its other results, own, or NULL */
    struct str odds, stop_text;
    char *odds_own; /* where odds lies, own, or NULL */

    struct { /* where alternatives belong in odds */
        int32_t *ids;
        float *logprobs;
        size_t at; /* tokens that have theirs */
        uint32_t n_top;
    } kept;

    bool unbudgeted;  /* the engine was not given max_thinking_tokens */
    bool has_support; /* the engine returned the sampling support of every token */
    bool recomputed;  /* engine_result.recomputed */
    bool indexer_large;
    uint64_t queue_us, engine_us;
    enum logprob_basis basis,
        asked; /* logprob basis of the engine's result; basis that was asked for */
    uint32_t scored, drifted;
    int64_t cached_tokens;        /* -1: the engine did not report it */
    int32_t end_id;               /* by which the engine ended the turn, -1: none; from done on */
    const struct engine_top *top; /* n_top a token, as long as the end of a long answer is taken */
    uint32_t n_top;
    struct engine_top *told_top; /* alternatives from the engine, n_told_top a token, own; NULL:
                                    none, or not kept */
    uint32_t n_told_top;
    struct token_logprob *lp; /* when the client asked for them */
    size_t n_lp, cap_lp, lp_sent;
    size_t
        n_rows; /* rows of an upstream's whole answer: all that lp has, of which n_lp were sent */
    struct str response_id;
    struct finished_answer out;

    /* of an upstream that was asked with messages */
    bool upstream, filtered;
    struct token_span prompt_ids;
    uint32_t prompt_tokens, completion_tokens;
};

/* The text side begins: ids become text, calls and thought, as the request allows. */
void sample_begin(struct model_call *t, struct sample *r, uint32_t index);

/* Begins the block of odds that the session keeps, when the engine has returned all. */
void sample_begin_odds(struct model_call *t, struct sample *r, const struct engine_result *res);

/* Keeps more of the alternatives that belong into it. Returns the work it took, in alternatives:
 * about `most`; 0: nothing is missing. */
size_t sample_keep_odds(struct sample *r, size_t most);

/* Keeps the engine's alternatives beyond its callback: r->told_top. */
void sample_hold_top(struct sample *r, const struct engine_result *res);

/* Consumes the engine's results at the end that were not consumed before, perhaps over some loop
 * iterations. When all answers are consumed, the call continues. r->ids and r->logprobs are set. */
void sample_consume_end(struct sample *r, const struct engine_result *res);

/* Takes what is left of long answers that are there. -1: the call does not go on. */
MAY_PAUSE RG_MUSTCHECK int sample_consume_next(struct model_call *t);

/* Drops all tokens from the n-th on, with what belongs to them. Once the whole answer is taken. */
void sample_cut(struct sample *r, size_t n);

/* Marks an upstream's answer as consumed; only logprobs are still to be sent. */
void sample_taken(struct sample *r);

/* Its engine call is cancelled, if it runs, and its answer let go; once more does nothing. */
void sample_end(struct sample *r);

/* Sends the listeners the logprobs that they have not received. */
void sample_send_logprobs(struct model_call *t, struct sample *r);

/* Takes an engine call's events; ctx is the sample. */
extern const struct engine_events sample_events;

/* One sample in both forms: for the listeners (r->out) and for the record (*ret, borrowed from the
 * sample). Its tokens are added to the call's usage. */
void sample_result(struct model_call *t, struct sample *r, struct session_answer *ret);

/* Appends and sends the logprobs of ids, if the client asked for them. */
void sample_logprobs(struct model_call *t, struct sample *r, struct token_span ids,
                     const float *logprobs, const struct engine_top *top, uint32_t n_top);

/* How many of the n logprobs lp come to about `most`, alternatives counted; one at least. */
size_t sample_lp_within(const struct token_logprob *lp, size_t n, size_t most);

/* Room for more logprobs of the client's. */
void sample_lp_reserve(struct model_call *t, struct sample *r, size_t more);

#endif
