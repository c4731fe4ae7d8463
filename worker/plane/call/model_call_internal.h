/*
 * The body of struct model_call, for model_call.c (its life), running_calls.c (its start and end),
 * its steps (step_*.c, commit_answers.c) and call_listeners.c (its events). Its samples are in
 * sample.h.
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
    struct list_item item;   /* in env->running, or in the list of an ended session */
    struct list_item in_row; /* in row->calls */
    /* row of its session; NULL: the session has ended, or all listeners had the end */
    struct call_row *row;
    struct arena arena;
    struct call_input in;
    struct engine_pool *engines; /* the engines that answer: the policy's, or a different pool's */
    struct sampling *sampling;   /* in the arena */
    /* long values of the request as text, from RENDER on, in the arena */
    struct ready_texts *ready;
    uint32_t wants_top_logprobs; /* struct session_wants of the call's session */
    bool wants_support, wants_indexer;
    struct str lora;           /* the session's adapter, in the arena; absent: none */
    const struct json *format; /* response_format, before it became a grammar; NULL: none */
    struct session_call_input *call_input; /* input of the plan, in the arena, from PREPARE on */
    struct session_plan *plan;
    /* session of a text completion, which has no plan until its prompt is encoded */
    struct session *pinned;
    /* formats at the start of the call, with the thought of the prompt; in the arena */
    struct answer_formats *kinds;
    /* an engine may be asked with messages instead of ids; the fields for this: */
    bool asks_text;
    /* long members of chat_body as JSON, from RENDER on, in the arena */
    struct chat_text *upstream_texts;
    size_t n_upstream_texts;
    /* made by session_plan_signed, from RENDER on, in the arena */
    const struct json *signed_answers;
    struct engine_image *images; /* n_images images of the prompt, from RENDER on */
    size_t n_images;
    bool constrains; /* RENDER makes a grammar, if one is needed */
    struct sample *samples;
    uint32_t n_samples, n_taken; /* n_taken: samples whose answer is consumed, sample.taken */
    /* the first prompt that an upstream reported; the others must equal it */
    struct token_span told_prompt;
    /* body for engines that are asked with messages, in the arena; or NULL */
    const struct json *chat_body;
    /* n_samples answers for the record, in the arena; NULL until they are made */
    struct session_answer *answers;
    struct call_listener *listeners;
    /* n_samples answers for the listeners' end, in the arena; NULL until made */
    struct finished_answer *finished;
    struct task *task;        /* task that runs the call; NULL while the engine is asked */
    struct call_waits *waits; /* in the arena */
    bool rendered, answered;  /* the prompt is rendered; the engine calls have ended */
    bool committed;           /* the record is applied, or there will be none */
    bool head_sent, durable, failing;
    struct err undurable; /* in a fleet: why the record is not durable in time */
    bool gone;            /* the call fails because its clients have left */
    bool freed;           /* the call was freed while its task ran; the task frees the memory */
    bool ended;           /* the call's session has ended, so ended_calls.c ends the call */
    bool leaving;         /* counted in env->n_leaving */
    bool over;            /* the call has ended and only its memory is still held */
    unsigned n_held;      /* number of holders (model_call_hold) */
    bool awaits_turn;     /* --serial-calls: earlier calls of the session have not ended */
    /* linear: a concurrent call was recorded first, but --linear-conflict lets this one answer */
    bool unrecorded;
    bool dropped;             /* linear: the record of the drop is durable */
    int64_t call;             /* number in the session, -1 before prepare */
    const char *cause;        /* cause of the attachment, for the log */
    const char *outcome;      /* how the call ended, for the log and the spans; NULL before */
    struct call_trace *trace; /* NULL: no spans are made */
    struct str stands_on;     /* response id of the answer that the call continues; absent: none */
    struct err err;
    struct answer_head head;
    struct call_usage usage;
    uint32_t reused_tokens; /* tokens of the prompt that were stored before */
    uint64_t started_us;
    int64_t asked_tokens; /* max_tokens of client and session; 0: none */
    int32_t *stop_ids;    /* stop ids of the model and of the request, ascending */
    size_t n_stop_ids;
    const struct stop_tree *stops;
    size_t min_tokens;               /* min_tokens of the request; 0: none */
    const struct id_rules *id_rules; /* ids that the request allows, in the arena; NULL: all */
};

/* Runs a new call in the running task until the engines are asked or the call has ended. t may be
 * freed then. */
MAY_PAUSE void model_call_ask(struct model_call *t);

