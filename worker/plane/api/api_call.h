/*
 * struct api_call: one HTTP request of the data plane while it is answered: a listener of a model
 * call and the dialect's writer. It lives until its exchange is over and its tasks have ended. The
 * model call may live longer (then it owns the request's memory) or end earlier.
 *
 * A task serves the request until it is refused, counted or replayed, or until its model call runs
 * (api_call_reading.c). A second task writes a long answer (api_call_write.c).
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

struct api_call {
    struct call_listener listener;
    struct service *service;
    /* valid until the request is read; strings belong to the exchange */
    struct service_request request;
    bool counts; /* the request asks only how many tokens its prompt has */
    /* call that owns the task and exchange: this one, or the front of its batch */
    struct api_call *front;
    struct task *task,
        *writing;    /* tasks that serve the request and that write a long answer; NULL: ended */
    bool asks;       /* the task belongs to the model call, and only that may cancel it */
    bool left;       /* the exchange is over and must not be used */
    bool reads_body; /* a thread is reading the body of the exchange */
    _Atomic uint64_t body_hash;     /* hash for the board and the log; 0: unknown */
    struct picture_fetch *pictures; /* fetch of the request's pictures, or NULL */
    struct session *held;           /* session, pinned while the task runs; or NULL */
    struct exchange *x;
    const struct dialect *dialect;
    unsigned dialect_label;
    struct dialect_writer *writer;
    struct chat_request *req;
    const struct json *body;
    struct buf out;
    /* memory of a joined or replayed call; otherwise it belongs to the model call */
    struct arena arena;
    const struct str *asked; /* dialect.asked, in the arena; NULL: none is kept */
    uint64_t hash[2];
    size_t shared_bytes; /* for a call of a batch: bytes that the other calls hold, and that all
                            share */
    struct request_limits limits; /* limits at the time of the request, for helpers to read */
    struct image_rules images;
    struct image_lifts *lifts;   /* pictures lifted out of the body during reading; or NULL */
    size_t came_bytes;           /* size of the body before lifting; 0: nothing was lifted */
    struct known_reading *known; /* known beginning of the body during reading; or NULL */
    bool knows;                  /* the reading uses `known` */
    uint64_t number;             /* number of the call in its session, when it is known */
    bool late;     /* reading took several loop iterations, so the session may have changed */
    bool regroups; /* calls in the history may belong to one answer (regroup.h) */
    bool noted;    /* the exchange has a note of the answer */
    bool has_head; /* a stream's head is written, and is sent with an event */
    bool heeds;    /* it handles the leaving of its client (api_call_heed) */
    bool anew;     /* a new sample, even if equal calls are running */
    /* called when the answer is written, so that its sources may be freed, and when it is freed; or
     * NULL */
    void (*written)(void *ctx);
    void *written_ctx;
    char request_id[40];
    /* id of its session, "" before it is known: ID_TEXT_MAX bytes after the call, or those of its
     * batch's front */
    char *id;
};

/* Events for a call that is a model call's only listener here; ctx is the call. */
extern const struct answer_sink api_call_sink;

/* api_call_reading.c: serves the request in a task. Reads it, in a helper if it is long, finds or
 * makes its session, and begins or counts it; or answers with an error. */
void call_read(struct service_request *r, const struct dialect *d, bool counts);

/* api_call_write.c: returns how many bytes of its request the answer echoes. */
size_t api_call_echo_bytes(const struct api_call *c);

/* Checks the unread bytes of the session's answers. Returns -1 with ERR_OVERLOADED if they are too
 * many for a further answer. */
int api_call_refuse_unread(const struct api_call *c, struct err *e);

/* api_call_body.c: reads the exchange's body into body and req; *ret is the text that was read as
 * JSON. */
int api_call_read_body(struct api_call *c, struct body_text *ret, struct err *e);

/* Does work that reads the body, which stays in memory meanwhile. */
MAY_PAUSE RG_MUSTCHECK int api_call_offload(struct api_call *c, const struct task_work *w,
                                            struct err *e);

/* Handles a lost helper while no model call has the task; ctx is the call. For task_on_lost. */
void api_call_on_lost(void *ctx);

/* Begin and end its task, and end the second task. The call may be freed by an end. */
void api_call_begin_task(struct api_call *c);
void api_call_end_task(struct api_call *c);
void api_call_end_writing(struct api_call *c);

/* The exchange is over: cancels the tasks, and frees the call when they have ended. */
void api_call_left(struct api_call *c);

/* api_call_pictures.c: fetches the pictures that its request names by URL, and stores them if its
 * session is c->held. */
MAY_PAUSE RG_MUSTCHECK int api_call_fetch(struct api_call *c, struct err *e);

/* Reports whether the unknown part of the body (c->known has the rest) may have pictures to be
 * lifted out of it. */
