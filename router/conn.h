/*
 * struct conn: one client connection and the exchange that runs on it.
 *
 *              request's head                     answer is out, the client has more to say
 *     HEAD ---------------------> RELAY ------------------------------------> LINGER
 *     | ^ |                      | |  |                                          |
 *     | | '----- HELD <----------' |  |                                          |
 *     | '--- answer is out --------'  |                                          |
 *     LENT        any of them --------+----------------> CLOSED <----------------'
 *
 *     HEAD    waiting for (the rest of) a request head; before that, for a TLS handshake
 *     RELAY   an exchange: the request flows up, the answer flows down; or our own answer does
 *     HELD    the request waits for a node that serves its place (holds.h); back to HEAD then
 *     LINGER  the answer is out but the client still sends: its bytes are read and dropped for at
 *             most 2 s, so that it sees the answer and not a reset
 *     LENT    a worker reads and answers its requests (lendings.h); we do not look at its socket
 *     CLOSED  descriptors closed; the memory goes at the end of the turn
 *
 * A conn owns its link while an exchange needs it. Who does what, each using those below it only:
 *
 *     clients.c             accepts, reads heads, acts on verdicts
 *     conn_request.c        what becomes of a request, by its head
 *     lendings.c            lends idle ones to workers
 *     holds.c               holds requests whose place has no owner
 *     relay.c               one exchange: which worker, a second try, deadlines
 *     upload.c, answer.c    its two directions; they tell by a verdict what has become of it
 *     bodies.c              budgets of request bodies under way
 *     conn.c                the struct: states, closing, answers of our own
 */
#ifndef RG_ROUTER_CONN_H
#define RG_ROUTER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/os/loop.h"
#include "common/proc/ids.h"
#include "router/flow.h"

struct caller;
struct client_tls;
struct hub;
struct link;

enum conn_state { CONN_HEAD, CONN_RELAY, CONN_HELD, CONN_LINGER, CONN_LENT, CONN_CLOSED };

/* How far the request is on its way to the worker. */
enum upload_phase {
    UPLOAD_NONE,  /* there is no request */
    UPLOAD_FLOWS, /* its bytes go up as they come, until `up` is done and nothing is parked */
    UPLOAD_ENDED  /* nothing goes up any more: the worker takes no more (its answer may still be
                     there), or the answer is ours */
};

/* How far the answer is on its way to the client. */
enum answer_phase {
    ANSWER_NONE,    /* none of it is here */
    ANSWER_INTERIM, /* a 1xx went out: the request must not be sent a second time */
    ANSWER_BEGUN,   /* the head of the final answer went out */
    ANSWER_CUT      /* the worker broke it off: the connection ends without an end of it */
};

/* What has become of an exchange, as the functions that move its bytes tell it. */
enum verdict {
    VERDICT_MORE,   /* something moved: look again */
    VERDICT_WAIT,   /* nothing can be moved now: an event will come */
    VERDICT_AGAIN,  /* the turn's share is used up: go on in the next turn */
    VERDICT_OVER,   /* all of the answer is written */
    VERDICT_REFUSE, /* the client is to get the error instead of an answer; none has begun */
    VERDICT_LOST,   /* the same, unless the request can be sent a second time */
    VERDICT_HOLD,   /* a different node of the fleet did not take the request, which is kept */
    VERDICT_CLOSE   /* the client is gone, or cannot be told: close at once */
};

struct conn {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task; /* the next turn of a busy connection; the end of a closed one */
    struct hub *hub;
    loop_io_fn on_client;
    struct list_item item;     /* of hub->conns */
    struct list_item stranger; /* of hub->strangers, while no request of it has passed the gate */
    int fd;
    struct client_tls *tls;   /* NULL: plain */
    enum conn_state state;    /* set by conn_set_state only */
    enum upload_phase upload; /* of the request at hand */
    enum answer_phase answer; /* to it */
    uint64_t deadline_ms;     /* UINT64_MAX: none */

    struct buf in;  /* bytes of the client behind the current request, or a part of a head */
    size_t in_seen; /* of them, looked at by the head parser */
    bool readable;  /* an edge said so and no EAGAIN since */
    bool gathers;   /* edges come only when there are many bytes (conn_gather) */
    bool hup;       /* the client will send no more, or is gone */
    bool late;      /* the deadline has passed */
    struct caller *address;
    struct caller *key; /* that it last proved, or NULL */

    /* the body of the request, while it is incomplete (bodies.h) */
    uint64_t body_bytes;       /* taken of it */
    uint64_t body_fresh_bytes; /* since patience was last looked at */
    uint64_t body_seen_ms;     /* then */
    uint64_t body_left_ms;     /* and what was left */
    bool body_waits;           /* its bytes are what we wait for */
    bool body_trickles;        /* it came too slowly to wait for many bytes at once */
    const char *over_budget;   /* it is to be refused for this setting; or NULL */

