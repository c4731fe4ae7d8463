/*
 * struct conn: one client connection and the exchange that runs on it.
 *
 *     HEAD    waiting for (the rest of) a request head
 *     RELAY   an exchange: request flowing up, answer flowing down; or a local answer flowing down
 *     LINGER  the answer is out but the client still sends: read and drop for at most 2 s, so that
 *             it sees the answer and not a reset
 *     CLOSED  descriptors closed; the memory goes at the end of the turn
 *
 * A conn owns its link while an exchange needs it. conn.c reads heads, keeps deadlines and closes;
 * relay.c moves the bytes of an exchange.
 */
#ifndef RG_ROUTER_CONN_H
#define RG_ROUTER_CONN_H

#include "common/proc/ids.h"
#include "router/flow.h"
#include "router/hub.h"

enum conn_state { CONN_HEAD, CONN_RELAY, CONN_LINGER, CONN_CLOSED };

struct conn {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task; /* the next turn of a busy connection; the end of a closed one */
    struct hub *hub;
    struct conn *next, *prev;
    struct conn *next_stranger, *prev_stranger;
    int fd;
    enum conn_state state;
    uint64_t deadline_ms; /* UINT64_MAX: none */

    struct buf in;  /* bytes of the client behind the current request, or a part of a head */
    size_t in_seen; /* of them, looked at by the head parser */
    bool readable;  /* an edge said so and no EAGAIN since */
    bool hup;       /* the client will send no more, or is gone */
    bool known;     /* a request of it passed the gate: it is no stranger */
    struct caller *address;
    struct caller *session_key; /* that it last proved, or NULL */

    /* the body of the request, while it is incomplete (bodies.h) */
    uint64_t body_bytes;       /* taken of it */
    uint64_t body_fresh_bytes; /* since patience was last looked at */
    uint64_t body_seen_ms;     /* then */
    uint64_t body_left_ms;     /* and what was left */
    bool body_waits;           /* its bytes are what we wait for */
    const char *over_budget;   /* it is to be refused for this setting; or NULL */

    /* the request */
    bool keep_alive; /* the client will send another one */
    bool old;        /* HTTP/1.0 */
    bool head_request;
    bool messages_dialect;     /* error shape */
    bool any;                  /* no worker is named: another one will do */
    char session[ID_TEXT_MAX]; /* of the path, or "" */

    /* the exchange */
    struct link *link; /* NULL: a local answer, or the worker's part is over */
    struct flow up, down;
    struct buf replay;  /* the request as sent so far, while it may be sent again; or empty */
    struct buf partial; /* of the worker: a part of its head, or of a size line */
    int pipe[2];        /* of a spliced upload, -1: none */
    size_t piped_bytes;
    unsigned tries;     /* upstreams that refused */
    bool resent;        /* sent a second time */
    bool up_broken;     /* the worker takes no more; its answer may still be there */
    bool interim;       /* a 1xx went out */
    bool handed_back;   /* the worker retires: if it closes without an answer, it has not acted */
    bool answered;      /* the head of the final answer went out */
    bool link_reusable; /* the worker keeps the connection after this answer */
    bool confirms;      /* the worker is to be told when the client has the answer */
    bool truncated;     /* the answer broke off: close without an end */
    bool closing;       /* the connection ends with this answer */
    int status;
};

/* Takes over an accepted socket that counts under `address` (callers.h). */
void conn_new(struct hub *h, int fd, struct str address);

/* The same for one that is over the limit: answers 503 and closes. */
void conn_refuse(struct hub *h, int fd, struct str address, const struct err *e);

/* Closes the oldest connection that has proved nothing: none of its requests went to a worker.
 * Returns whether there was one. */
bool conn_make_room(struct hub *h);

/* Closes both sides at once. The memory stays valid until the end of the turn. */
void conn_close(struct conn *c);

/* Goes on with whatever can be done now. */
void conn_run(struct conn *c);

/* At this time at the latest conn looks whether somebody is too slow. */
void conn_set_deadline(struct conn *c, uint64_t delay_ms);
void conn_no_deadline(struct conn *c);

/* Answers the current request (or the head that cannot be one) with an error instead of a worker's
 * answer; the connection ends when its framing or body is in doubt. Nothing may have been answered.
 */
void conn_fail(struct conn *c, const struct err *e);

/* The exchange is over and all of it is written: next request, linger or close. */
void conn_finish(struct conn *c);

/* Closes what has no request running and none waiting in the socket; for the drain. */
void conn_close_idle(struct hub *h);

#endif
