/*
 * struct call: one HTTP request of the data plane while it is answered: a listener of a turn and
 * the dialect's writer. It lives until its exchange is over; the turn may live longer (then it owns
 * the request's memory) or end earlier.
 */
#ifndef RG_API_CALL_H
#define RG_API_CALL_H

#include "worker/api/api.h"
#include "worker/api/dialect.h"
#include "worker/turn/work.h"

struct call;

/* The request has been read, its session is there. */
typedef void (*call_ready_fn)(struct call *c);

struct call {
    struct turn_listener listener;
    struct api *api;
    struct api_request request; /* until it is read; strings are the exchange's */
    struct long_work reading;
    call_ready_fn ready;
    struct session *held;        /* pinned while the request is read, or NULL */
    struct turn_count *counting; /* or NULL */
    struct exchange *x;
    const struct dialect *dialect;
    unsigned dialect_label;
    struct dialect_writer *writer;
    struct chat_request *req;
    const struct json *body;
    struct buf out;
    struct arena arena; /* of a joined or replayed call; else the turn has it */
    uint64_t hash[2];
    uint64_t number;          /* of the call in its session, once known */
    bool late;                /* a helper has read it: the session may have changed */
    bool noted;               /* the answer is noted already */
    bool anew;                /* a new sample, whatever is still under way */
    struct session *awaiting; /* pinned by call_await, or NULL */
    char request_id[40];
    char id[ID_TEXT_MAX];
};

/* Events for a call that is a turn's only listener here; ctx is the call. */
extern const struct turn_sink call_sink;

/* reading.c: reads the request, in a helper when it is long, finds or makes its session, and goes
 * on with `ready`; or answers what is wrong with it. */
void call_read(struct api_request *r, const struct dialect *d, call_ready_fn ready);

/* Reads `body` (in the call's arena) into body and req. */
int call_parse(struct call *c, struct str body, struct err *e);

/* Has it answered: by a running turn, a recorded answer, or a turn of its own, which takes the
 * arena. c->listener has sink, ctx (the call) and stream. Events may come from inside. */
void call_start(struct call *c);

/* Whether its client says that it may have asked before. */
bool call_marked(const struct call *c);

/* Calls `again` when an answer to the same request that is under way has arrived or was lost, or
 * the request has waited too long. False: it has already. The call's session stays in memory until
 * `again` begins with call_awaited. */
bool call_await(struct call *c, exchange_again_fn again, void *ctx);
void call_awaited(struct call *c);

/* What the writer has made goes out. */
void call_flush(struct call *c);

void call_free(struct call *c);

/* reseed.c: a fresh session for a call whose own is not here, where that may be; its id. -1 and e:
 * ERR_UNKNOWN_SESSION, ERR_SESSION_ENDED, or there is no room. */
int call_reseed(struct api_request *r, char ret_id[ID_TEXT_MAX], struct err *e);

/* batch.c: a completion with several prompts. Each is a call of its own, with its own commit, hash
 * and replay; their answers are one HTTP answer, the choices of prompt k at index k * n. The
 * prepared call becomes the front: exchange, writer, output. */
void batch_begin(struct call *front);

/* 128 bits over the body without its "stream" and "stream_options" members: clients that lost a
 * stream repeat the turn without one, and mean the same call. parsed: what json_parse made of
 * body (its keys lie in it). */
void call_hash(struct str body, const struct json *parsed, uint64_t ret[2]);

#endif