bool api_call_may_lift(const struct api_call *c);

/* api_call_read.c: frees the exchange's body, which is not read again. A helper calls it for a long
 * one, because freeing it at the request's end would hold the loop. */
void api_call_drop_body(const struct api_call *c);

enum { BODY_DROP_LEAST = 1 << 20 };

/* Reports whether a stored answer with these data (told.h) answers a compaction. */
bool api_call_compacted(struct str told);

/* Reads the exchange's body into body, req and hash. In a helper if the body is long (work.h). */
int api_call_read(void *call, void *tool, struct err *e);

/* api_call_settle.c, on the loop: passes the request's thought settings to template and engines. */
void api_call_meet_session(struct api_call *c);

/* Converts the history to the session's form, by call ids. */
void api_call_regroup(struct api_call *c);

/* Reports the members of the request that had no effect. */
void api_call_report_dropped(struct api_call *c);

/* api_call_entry.c: answers how many tokens the prompt of a request that was read has. */
MAY_PAUSE void api_call_count(struct api_call *c);

/* Begins a request that was read: one model call, or, with several prompts, a batch. */
MAY_PAUSE void api_call_begin(struct api_call *c);

/* Gets it answered: by a running model call, a recorded answer, or a model call of its own, which
 * takes the arena. c->listener has sink, ctx (the call) and stream. Events may come from inside. */
MAY_PAUSE void api_call_start(struct api_call *c);

/* Marks it as a model call, or as a listener of one, which from now on handles the leaving of its
 * client (exchange_heed). */
void api_call_heed(struct api_call *c);

/* Reports whether its client marks the request as a possible repetition. */
bool api_call_marked(const struct api_call *c);

/* Waits until a pending answer to the same request has arrived or was lost. Returns 1; 0: the
 * request has waited too long; -1: cancelled. */
MAY_PAUSE RG_MUSTCHECK int api_call_await(struct api_call *c);

/* Makes the model call's input. Texts are copied into the arena, because the call outlives this
 * request. */
struct call_input api_call_input(struct api_call *c);

/* api_call_repeat.c: reports whether the request is a retry that was answered, or will be: it joins
 * the running call, or gets the recorded answer again. Also true if it was cancelled. */
MAY_PAUSE bool api_call_repeats(struct api_call *c, const struct call_input *in);

/* api_call_answer.c: makes the exchange's note for an answer to call `number` of the session, for
 * exchange_under_way. */
struct str api_call_note(const struct api_call *c, uint64_t number, char note[EXCHANGE_NOTE_MAX]);

/* Sets the note of an answer before it is written. Equal requests wait from then on until it has
 * arrived or is lost. */
void api_call_announce_answer(struct api_call *c);

/* Sends the written answer and ends the exchange. May free c. */
void api_call_end(struct api_call *c);

/* Fails with an error, while a stuck helper may still write the answer. */
void api_call_fail_stuck(struct api_call *c, const struct err *e);

/* api_call_write.c: writes the end of the answer and ends the exchange, in a task if the answer is
 * long. `answers` are in the memory of c->listener.answered_by, or in c's. */
void api_call_write(struct api_call *c, const struct finished_answer *answers, size_t n,
                    const struct call_usage *usage);

/* Answers with the recorded answer to that call of the session, in the running task. An evicted
 * answer is read back first. Returns false, having done nothing, if there is none. */
MAY_PAUSE bool api_call_replay(struct api_call *c, struct session *s, uint64_t number);

/* Frees its arena, which is no longer needed. A call of a batch that was not read has none. */
void api_call_free_arena(struct api_call *c);

/* batch.c: a completion with several prompts. Each is a call of its own, with its own commit, hash
 * and replay. Their answers are one HTTP answer, with the choices of prompt k at index k * n. The
 * prepared call becomes the front, which has exchange, writer and output. */
MAY_PAUSE void batch_begin(struct api_call *front);

/* batch_part.c: passes the front's request, and everything read with it, to the batch. It exists as
 * long as the front's arena, which is a different one, or that of a part. */
struct batch_request *batch_share(struct api_call *front);

/* Returns the bytes of its memory, which count once for all parts. */
size_t batch_shared_bytes(const struct batch_request *r);

/* Returns the request with only the k-th prompt, in the part's arena. Everything else belongs to
 * the batch and must not be changed. */
struct chat_request *batch_part_request(struct batch_request *r, uint32_t k, struct arena *a);

/* Returns the assistant's message for an answer's text, which is not copied. */
const struct json *batch_message(struct arena *a, struct str text);

/* Computes 128 bits over the body without its "stream" and "stream_options" members: clients that
 * lost a stream repeat the request without streaming, and mean the same call. parsed: the result of
 * json_parse (its keys point into the text). */
void request_hash(const struct body_text *text, const struct json *parsed, uint64_t ret[2]);

#endif
