/*
 * struct model_call's body, for model_call.c (life), running_calls.c (who starts and ends it),
 * what it does in turn (step_*.c, commit_answers.c) and call_listeners.c (who hears of them). Its
 * samples are in sample.h.
 */
#ifndef RG_CALL_MODEL_CALL_INTERNAL_H
#define RG_CALL_MODEL_CALL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "worker/plane/call/model_call.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/tokens/span.h"

struct answer_formats;
struct call_env;
struct call_row;
struct call_trace;
struct call_waits;
struct chat_text;
struct engine_image;
struct engine_pool;
struct json;
struct ready_texts;
struct sample;
struct sampling;
struct session;
struct session_answer;
struct session_call_input;
struct session_plan;
struct stop_tree;
struct task;
struct task_work;

struct model_call {
    struct call_env *env;
    struct list_item item;   /* of env->running, or of an ended session */
    struct list_item in_row; /* of row->calls */
    struct call_row *row;    /* its session's; NULL: the session has ended, or all have heard */
    struct arena arena;
    struct call_input in;
    struct engine_pool *engines; /* that answer: the policy's, or another pool's */
    struct sampling *sampling;   /* in the arena */
    struct ready_texts *ready;   /* long values of it as text, from RENDER on, in the arena */
    uint32_t wants_top_logprobs; /* struct session_wants of its session */
    bool wants_support, wants_indexer;
    struct str lora;           /* the session's adapter, in the arena; absent: none */
    const struct json *format; /* response_format, before it became a grammar; NULL: none */
    struct session_call_input *call_input; /* of the plan, in the arena, from PREPARE on */
    struct session_plan *plan;
    struct session *pinned;       /* of a text completion, which has no plan until it is encoded */
    struct answer_formats *kinds; /* as they were when the call came; the thought is the prompt's.
                                     In the arena */
    bool asks_text;               /* an engine may be asked with messages: */
    struct chat_text *upstream_texts; /* the long members of chat_body as JSON, from RENDER on, in
                                         the arena */
    size_t n_upstream_texts;
    const struct json *signed_answers; /* session_plan_signed, from RENDER on, in the arena */
    struct engine_image *images;       /* of the prompt, n_images of them, from RENDER on */
    size_t n_images;
    bool constrains; /* RENDER makes a grammar, where one is needed */
    struct sample *samples;
    uint32_t n_samples, n_done;
    struct token_span told_prompt; /* the first one's that an upstream told; of others the same */
    const struct json *chat_body; /* for engines that are asked with messages, or NULL; in the arena
                                   */
    struct session_answer *answers; /* n_samples, for the record, in the arena; NULL before */
    struct call_listener *listeners;
    struct finished_answer *finished; /* what they get at the end, in the arena; NULL before */
    struct task *task;                /* that runs it; NULL: the engine is asked */
    struct call_waits *waits;         /* in the arena */
    bool rendered, answered;          /* it has its prompt; its engine calls have ended */
    bool committed;                   /* its record is applied, or it will have none */
    bool head_sent, durable, failing;
    bool gone;                /* it fails because its clients have left */
    bool freed;               /* while its task ran, which frees the memory */
    bool ended;               /* so has its session: ended_calls.c */
    bool leaving;             /* counted in env->n_leaving */
    bool over;                /* ended; only its memory is still held */
    unsigned n_held;          /* by whom: model_call_hold */
    bool awaits_turn;         /* --serial-calls: earlier calls of the session have not ended */
    bool unrecorded;          /* linear: a concurrent call was recorded first, and --linear-conflict
                                 answers this one all the same */
    bool dropped;             /* linear: the drop's record is durable */
    int64_t call;             /* number in the session, -1 before prepare */
    const char *cause;        /* of the attachment, for the log */
    const char *outcome;      /* for the log and the spans; from its end on */
    struct call_trace *trace; /* NULL: no spans are made */
    struct str stands_on;     /* response id of the answer that it goes on from; absent: none */
    struct err err;
    struct answer_head head;
    struct call_usage usage;
    uint32_t reused_tokens; /* of the prompt: stored before */
    uint64_t started_us;
    int64_t asked_tokens; /* max_tokens of client and session, 0: none */
    int32_t *stop_ids;    /* model's and request's, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops;
    size_t min_tokens;               /* of the request; 0: none */
    const struct id_rules *id_rules; /* which ids the request allows; NULL: all. In the arena */
};

