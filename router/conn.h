/*
 * struct conn: one client connection and the exchange that runs on it.
 *
 *              request's head                     answer is out, the client still sends
 *     HEAD ---------------------> RELAY ------------------------------------> LINGER
 *     | ^ |                      | |  |                                          |
 *     | | '----- HELD <----------' |  |                                          |
 *     | '--- answer is out --------'  |                                          |
 *     LENT        any of them --------+----------------> CLOSED <----------------'
 *
 *     HEAD    waits for a request head, or its rest; first of all for a TLS handshake
 *     RELAY   an exchange: the request flows up, the worker's answer, or ours, flows down
 *     HELD    the request waits for a node that serves its place (holds.h), then back to HEAD
 *     LINGER  the answer is out but the client still sends: its bytes are read and dropped for at
 *             most 2 s, so that the client sees the answer and not a reset
 *     LENT    a worker reads and answers its requests (lendings.h); we do not read its socket
 *     CLOSED  descriptors are closed; the memory is freed at the end of the turn
 *
 * A conn owns its link while an exchange needs it. Each of these files uses only those below it:
 *
 *     clients.c             accepts, reads heads, acts on verdicts
 *     conn_request.c        decides by the head what happens to a request
 *     lendings.c            lends idle connections to workers
 *     holds.c               holds requests whose place has no owner
 *     relay.c               one exchange: choice of the worker, a second try, deadlines
 *     upload.c, answer.c    its two directions; they return the result as a verdict
 *     bodies.c              budgets of unfinished request bodies
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

/* Progress of the request to the worker. */
enum upload_phase {
    UPLOAD_NONE,  /* no request */
    UPLOAD_FLOWS, /* bytes are sent as they arrive, until `up` is done and nothing is parked */
    UPLOAD_ENDED  /* nothing more is sent: the worker refuses it, or the answer is ours */
};

/* Progress of the answer to the client. */
enum answer_phase {
    ANSWER_NONE,    /* nothing has arrived */
    ANSWER_INTERIM, /* a 1xx was sent: the request must not be sent a second time */
    ANSWER_BEGUN,   /* the head of the final answer was sent */
    ANSWER_CUT /* the worker broke the answer off: the connection ends without the answer's end */
};

/* Result of the functions that move the bytes of an exchange. */
enum verdict {
    VERDICT_MORE,   /* something moved: check again */
    VERDICT_WAIT,   /* nothing can be moved now: an event will follow */
    VERDICT_AGAIN,  /* the turn's share is used up: continue in the next turn */
    VERDICT_OVER,   /* the whole answer is written */
    VERDICT_REFUSE, /* the client gets an error instead of an answer, which has not begun */
    VERDICT_LOST,   /* like REFUSE, unless the request can be sent a second time */
    VERDICT_HOLD,   /* the owner of its place did not accept the request, which is kept */
    VERDICT_CLOSE   /* the client is gone, or cannot get an error: close at once */
};

struct conn {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task; /* the next turn of a busy connection; frees a closed one */
    struct hub *hub;
    loop_io_fn on_client;
    struct list_item item;     /* in hub->conns */
    struct list_item stranger; /* in hub->strangers, until a request passes the gate */
    int fd;
    struct client_tls *tls;   /* NULL: no TLS */
    enum conn_state state;    /* changed by conn_set_state only */
    enum upload_phase upload; /* progress of the current request */
    enum answer_phase answer; /* progress of its answer */
    uint64_t deadline_ms;     /* UINT64_MAX: no deadline */

    struct buf in;  /* bytes of the client after the current request, or an incomplete head */
    size_t in_seen; /* number of these bytes that the head parser has seen */
    bool readable;  /* an event said so, and no EAGAIN since then */
    bool gathers;   /* events arrive only for many bytes (conn_gather) */
    bool hup;       /* the client has closed its direction, or is gone */
    bool late;      /* the deadline has passed */
    struct caller *address;
    struct caller *key; /* the key that it last proved, or NULL */
    bool of_node;       /* a different node of the fleet forwards requests on it */

    /* body of the request, while it is incomplete (bodies.h) */
    uint64_t body_bytes;       /* number of received bytes */
    uint64_t body_fresh_bytes; /* bytes received since the last bodies_patience_ms */
    uint64_t body_seen_ms;     /* time of the last bodies_patience_ms */
    uint64_t body_left_ms;     /* result of that call */
    bool body_waits;           /* we wait for bytes of the body */
    bool body_trickles;        /* the body arrived too slowly for conn_gather */
    const char *over_budget;   /* setting for which it must be refused, or NULL */

    /* whether it may be lent, and to which worker it is lent (lendings.h) */
    struct {
        unsigned alike;  /* number of requests in a row that one worker has served */
        unsigned after;  /* least number of them before it is lent; the settings may require more */
        int upstream;    /* index of that worker */
        struct buf head; /* head of the current request; empty: no lending after it */
        size_t length_at;    /* offset in head of the digits of Content-Length */
        struct conn **place; /* its slot in a channel's table, while lent */
        bool ever;           /* a worker had its socket, and may still have it for a moment */
    } lent;

