/*
 * struct model_call's body, for call.c (life), step_prepare.c, step_generate.c and step_commit.c
 * (the steps) and call_listeners.c (who hears of them).
 */
#ifndef RG_CALL_MODEL_CALL_INTERNAL_H
#define RG_CALL_MODEL_CALL_INTERNAL_H

#include "worker/call/model_call.h"
#include "worker/call/sampled_answer.h"
#include "worker/call/sampling_merge.h"
#include "worker/call/work.h"
#include "worker/engine/engine.h"

enum call_step {

#define X(name, function) STEP_AT_##name,
#include "worker/call/call_steps.def"
#undef X
    STEP_COUNT
};

enum step_result { STEP_NEXT, STEP_WAIT, STEP_FAILED };

/* One of the n engine calls of a call and what it gave. */
struct sample {
    struct model_call *model_call;
    struct engine_call *call; /* NULL: not running */
    struct sampled_answer answer;
    bool decoding; /* answer is initialised */
    bool done;
    enum engine_finish finish;
    int32_t *ids; /* in the call's arena, from done on */
    size_t n_ids;
    float *logprobs; /* n_ids, or NULL */
    struct session_version *versions;
    size_t n_versions;
    struct str experts, odds, stop_text;
    uint32_t experts_from, experts_rows;
    bool unbudgeted;  /* the engine was not given max_thinking_tokens */
    bool has_support; /* the engine told the sampling support of every token */
    uint64_t queue_us, engine_us;
    enum logprob_basis basis;
    uint32_t scored;
    int64_t cached_tokens;    /* -1: the engine did not tell */
    struct token_logprob *lp; /* when the client asked for them */
    size_t n_lp, cap_lp, lp_sent;
    struct str response_id;
    struct finished_answer out;

    /* of an upstream that was asked with messages */
    bool upstream, filtered;
    struct token_span prompt_ids;
    uint32_t prompt_tokens, completion_tokens;
};

struct model_call {
    struct call_env *env;
    struct list_item item; /* of env->running */
    struct arena arena;
    struct call_input in;
    enum call_step step;
    struct sampling sampling;
    struct session_wants wants; /* the session's */
    struct str lora;            /* the session's adapter, in the arena; absent: none */
    const struct json *format;  /* response_format, before it became a grammar; NULL: none */
    enum thought_state thought; /* of the prompt */
    struct session_call_input call_input; /* of the plan */
    struct session_plan *plan;
    struct long_work work;       /* the step RENDER */
    struct session *pinned;      /* of a text completion, which has no plan until it is encoded */
    struct answer_formats kinds; /* as they were when the call came */
    struct engine_image *images; /* of the prompt, n_images of them, from RENDER on */
    size_t n_images;
    bool constrains; /* RENDER makes a grammar, where one is needed */
    struct sample *samples;
    uint32_t n_samples, n_done;
    struct call_listener *listeners;
    struct loop_timer rejoin;
    struct loop_task fail_task;
    bool head_sent, durable, failing;
    bool dropping, dropped; /* linear: the drop's record is written; is durable */
    int64_t call;           /* number in the session, -1 before prepare */
    const char *cause;      /* of the attachment, for the log */
    struct str stands_on;   /* response id of the answer that it goes on from; absent: none */
    struct err err;
    struct answer_head head;
    struct call_usage usage;
    uint32_t reused_tokens; /* of the prompt: stored before */
    uint64_t started_us;
    int64_t asked_tokens; /* max_tokens of client and session, 0: none */
    int32_t *stop_ids;    /* model's and request's, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops;
};

/* Goes on from t->step until a step waits, fails or the last is done; t may be gone afterwards. */
void model_call_advance(struct model_call *t);

/* All its engine calls have ended: goes on to the commit if somebody waits for it. */
void model_call_answered(struct model_call *t);

/* Fails; t is gone afterwards. */
void model_call_fail_now(struct model_call *t, const struct err *e);

/* Fails from a place where the call must not go away at once (an engine's callback). */
void model_call_fail_later(struct model_call *t, const struct err *e);

/* The steps; see call_steps.def. */
#define X(name, function) enum step_result step_##function(struct model_call *t);
#include "worker/call/call_steps.def"
#undef X

/* step_prepare.c, for token counts, too. Whether the prompt is text without chat. */
bool prepare_is_text(const struct chat_request *req);

/* The ids of such a prompt, in the arena. */
int prepare_encode(struct encoder *encoder, struct arena *a, const struct chat_request *req,
                   struct token_span *ret, struct err *e);

/* What the session is asked with: all but those ids. */
int prepare_input(struct call_env *env, const struct call_input *in,
                  const struct sampling *sampling, struct session_call_input *ret, struct err *e);

/* call_watch.c: tells env->watch, if somebody looks. */
void call_watch_call(const struct model_call *t, bool ended);
void call_watch_delta(const struct sample *r, const struct engine_delta *d);

/* Room for more logprobs of the client's. */
void sample_lp_reserve(struct model_call *t, struct sample *r, size_t more);

/* The fan-out: an answer_sink whose ctx is the call. */
extern const struct answer_sink call_listeners_sink;

void call_listeners_add(struct model_call *t, struct call_listener *l);
void call_listeners_repeat(struct model_call *t, struct call_listener *l);
void call_listeners_drop(struct model_call *t, struct call_listener *l);

/* Ends all listeners with failed / finish; they are detached first. */
void call_listeners_fail(struct model_call *t, const struct err *e);
void call_listeners_finish(struct model_call *t, const struct finished_answer *answers, size_t n);

#endif
