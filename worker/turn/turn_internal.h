/*
 * struct turn's body, for turn.c (life), prepare.c, generate.c and commit.c (the steps) and
 * listeners.c (who hears of them).
 */
#ifndef RG_TURN_TURN_INTERNAL_H
#define RG_TURN_TURN_INTERNAL_H

#include "worker/turn/answer.h"
#include "worker/turn/merge.h"
#include "worker/turn/turn.h"
#include "worker/turn/work.h"

enum turn_step {

#define X(name, function) STEP_AT_##name,
#include "worker/turn/turn_steps.def"
#undef X
    STEP_COUNT
};

enum step_result { STEP_NEXT, STEP_WAIT, STEP_FAILED };

/* One of the n engine calls of a turn and what it gave. */
struct turn_run {
    struct turn *turn;
    struct engine_call *call; /* NULL: not running */
    struct answer answer;
    bool decoding; /* answer is initialised */
    bool done;
    enum engine_finish finish;
    int32_t *ids; /* in the turn's arena, from done on */
    size_t n_ids;
    float *logprobs; /* n_ids, or NULL */
    struct session_version *versions;
    size_t n_versions;
    struct str experts, stop_text;
    uint32_t experts_from, experts_rows;
    uint64_t queue_us, engine_us;
    enum logprob_basis basis;
    uint32_t scored;
    int64_t cached_tokens;   /* -1: the engine did not tell */
    struct turn_logprob *lp; /* when the client asked for them */
    size_t n_lp, cap_lp, lp_sent;
    struct str response_id;
    struct turn_answer out;

    /* of an upstream that was asked with messages */
    bool upstream, filtered;
    struct token_span prompt_ids;
    uint32_t prompt_tokens, completion_tokens;
};

struct turn {
    struct turn_env *env;
    struct turn *next, *prev; /* env->running */
    struct arena arena;
    struct turn_input in;
    enum turn_step step;
    struct sampling sampling;
    const struct json *format;  /* response_format, before it became a grammar; NULL: none */
    enum thought_state thought; /* of the prompt */
    struct session_call_input call_input; /* of the plan */
    struct session_plan *plan;
    struct long_work work;    /* the step RENDER */
    struct session *pinned;   /* of a text completion, which has no plan until it is encoded */
    struct merge_model kinds; /* as they were when the call came */
    bool constrains;          /* RENDER makes a grammar, where one is needed */
    struct turn_run *runs;
    uint32_t n_runs, n_done;
    struct turn_listener *listeners;
    struct loop_timer rejoin;
    struct loop_task fail_task;
    bool head_sent, durable, failing;
    bool dropping, dropped; /* linear: the drop's record is written; is durable */
    int64_t call;           /* number in the session, -1 before prepare */
    const char *cause;      /* of the attachment, for the log */
    struct err err;
    struct turn_head head;
    struct turn_usage usage;
    uint32_t reused_tokens; /* of the prompt: stored before */
    uint64_t started_us;
    int64_t asked_tokens; /* max_tokens of client and session, 0: none */
    int32_t *stop_ids;    /* model's and request's, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops;
};

/* Goes on from t->step until a step waits, fails or the last is done; t may be gone afterwards. */
void turn_run(struct turn *t);

/* All its engine calls have ended: goes on to the commit if somebody waits for it. */
void turn_answered(struct turn *t);

/* Fails; t is gone afterwards. */
void turn_fail_now(struct turn *t, const struct err *e);

/* Fails from a place where the turn must not go away at once (an engine's callback). */
void turn_fail_later(struct turn *t, const struct err *e);

/* The steps; see turn_steps.def. */
#define X(name, function) enum step_result step_##function(struct turn *t);
#include "worker/turn/turn_steps.def"
#undef X

/* prepare.c, for token counts, too. Whether the prompt is text without chat. */
bool prepare_is_text(const struct chat_request *req);

/* The ids of such a prompt, in the arena. */
int prepare_encode(struct encoder *encoder, struct arena *a, const struct chat_request *req,
                   struct token_span *ret, struct err *e);

/* What the session is asked with: all but those ids. */
int prepare_input(struct turn_env *env, const struct turn_input *in,
                  const struct sampling *sampling, struct session_call_input *ret, struct err *e);

/* Room for more logprobs of the client's. */
void run_lp_reserve(struct turn *t, struct turn_run *r, size_t more);

/* The fan-out: a turn_sink whose ctx is the turn. */
extern const struct turn_sink listeners_sink;

void listeners_add(struct turn *t, struct turn_listener *l);
void listeners_repeat(struct turn *t, struct turn_listener *l);
void listeners_drop(struct turn *t, struct turn_listener *l);

/* Ends all listeners with failed / finish; they are detached first. */
void listeners_fail(struct turn *t, const struct err *e);
void listeners_finish(struct turn *t, const struct turn_answer *answers, size_t n);

#endif
