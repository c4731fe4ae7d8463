/*
 * struct api_call: one HTTP request of the data plane while it is answered: a listener of a model
 * call and the dialect's writer. It lives until its exchange is over and its tasks have ended; the
 * model call may live longer (then it owns the request's memory) or end earlier.
 *
 * A task serves the request until it is refused, counted, replayed, or a model call that runs
 * (api_call_reading.c). Another one writes a long answer (api_call_write.c).
 */
#ifndef RG_API_API_CALL_H
#define RG_API_API_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/serve/exchange.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/service/service.h"
#include "worker/text/request/request_limits.h"

struct answer_sink;
struct api_call;
struct batch_request;
struct body_text;
struct chat_request;
struct dialect;
struct call_usage;
struct dialect_writer;
struct engine_pool;
struct exchange;
struct finished_answer;
struct json;
struct known_reading;
struct picture_fetch;
struct session;
struct task;
struct task_work;

/* The request has been read, its session is there. May pause. */
typedef void (*call_ready_fn)(struct api_call *c);

struct api_call {
    struct call_listener listener;
    struct service *service;
    struct service_request request; /* until it is read; strings are the exchange's */
    call_ready_fn ready;
    struct api_call *front; /* whose task and exchange it has: itself, or that of its batch */
    struct task *task,
        *writing;    /* tasks that serve the request and write a long answer; NULL: ended */
    bool asks;       /* the task belongs to the model call, which alone cancels it */
    bool left;       /* the exchange is over, and not to be used any more */
    bool reads_body; /* a thread reads the body of the exchange */
    _Atomic uint64_t body_hash;     /* for the board and the log; 0: not known */
    struct picture_fetch *pictures; /* while they are fetched, or NULL */
    struct session *held;           /* pinned while the task runs, or NULL */
    struct exchange *x;
    const struct dialect *dialect;
    unsigned dialect_label;
    struct dialect_writer *writer;
    struct chat_request *req;
    const struct json *body;
    struct buf out;
    struct arena arena;      /* memory of a joined or replayed call; else the model call has it */
    const struct str *asked; /* dialect.asked, in the arena; NULL: it keeps nothing */
    uint64_t hash[2];
    size_t
        shared_bytes; /* for a batch's part: bytes that the others hold, and all of them together */
    struct request_limits limits; /* limits when it came: helpers read them */
    struct image_rules images;
    struct image_lifts *lifts;   /* pictures lifted out of the body, while it is read; or NULL */
    size_t came_bytes;           /* size of that body as it came; 0: nothing was lifted */
    struct known_reading *known; /* known beginning of the body, while it is read; or NULL */
    bool knows;                  /* it is read with that */
    uint64_t number;             /* number of the call in its session, once known */
    bool late;     /* it was not read in the turn it came: the session may have changed */
    bool regroups; /* calls sent back may be one answer: regroup.h */
    bool noted;    /* the answer is noted already */
    bool has_head; /* a stream's head is written, and goes out with an event */
    bool heeds;    /* its client may leave: it has begun (api_call_heed) */
    bool anew;     /* a new sample, whatever is still under way */
    void (*written)(void *ctx); /* or NULL: called when its answer is written, for what it was made
                                   of may go, and when it is freed */
    void *written_ctx;
    char request_id[40];
    char *id; /* id of its session, "" before it is known: ID_TEXT_MAX bytes after the call, or the
                 front's of its batch */
};

/* Events for a call that is a model call's only listener here; ctx is the call. */
extern const struct answer_sink api_call_sink;

/* api_call_reading.c: serves the request in a task: reads it, in a helper when it is long, finds or
 * makes its session, and goes on with `ready`; or answers what is wrong with it. */
void call_read(struct service_request *r, const struct dialect *d, call_ready_fn ready);

/* api_call_write.c: counts the bytes of its request that the answer echoes. */
size_t api_call_echo_bytes(const struct api_call *c);

/* -1 and ERR_OVERLOADED: so much of the session's answers waits to be read that there are no more.
 */
int api_call_refuse_unread(const struct api_call *c, struct err *e);

/* api_call_body.c: reads the exchange's body into body and req; *ret is what was read as JSON. */
int api_call_read_body(struct api_call *c, struct body_text *ret, struct err *e);

/* Does work that reads the body, which stays in memory meanwhile. */
MAY_PAUSE RG_MUSTCHECK int api_call_offload(struct api_call *c, const struct task_work *w,
                                            struct err *e);

/* Handles a lost helper while no model call has the task; ctx is the call. For task_on_lost. */
void api_call_on_lost(void *ctx);

/* The beginning and the end of its task, the end of the other one. The call may be gone after an
 * end. */
void api_call_begin_task(struct api_call *c);
void api_call_end_task(struct api_call *c);
void api_call_end_writing(struct api_call *c);

/* The exchange is over: cancels the tasks, and frees the call when they have ended. */
void api_call_left(struct api_call *c);

/* api_call_pictures.c: has the pictures that its request names by URL fetched, and kept when its
 * session is c->held. */
MAY_PAUSE RG_MUSTCHECK int api_call_fetch(struct api_call *c, struct err *e);