    /* whether it may be lent, and whom it is lent to (lendings.h) */
    struct {
        unsigned alike;      /* requests in a row that one worker has served */
        unsigned after;      /* so many it needs, or more as the settings say */
        int upstream;        /* that worker */
        struct buf head;     /* of the request at hand, if it may be lent after it */
        size_t length_at;    /* in it: the digits of its Content-Length */
        struct conn **place; /* its place in a channel's table while it is lent */
        bool ever; /* another process had its socket, and may still have it for a moment */
    } lent;

    /* a request that waits for a node that serves its place (holds.h) */
    struct {
        struct list_item item; /* in hub->held */
        uint32_t place;
        uint64_t epoch;    /* epoch of the place when the request was held */
        uint64_t until_ms; /* end of --fleet-hold; 0: the request has not been held yet */
        uint64_t again_ms; /* when the same owner is tried again; UINT64_MAX: there is no owner */
        bool over;         /* --fleet-hold has passed */
    } hold;

    /* the request */
    bool old; /* HTTP/1.0 */
    bool head_request;
    bool messages_dialect;     /* error shape */
    bool any;                  /* no worker is named: another one will do */
    bool hops;                 /* a different node of the fleet serves it */
    bool repeatable;           /* serving it twice has the effect of once */
    bool unsent;               /* hops: that node cannot be reached */
    bool closing;              /* the connection ends with its answer */
    char session[ID_TEXT_MAX]; /* of the path, or "" */

    /* the exchange */
    struct link *link; /* NULL: an answer of ours, or the worker's part is over */
    struct flow up, down;
    struct buf replay;  /* the request as sent so far, while it may be sent again; or empty. With
                           `hops`: as it came */
    struct buf partial; /* of the worker: a part of its head, or of a size line */
    unsigned tries;     /* upstreams that refused */
    bool resent;        /* sent a second time */
    bool refused;       /* one of hub->refused */
    bool farewell;      /* TLS: the answer is out, its proper end is not */
    bool stuck;         /* the deadline is for the client to take what is parked, */
    uint64_t stuck_at;  /* and was set when it had taken so many bytes (down.given_bytes) */
    bool confirms;      /* the worker is to be told when the client has the answer */
    bool finishes;      /* its worker is to get all that has come, though the client leaves */
    int status;
};

/* Takes over an accepted socket that counts under `address` (callers.h), in state HEAD. Returns
 * NULL if the loop refuses it: then it is closed. */
struct conn *conn_open(struct hub *h, int fd, struct str address, loop_io_fn on_client);

/* Changes the state. Only the changes that are drawn above are allowed, and, without NDEBUG, what
 * must hold in the new state is checked. */
void conn_set_state(struct conn *c, enum conn_state state);

/* Whether an answer (ours or the worker's) has begun, so that no other one can be given. */
static inline bool conn_answered(const struct conn *c)
{
    return c->answer >= ANSWER_BEGUN;
}

/* Closes both sides at once. The memory stays valid until the end of the turn. */
void conn_close(struct conn *c);

/* It is lent no longer, or never was: its place is empty. */
void conn_not_lent(struct conn *c);

/* The request is held no longer, or never was. */
void conn_not_held(struct conn *c);

/* The kept request of the exchange becomes unread input again, for a second look at its head. The
 * caller sets the state. */
void conn_unread(struct conn *c);

/* Takes its socket out of the loop, and in again: then what is ready now is told. -1: the loop
 * refuses. */
void conn_unwatch(struct conn *c);
int conn_watch(struct conn *c, struct err *e);

enum { CONN_GATHER_BYTES = 1 << 20 };

/* Whether the client's socket is to tell of bytes only when there are very many, or none to come:
 * for long bodies, where each wake-up costs more than reading some pages. Fewer lie there unseen
 * meanwhile. Ends with the exchange. */
void conn_gather(struct conn *c, bool on);

/* The connection goes on in the next turn (hub->run). */
void conn_again(struct conn *c);

/* Asks for an event when the client takes bytes. It stays asked for, because TCP reports that after
 * a refusal only. */
void conn_want_out(struct conn *c);

/* Reads from the client, as recv(2). */
ssize_t conn_read(struct conn *c, void *to, size_t size);

/* At this time at the latest hub->run looks whether somebody is too slow: `late` is set. */
void conn_set_deadline(struct conn *c, uint64_t delay_ms);
void conn_no_deadline(struct conn *c);

/* The connection has proved something: it makes no room for others any more. */
void conn_known(struct conn *c);

/* The body of its request is complete, or nobody waits for it any more: it counts no longer. */
void conn_forget_body(struct conn *c);

/* Answers the current request (or the head that cannot be one) with an error instead of a worker's
 * answer; the connection ends when its framing or body is in doubt. Nothing may have been answered.
 * The answer is parked: the exchange ends like any other. */
void conn_fail(struct conn *c, const struct err *e);

/* Ends our direction of the connection. Bytes that the client still sends are dropped for a while.
 */
void conn_linger(struct conn *c);

/* Returns whether the connection ends when the answer is written. */
bool conn_ends(const struct conn *c);

/* The exchange is over and all of it is written: next request, linger or close. */
void conn_finish(struct conn *c);

#endif