/* Runs a new call in the running task until engines are asked, or it has ended: t may be gone. */
MAY_PAUSE void model_call_ask(struct model_call *t);

/* More of the engine's answers has come: takes it, and records the answers if that was all. t
 * may be gone then. */
void model_call_go_on(struct model_call *t);

/* For the call's task: lets others run; waits for model_call_wake, which may have come for another
 * reason; does the work as work_offload does. -1: the call does not go on. */
MAY_PAUSE RG_MUSTCHECK int model_call_pause(struct model_call *t);
MAY_PAUSE RG_MUSTCHECK int model_call_wait(struct model_call *t);
MAY_PAUSE RG_MUSTCHECK int model_call_offload(struct model_call *t, const struct task_work *w);

void model_call_wake(struct model_call *t);

/* Ends it without a word: nobody listens any more, or all have heard the end. */
void model_call_free(struct model_call *t);

/* From now on it counts no more for --max-inflight: it makes nothing any more. */
void model_call_leaving(struct model_call *t);

/* It runs no more: takes it off all lists of calls. */
void model_call_unlist(struct model_call *t);

/* The oldest of the other calls of its session may run, if it waits for its turn (--serial-calls).
 * Call it before the call leaves its row. */
void model_call_wake_next(const struct model_call *ended);

/* Writes the call's line of the log. */
void model_call_log_end(struct model_call *t, const char *outcome);

/* Notes in the session, and so on record, which of its budgets (e->param) refused the call. */
void model_call_note_budget(struct model_call *t, const struct err *e);

/* Logs and counts that nothing records the answer (--linear-conflict). */
void model_call_note_unrecorded(const struct model_call *t);

/* What stands in for something was in the prompt (ERR_PROMPT_LEAK): it is said and counted. Does
 * nothing for another error. */
void model_call_note_leak(const struct model_call *t, const struct err *e);

/* Fails; t is gone afterwards. Its session's end stays the reason, if it has ended. */
void model_call_fail_now(struct model_call *t, const struct err *e);

/* Nobody wants it any more: no request finds it, and another call may take its place in the
 * session. Its engine requests are to be aborted then. */
void model_call_abandon(struct model_call *t);

/* Ends a call that has no listeners, in a later loop iteration. */
void model_call_end_gone(struct model_call *t);

/* Records whether the call has listeners. Without them another call may take its chain. */
void model_call_set_left(struct model_call *t, bool left);

/* Ends the call whose chain the plan of `by` has just taken, if there is one. */
void model_call_end_displaced(struct model_call *by);

/* Fails from a place where the call must not go away at once (an engine's callback). */
void model_call_fail_later(struct model_call *t, const struct err *e);

/* Its session. NULL and t->err: it has ended, or was never there. */
struct session *model_call_session(struct model_call *t);

/* Part of RENDER: makes the grammar that the answer is held to, where one is needed and made here,
 * and what is long of what engines are sent (t->ready). */
int model_call_constrain(struct model_call *t, struct err *e);

/* With --serial-calls, waits for the session's earlier calls. -1: the call does not go on. */
MAY_PAUSE int call_await_turn(struct model_call *t);

/* Before the engine; -1 and t->err. Checks the request and finds its position. */
MAY_PAUSE int call_prepare(struct model_call *t);

/* Makes the exact prompt and the grammar, in a helper thread if they are long. */
MAY_PAUSE int call_render(struct model_call *t);

/* Gives the call its number and its budget of tokens. */
MAY_PAUSE int call_place(struct model_call *t);

/* Records what a linear retry discards, as durable as promised. */
MAY_PAUSE int call_record_drop(struct model_call *t);

/* Asks the engines. A call without room asks none: its answer is empty and ends by length. */
void call_generate(struct model_call *t);

/* Renders the ids of a prompt of which an upstream told their number alone. */
MAY_PAUSE int call_render_prompt(struct model_call *t);

/* Makes t->answers. */
MAY_PAUSE int call_make_results(struct model_call *t);

/* Long messages of answers, and many tool calls, become the JSON that is journaled and what the
 * session keeps. */
MAY_PAUSE int call_make_messages(struct model_call *t);

/* Bytes of a fragment of a record. One write of it holds the loop for a twentieth of a millisecond,
 * on a virtual machine that has yet to find the pages for several times as long. */
enum { CALL_FRAGMENT = 128 << 10 };

/* After the engine: records the answers, and sends their end (commit_answers.c). */
MAY_PAUSE int call_commit_answers(struct model_call *t);

#endif