    /* a request that waits for a node that serves its place (holds.h) */
    struct {
        struct list_item item; /* in hub->held */
        uint32_t place;
        uint64_t epoch;       /* epoch of the place when the hold began */
        uint64_t until_ms;    /* end of --fleet-hold; 0: not held yet */
        uint64_t again_ms;    /* next attempt at the same owner; UINT64_MAX: no owner */
        uint64_t accept_ms;   /* with `offered`: end of the time to accept the body */
        bool misdirected;     /* the owner answered that it does not have the place */
        bool over;            /* --fleet-hold has passed */
        bool unserved;        /* this node owns the place, and has no worker for it yet */
        struct list_item hop; /* in hub->hops, while a different node serves the request */
        uint32_t node;        /* slot of that node */
    } hold;

    /* the request */
    uint64_t began_ms; /* when the first router of its nodes got its head */
    bool old;          /* HTTP/1.0 */
    bool head_request;
    bool messages_dialect;     /* errors have Anthropic's form */
    bool any;                  /* any worker may serve it */
    bool hops;                 /* a different node of the fleet serves it */
    bool repeatable;           /* serving it twice has the effect of serving it once */
    bool offered;              /* with `hops`: its body is not read until that node accepts it */
    bool expects;              /* the client waits for 100 Continue */
    bool unsent;               /* with `hops`: that node cannot be reached */
    bool closing;              /* the connection ends with its answer */
    char session[ID_TEXT_MAX]; /* id in the path, or "" */

    /* the exchange */
    struct link *link; /* NULL: the answer is ours, or the worker is done */
    struct flow up, down;
    struct buf replay;  /* the request as sent, for a second try; with `hops`: as received, with
                           `offered` only the head */
    struct buf partial; /* incomplete head or size line of the worker */
    unsigned tries;     /* number of upstreams that refused */
    bool resent;        /* was sent a second time */
    bool refused;       /* counts in hub->refused */
    bool farewell;      /* TLS: the answer is sent, but not the end of TLS */
    bool stuck;         /* the deadline is for the client to accept parked bytes */
    uint64_t stuck_at;  /* down.given_bytes when that deadline was set */
    bool spacious;      /* the request has space for header lines of ours */
    bool confirms;      /* the worker gets a confirmation when the client has the answer */
    bool finishes;      /* its worker gets the whole request even if the client leaves */
    int status;
};

/* Takes ownership of an accepted socket, which counts under `address` (callers.h). The state is
 * HEAD. Returns NULL after closing it if the loop refuses it. */
struct conn *conn_open(struct hub *h, int fd, struct str address, loop_io_fn on_client);

/* Changes the state. Only the changes in the drawing above are allowed. Without NDEBUG the
 * invariants of the new state are checked. */
void conn_set_state(struct conn *c, enum conn_state state);

/* Reports whether an answer (ours or the worker's) has begun, so that no other answer can be sent.
 */
static inline bool conn_answered(const struct conn *c)
{
    return c->answer >= ANSWER_BEGUN;
}

/* Closes both sides at once. May be called at any time. The memory stays valid until the end of the
 * turn. */
void conn_close(struct conn *c);

/* Frees its slot in a channel's table. Does nothing if it is not lent. */
void conn_not_lent(struct conn *c);

/* Removes it from the held ones. Does nothing if it is not held. */
void conn_not_held(struct conn *c);

/* Makes the kept request of the exchange unread input again, so that its head can be parsed a
 * second time. The caller sets the state. */
void conn_unread(struct conn *c);

/* Removes its socket from the loop, and adds it again; then the loop reports what is ready now. -1:
 * the loop refuses the socket. */
void conn_unwatch(struct conn *c);
int conn_watch(struct conn *c, struct err *e);

enum { CONN_GATHER_BYTES = 1 << 20 };

/* Switches the client's socket between events for any bytes and events for CONN_GATHER_BYTES or an
 * end. For long bodies, where each event costs more than reading some pages. Ends with the
 * exchange. */
void conn_gather(struct conn *c, bool on);

/* Continues the connection in the next turn (hub->run). */
void conn_again(struct conn *c);

/* Requests events when the client accepts bytes. The request stays, because TCP reports that only
 * after a refusal. */
void conn_want_out(struct conn *c);

/* Reads from the client like recv(2). */
ssize_t conn_read(struct conn *c, void *to, size_t size);

/* Sets the time at which hub->run is called with `late` set. */
void conn_set_deadline(struct conn *c, uint64_t delay_ms);
void conn_no_deadline(struct conn *c);

/* Marks the connection as known: it is not closed in favour of others any longer. */
void conn_known(struct conn *c);

/* Stops counting the body of its request, which is complete or no longer awaited. */
void conn_forget_body(struct conn *c);

/* Answers the current request, or a malformed head, with an error instead of a worker's answer. No
 * answer may have begun. The connection ends if framing or body are in doubt. The answer is parked,
 * so the exchange ends like any other. */
void conn_fail(struct conn *c, const struct err *e);

/* Ends our direction of the connection. Drops the bytes that the client sends within 2 s. */
void conn_linger(struct conn *c);

/* Reports whether the connection ends when the answer is written. */
bool conn_ends(const struct conn *c);

/* Ends an exchange whose answer is written: waits for the next request, lingers or closes. */
void conn_finish(struct conn *c);

#endif
