/*
 * struct model_call: one model call from the parsed request to the committed answer. Only this code
 * sees all parts: session, engine, tokens, parsers, journal. Listeners (usually one HTTP answer)
 * get the events of answer_sink. A repeated request may join. A call that lost its last listener
 * ends or continues, as --on-disconnect says.
 *
 * The life of a call:
 *
 *   request ---> prepare --> render --> place --+--> drop (linear: a retry) --+
 *                   |          | (a helper)     '-----------------------------+
 *                   |          |                                              v
 *                   '----------'---- refused: nothing was changed          generate <-- a repeated
 *                                                                             |         request
 *        deltas to the listeners, checked and parsed as they come <-----------|         joins here
 *                                                                             v
 *                                               long values, in parts; then COMMIT   record,
 *                                                                             |      journal,
 *                                                                             |      session
 *        the end of the answer, to all listeners <-- FINISH <-- DURABLE <-----'
 *
 * A client that leaves before the prompt is rendered ends the call. Later the call waits
 * --rejoin-window for a retry, or runs to its end (--on-disconnect). From COMMIT on only a bad
 * answer or a full disk stops the call: the answer is on record before its end is sent.
 *
 * A call owns itself: it ends after finish or failed was sent to every listener, or without an
 * event when it was abandoned. Its memory is kept for those who still write the end
 * (model_call_hold). The session is unchanged until the commit's record is applied. One struct
 * call_env (call_env.h) per worker process holds what all calls share.
 */
#ifndef RG_CALL_MODEL_CALL_H
#define RG_CALL_MODEL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct answer_sink;
struct arena;
struct call_env;
struct chat_request;
struct err;
struct json;
struct listener_beat;
struct log_scope;
struct model_call;

/* How much of an answer a listener has been sent (sampled_answer_repeat). */
struct repeat_place {
    size_t reasoning, text; /* bytes that were sent */
    size_t seal;            /* index of the next seal to send */
    uint32_t call;          /* index of the next tool call to send */
    bool begun;             /* the beginning of that tool call was sent ... */
    size_t args;            /* ... and so many bytes of its arguments */
};

/* One receiver of a call's events. Embedded in its owner. The fields after `stream` belong to the
 * call. */
struct call_listener {
    const struct answer_sink *sink;
    void *ctx;
    bool stream;
    struct model_call *model_call; /* NULL: not attached (any more) */
    /* finish: the call whose memory holds the answers (model_call_hold); NULL: the listener's
     * own call */
    struct model_call *answered_by;
    bool unheaded; /* the head has not been sent yet */
    /* the listener joined late and has not been sent all earlier events: */
    bool behind;
    /* the listener gets no new events yet of this answer and of all after it */
    uint32_t at_sample;
    size_t at_logprob;      /* index of the first logprob of that answer that was not sent */
    struct repeat_place at; /* first text or tool call of that answer that was not sent */
    struct call_listener *next;
    struct listener_beat *beat; /* sends keepalives; own, while the listener is attached */
};

struct call_input {
    struct str session_id;
    const struct chat_request *req; /* in the arena */
    const struct json *body;        /* the body of the client's request, in the arena */
    uint64_t body_hash[2];
    uint64_t body_bytes;
    /* memory that the request uses besides its own: that of its batch */
    uint64_t shared_bytes;
    uint64_t work_hash;            /* hash of the body as it was received, for work_note */
    const struct log_scope *scope; /* in the arena */
    const char *dialect;
    struct str traceparent, tracestate; /* the trace headers, if there is a tracer; else absent */
    const struct str
        *asked; /* the request's data that a stored answer echoes, by enum asked_text; or NULL */
};

/* Starts a call in the running task. The arena becomes the call's. Listeners may get events before
 * this function returns, which is when the engines are asked or the call has ended. */
MAY_PAUSE void model_call_start(struct call_env *env, struct arena *arena,
                                const struct call_input *in, struct call_listener *l);

/* Returns the running call that a request with this body and Idempotency-Key (or none) may repeat:
 * the oldest whose listeners are all `gone` (and that has any), or with gone NULL the oldest of
 * all. Calls with a different key do not count. Returns NULL if there is none. */
struct model_call *model_call_find(struct call_env *env, const struct call_input *in,
                                   bool (*gone)(struct call_listener *l));

/* Attaches a listener that gets all earlier events, then the new ones. Returns when the listener
 * has had the earlier events, or has left. Returns -1 with ERR_OVERLOADED if the call has as many
 * listeners as it may. */
MAY_PAUSE int model_call_join(struct model_call *t, struct call_listener *l, struct err *e);

/* Detaches a listener whose client has left. Does nothing if the listener is not attached. */
void model_call_leave(struct call_listener *l);

/* Calls model_call_leave for the listeners of a session's calls that are `gone`, because a request
 * may arrive before the loop notices that the client of a different one left. */
void model_call_drop_gone(struct call_env *env, struct str session_id,
                          bool (*gone)(struct call_listener *l));

/* Keeps the memory of the call's end until model_call_let, even after the call is over. */
void model_call_hold(struct model_call *t);
void model_call_let(struct model_call *t);

/* Ends the calls of a session that was ended: they fail with ERR_SESSION_ENDED, their engine
 * requests are aborted, and the engines are notified. A task does this in steps, so that other
 * sessions are served in between. When this function returns, no step of the calls runs any more
 * and no request finds them, but they still count as running. Calls whose commit is written
 * continue. */
void model_call_end_session(struct call_env *env, struct str session_id);

/* Ends all calls at shutdown: they fail with ERR_DRAINING. */
void model_call_end_all(struct call_env *env);

/* Counts, in the running task, the prompt tokens that the request would have, without making a
 * call. */
MAY_PAUSE int call_count_tokens(struct call_env *env, struct arena *arena,
                                const struct call_input *in, size_t *ret, struct err *e);

#endif