/* Takes more of the engine's answers, and records the answers if they are complete. t may be freed
 * then. */
void model_call_go_on(struct model_call *t);

/* For the call's task. Each returns -1 if the call does not continue. The first lets other tasks
 * run; the second waits for model_call_wake, which may have been called for a different reason; the
 * third does the work as task_offload does. */
MAY_PAUSE RG_MUSTCHECK int model_call_pause(struct model_call *t);
MAY_PAUSE RG_MUSTCHECK int model_call_wait(struct model_call *t);
MAY_PAUSE RG_MUSTCHECK int model_call_offload(struct model_call *t, const struct task_work *w);

/* Returns -1 if the call does not continue after a function that may have paused and returned rc.
 */
int model_call_check(struct model_call *t, int rc, const struct err *e);

void model_call_wake(struct model_call *t);

/* Ends the call without an event, because no listener is left or all have had the end. */
void model_call_free(struct model_call *t);

/* Stops counting the call for --max-inflight, because it samples no more tokens. */
void model_call_leaving(struct model_call *t);

/* Takes a call that no longer runs off all lists of calls. */
void model_call_unlist(struct model_call *t);

/* Wakes the oldest of the session's other calls, if that call waits for its turn (--serial-calls).
 * Must be called before `ended` leaves its row. */
void model_call_wake_next(const struct model_call *ended);

/* Writes the call's line of the log. */
void model_call_log_end(struct model_call *t, const char *outcome);

/* Notes in the session, and so in its record, which of its budgets (e->param) refused the call. */
void model_call_note_budget(struct model_call *t, const struct err *e);

/* Logs and counts that the answer is not recorded (--linear-conflict). */
void model_call_note_unrecorded(const struct model_call *t);

/* Logs and counts a prompt that contained a placeholder (ERR_PROMPT_LEAK). Does nothing for a
 * different error. */
void model_call_note_leak(const struct model_call *t, const struct err *e);

/* Fails the call; t is freed. If the session has ended, the error says so, whatever `e` is. */
void model_call_fail_now(struct model_call *t, const struct err *e);

/* Ends a call that has no listeners, in a later loop iteration. */
void model_call_end_gone(struct model_call *t);

/* Records whether the call has listeners. Without them another call may take its chain. */
void model_call_set_left(struct model_call *t, bool left);

/* Ends the call whose chain the plan of `by` has just taken, if there is such a call. */
void model_call_end_displaced(struct model_call *by);

/* Fails the call later, for callers (an engine's callback) that still use the call. */
void model_call_fail_later(struct model_call *t, const struct err *e);

/* Returns the call's session. Returns NULL, with t->err set, if the session has ended or never
 * existed. */
struct session *model_call_session(struct model_call *t);

/* Part of RENDER: makes the grammar of the answer, if one is needed and made by the gateway, and
 * the long values that are sent to engines (t->ready). */
int model_call_constrain(struct model_call *t, struct err *e);

/* With --serial-calls, waits for the session's earlier calls. Returns -1 if the call does not
 * continue. */
MAY_PAUSE int call_await_turn(struct model_call *t);

/* First step: checks the request and finds its position in the session. Returns -1 with t->err. The
 * steps until call_generate run before the engine is asked. */
MAY_PAUSE int call_prepare(struct model_call *t);

/* Makes the exact prompt and the grammar. A helper thread does this if they are long. */
MAY_PAUSE int call_render(struct model_call *t);

/* Gives the call its number and its token budget. */
MAY_PAUSE int call_place(struct model_call *t);

/* Records, as durably as promised, which turns a linear retry discards. */
MAY_PAUSE int call_record_drop(struct model_call *t);

/* Asks the engines. A call without space for tokens asks none: its answer is empty and ends by
 * length. */
void call_generate(struct model_call *t);

/* Renders the ids of a prompt for which an upstream reported only the number of tokens. */
MAY_PAUSE int call_render_prompt(struct model_call *t);

/* Makes t->answers. */
MAY_PAUSE int call_make_results(struct model_call *t);

/* Makes the JSON of long messages and of many tool calls, for the journal and for the session. */
MAY_PAUSE int call_make_messages(struct model_call *t);

/* Bytes of a fragment of a record. Writing one holds the loop for a twentieth of a millisecond, or
 * for several times as long on a virtual machine that must first map the pages. */
enum { CALL_FRAGMENT = 128 << 10 };

/* Last step: records the answers, and sends their end (commit_answers.c). */
MAY_PAUSE int call_commit_answers(struct model_call *t);

#endif