/* Whether what is to be read of the body (c->known knows the rest) may have pictures that are
 * lifted out of it. */
bool api_call_may_lift(const struct api_call *c);

/* api_call_read.c: drops the exchange's body, which is not read again. A helper frees the memory of
 * a long one here; at the request's end the loop would have to. */
void api_call_drop_body(const struct api_call *c);

enum { BODY_DROP_LEAST = 1 << 20 };

/* Reads the exchange's body into body, req and hash. In a helper, when the body is
 * long: see work.h.
 */
int api_call_read(void *call, void *tool, struct err *e);

/* api_call_settle.c, on the loop: brings what it wants of the model's thought to template and
 * engines. */
void api_call_meet_session(struct api_call *c);

/* locked_sampling.c: adds the parameters that the session (or NULL) replaces by a different value
 * to req->dropped. Locks hold for the session's own engines. */
void api_call_note_locked(struct api_call *c, const struct session *s,
                          const struct engine_pool *engines);

/* Brings the history into the session's form, by call ids. */
void api_call_regroup(struct api_call *c);

/* Says what the request brought in vain. */
void api_call_report_dropped(struct api_call *c);

/* A request that was read begins: one model call, or, with several prompts, a batch. */
MAY_PAUSE void api_call_begin(struct api_call *c);

/* Has it answered: by a running model call, a recorded answer, or one of its own, which takes the
 * arena. c->listener has sink, ctx (the call) and stream. Events may come from inside. */
MAY_PAUSE void api_call_start(struct api_call *c);

/* Marks it as a model call, or as a listener of one: from now on that decides what happens when its
 * client leaves (exchange_heed). */
void api_call_heed(struct api_call *c);

/* Whether its client says that it may have asked before. */
bool api_call_marked(const struct api_call *c);

/* Waits until an answer to the same request that is under way has arrived or was lost. Returns 1;
 * 0: the request has waited too long; -1: cancelled. */
MAY_PAUSE RG_MUSTCHECK int api_call_await(struct api_call *c);

/* Makes the model call's input. Texts are copied into the arena, because the call outlives this
 * request. */
struct call_input api_call_input(struct api_call *c);

/* api_call_count.c: answers how many tokens the prompt has. */
MAY_PAUSE void api_call_count(struct api_call *c);

/* api_call_repeat.c: whether the request is a retry that was answered, or will be: it joins the
 * running call, or gets the recorded answer again. True also if it was cancelled. */
MAY_PAUSE bool api_call_repeats(struct api_call *c, const struct call_input *in);

/* api_call_answer.c: what the exchange notes of an answer to call `number` of the session, for
 * exchange_under_way. */
struct str api_call_note(const struct api_call *c, uint64_t number, char note[EXCHANGE_NOTE_MAX]);

/* Sends the text that the writer has made. */
void api_call_flush(struct api_call *c);

/* Notes an answer before it is written: equal requests wait from now on until it has arrived or is
 * lost. */
void api_call_announce_answer(struct api_call *c);

/* The answer is written: it goes out, and the exchange ends. c may be gone then. */
void api_call_end(struct api_call *c);

/* Fails with an error, while a stuck helper may still write the answer. */
void api_call_fail_stuck(struct api_call *c, const struct err *e);

/* api_call_write.c: writes the end of the answer and ends the exchange, in a task if the answer is
 * long. `answers` lie in the memory of c->listener.told_by, or in c's. */
void api_call_write(struct api_call *c, const struct finished_answer *answers, size_t n,
                    const struct call_usage *usage);

/* Answers with the recorded answer of that call of the session, in the running task; if it has left
 * memory it is read back first. False: there is none, and nothing was done. */
MAY_PAUSE bool api_call_replay(struct api_call *c, struct session *s, uint64_t number);

/* Frees its arena, which is no longer needed. A batch's part that was not read has none. */
void api_call_free_arena(struct api_call *c);

/* batch.c: a completion with several prompts. Each is a call of its own, with its own commit, hash
 * and replay; their answers are one HTTP answer, the choices of prompt k at index k * n. The
 * prepared call becomes the front: exchange, writer, output. */
MAY_PAUSE void batch_begin(struct api_call *front);

/* batch_part.c: the front's request, and all that was read with it, is the batch's from now on: it
 * stays as long as the front's arena, which is another one, or that of a part. */
struct batch_request *batch_share(struct api_call *front);

/* Bytes of memory that it takes, once for all. */
size_t batch_shared_bytes(const struct batch_request *r);

/* The request with the k-th prompt only, in the part's arena; all else is the batch's, and is not
 * to be changed. */
struct chat_request *batch_part_request(struct batch_request *r, uint32_t k, struct arena *a);

/* An answer's text, which is not copied, as the assistant's message. */
const struct json *batch_message(struct arena *a, struct str text);

/* 128 bits over the body without its "stream" and "stream_options" members: clients that lost a
 * stream repeat the request without one, and mean the same call. parsed: what json_parse made of
 * it (its keys lie in the text). */
void request_hash(const struct body_text *text, const struct json *parsed, uint64_t ret[2]);

#endif
