/*
 * struct model_call: one model call from the parsed request to the committed answer, and the only
 * code that sees the whole way: session, engine, tokens, parsers, journal. Listeners (usually one
 * HTTP answer) get the events of answer_sink; a repeated request may join, and a call that lost its
 * last listener ends, or goes on, by
 * --on-disconnect.
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
 *                                               what is long, in parts; then COMMIT  record,
 *                                                                             |      journal,
 *                                                                             |      session
 *        the end of the answer, to all listeners <-- FINISH <-- DURABLE <-----'
 *
 * A client that leaves before the prompt is rendered ends the call; later the call waits
 * --rejoin-window for a retry, or runs to its end (--on-disconnect). From COMMIT on only a
 * bad answer or a full disk stops it: what was sampled is on record before the end is told.
 *
 * A call owns itself: it ends after finish or failed went to every listener, or silently when it
 * was abandoned. Its memory stays for who still writes the end (model_call_hold). Nothing of it is
 * in the session before the commit's record was applied. One struct call_env (call_env.h) per
 * worker process holds what all calls share.
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

/* How far somebody was told what came of an answer before (sampled_answer_repeat). */
struct repeat_place {
    size_t reasoning, text; /* bytes */
    size_t seal;            /* the one to be told next */
    uint32_t call;          /* the one to be told next */
    bool begun;             /* its beginning was told ... */
    size_t args;            /* ... and so many bytes of its arguments */
};

/* One receiver of a call's events. Embedded in its owner; the fields below `stream` are call's. */
struct call_listener {
    const struct answer_sink *sink;
    void *ctx;
    bool stream;
    struct model_call *model_call; /* NULL: not attached (any more) */
    struct model_call *told_by;    /* finish: whose memory the answers lie in (model_call_hold);
                                      NULL: in the listener's own */
    bool unheaded;                 /* the head is still to be told */
    bool behind;                   /* it joined, and has not been told all that came before: of */
    uint32_t at_sample;            /* this answer, and all behind it, it hears nothing new yet */
    size_t at_logprob;             /* first logprob of that answer that it did not get */
    struct repeat_place at;        /* first text or call of that answer that it did not get */
    struct call_listener *next;
    struct listener_beat *beat; /* own, while it is attached: signs of life */
};

struct call_input {
    struct str session_id;
    const struct chat_request *req; /* in the arena */
    const struct json *body;        /* the client's own request, in the arena */
    uint64_t body_hash[2];
    uint64_t body_bytes;
    uint64_t shared_bytes;         /* memory that the request holds in addition: its batch's */
    uint64_t work_hash;            /* hash of the body as it came: work_note */
    const struct log_scope *scope; /* in the arena */
    const char *dialect;
    struct str traceparent, tracestate; /* headers, where there is a tracer; else absent */
    const struct str
        *asked; /* the request's data that a stored answer echoes, by enum asked_text; or NULL */
};

/* Starts a call, in the running task; the arena becomes the call's. Events may come from inside
 * this call, which returns when engines are asked or the call has ended. */
MAY_PAUSE void model_call_start(struct call_env *env, struct arena *arena,
                                const struct call_input *in, struct call_listener *l);

/* A running call that a request with this body and Idempotency-Key (or none) may repeat: the oldest
 * whose listeners are all `gone`, if it has any; with gone NULL the oldest of all. Calls with
 * another key are others'. NULL: none. */
struct model_call *model_call_find(struct call_env *env, const struct call_input *in,
                                   bool (*gone)(struct call_listener *l));

/* The listener gets all that came so far, then what follows. -1 and ERR_OVERLOADED: as many wait
 * for this call as may. Returns when the listener has what came before, or has left. */
MAY_PAUSE int model_call_join(struct model_call *t, struct call_listener *l, struct err *e);

/* The listener's client has left. Not attached: nothing. */
void model_call_leave(struct call_listener *l);

/* Calls model_call_leave for the listeners of a session's calls that are `gone`: a request may
 * arrive before the loop sees that the client of another one left. */
void model_call_drop_gone(struct call_env *env, struct str session_id,
                          bool (*gone)(struct call_listener *l));

/* What the call tells at its end stays in memory until model_call_let, also when the call is over.
 */
void model_call_hold(struct model_call *t);
void model_call_let(struct model_call *t);

/* The session was ended: its calls fail with ERR_SESSION_ENDED, their engine requests are aborted,
 * and the engines are notified. A task does this, so that other sessions' turns come between; but
 * when this returns no step of the calls runs any more, and no request finds them. They still count
 * as running. Calls whose commit is written go on. */
void model_call_end_session(struct call_env *env, struct str session_id);

/* Ends all calls (shutdown): they fail with ERR_DRAINING. */
void model_call_end_all(struct call_env *env);

/* Counts the prompt tokens that the request would have, without a call, in the running task. */
MAY_PAUSE int call_count_tokens(struct call_env *env, struct arena *arena,
                                const struct call_input *in, size_t *ret, struct err *e);

#endif
