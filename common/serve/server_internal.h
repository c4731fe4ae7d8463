/*
 * Shared by server.c, exchange.c and other files of this folder: connections and exchanges with
 * their libh2o halves.
 */
#ifndef RG_SERVE_SERVER_INTERNAL_H
#define RG_SERVE_SERVER_INTERNAL_H

#include <netinet/in.h>

#include <h2o.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "common/serve/packed_input.h"
#include "common/serve/server.h"
#include "common/serve/shared_answer.h"

enum { NOTE_ROWS = 256 };

/* Input of a connection while no request is answered (intake.c). */
struct intake {
    /* bytes of head and body of the request; 0: its head contains no length, or is incomplete */
    size_t whole_bytes;
    /* memory made for the whole request; 0: none. Counted in server->room_bytes */
    size_t room_bytes;
    char *large_from, *large_to; /* range for which large pages were asked; NULL: none */
    bool unread; /* the socket may have bytes that our watch will not report again */
    /* libh2o's callback for bytes that were read; NULL: libh2o reads, or no reader is set */
    h2o_socket_cb had;
    struct loop_task more;    /* linked: more bytes can be read */
    h2o_timeout_entry_t rest; /* linked: an exchange has ended in this turn */
};

struct body_coding;
struct lent;

/* One accepted connection; lives from accept to the close of its descriptor. */
struct server_conn {
    struct server *server;
    struct list_item item;  /* in server->conns */
    struct list_item noted; /* in a row of server->noted while the note is open */
    struct loop_io watch;   /* EPOLLRDHUP, edge-triggered */
    int fd;
    /* libh2o's; its input has the bytes of the request that were read so far */
    h2o_socket_t *sock;
    size_t unfinished_bytes; /* bytes of its unfinished request at the last count */
    struct intake intake;
    struct packed_input packed; /* the present or arriving request */
    struct lent *lent;          /* loan of a client's connection by a router; or NULL */
    bool spoken;                /* bytes have come on this connection */
    /* size of the last request on a lent connection: the next one is similar */
    size_t last_bytes;
    /* the request was refused as the largest of too many unfinished bytes */
    bool refused;
    bool gone;                 /* the peer will send no more */
    bool announced;            /* the peer was notified that the server is draining */
    bool shut;                 /* we read no more, because the server is draining */
    bool ends;                 /* the connection is being closed because the server ends */
    bool confirms;             /* the peer confirms which answers its client has got */
    bool sent;                 /* the last answer was sent up to its last byte */
    struct exchange_note note; /* note of the last answer */
    char note_key[EXCHANGE_NOTE_MAX];
    struct exchange *exchange; /* the present request, or NULL */
};

/* Waiting bytes of all answers that count for one owner. Lives while at least one counts. */
struct unread_account {
    size_t bytes;
    struct list_head exchanges;
    struct str owner; /* name of the owner, in this block */
};

struct server {
    struct loop *loop;
    struct map unread; /* owner -> unread_account */
    struct server_options opt;
    server_handler_fn handler;
    void *handler_ctx;
    h2o_globalconf_t conf;
    h2o_context_t ctx;
    h2o_accept_ctx_t accept;
    h2o_evloop_t *evloop;
    h2o_socket_t **listeners;
    size_t n_listeners;
    struct loop_io libh2o; /* its epoll descriptor */
    struct loop_task run;  /* posted: libh2o has work */
    h2o_timeout_entry_t flush;
    bool changed; /* libh2o must poll: a socket reads, writes or was closed */
    struct list_head conns;
    struct list_head lenders;          /* routers' channels (lent.c) */
    struct list_head noted[NOTE_ROWS]; /* connections with a note, by the start of its key */
    size_t unfinished_bytes;           /* bytes of all incomplete requests */
    size_t room_bytes;                 /* memory made for bytes that have not come yet */
    /* bodies of exchanges; waiting answers without the shared ones */
    size_t body_bytes, answer_bytes;
    struct shared_answers answers; /* shared answers that are waiting or flying */
    size_t n_conns;
    struct loop_timer pause; /* linked: accepting is paused */
    size_t busy;
    bool stop, draining;
    uint64_t patience_until_ms; /* when a drain shuts the connections that peers keep open */
    struct exchange *awaiting;  /* exchanges that wait for pending answers */
    struct list_head late;      /* owners of exchanges whose handler is called in a later turn */
    struct map late_owners;     /* the owners of `late`, by name */
    struct loop_task begin_late;
};

/* A copy of a request's head. */
struct exchange_head {
    struct str method, path, authority; /* path: with its query */
    size_t query_at;
    size_t n;

    struct exchange_header {
        struct str name, value;
    } * headers;
};

/* libh2o holds one reference: the end of the request's pool calls exchange_dispose. */
struct exchange {
    h2o_generator_t generator; /* must be first: libh2o passes it to callbacks */
    h2o_req_t *req;            /* NULL: libh2o has freed it */
    struct server_conn *conn;  /* NULL: req is NULL, too */
    struct server *server;
    unsigned refs;
    struct exchange_head *head; /* copy that a retained exchange owns; or NULL */
    bool over;                  /* the exchange has no peer to answer */
    /* full buffers that wait to be sent; those before `first_part` are sent */
    VEC(struct buf) parts;
    size_t first_part, parts_bytes;
    struct buf waiting;             /* the buffer that still grows; sent after `parts` */
    struct buf flying;              /* the bytes that libh2o is sending */
    struct shared_answer *shared;   /* sent instead of `flying`, or NULL */
    struct unread_account *account; /* account that the exchange counts for, or NULL */
    struct list_item accounted;     /* in its account's list of exchanges */
    size_t counted;                 /* bytes that the account counts for this exchange */
    /* bytes of this exchange in server->answer_bytes, which has no shared ones */
    size_t own_counted;
    size_t body_bytes;          /* bytes of this exchange in server->body_bytes */
    struct body_coding *coding; /* NULL: the body has no Content-Encoding */
    bool begun, sending, ending, failing, final;
    bool held;      /* another thread reads the request (exchange_hold) */
    bool abandoned; /* the exchange ended while it was held */
    bool stranded;  /* the other thread is stuck (exchange_strand) */
    bool cut;       /* too many bytes waited (exchange_cut_unread) */
    unsigned owed;  /* calls of exchange_heed that are still to come */
    bool unheard;   /* the peer left meanwhile, and `closed` was not called yet */
    exchange_closed_fn closed;
    void *closed_ctx;
    exchange_space_fn room; /* called once (exchange_on_space) */
    void *room_ctx;
    struct list_item late;  /* in its owner's list in server->late */
    struct str awaited;     /* in server->awaiting: start of the key of the awaited answer */
    struct waiter *known;   /* woken when that answer has arrived or is lost */
    uint64_t wait_until_ms; /* end of its longest wait; 0: it has not waited yet */
    struct loop_timer wait_end;
    struct exchange *next_awaiting;
};

static inline struct str str_of_iovec(h2o_iovec_t v)
{
    return str_of(v.base ? v.base : "", v.len);
}

/* Lets libh2o work at the end of this iteration. Call it right after libh2o has written on the
 * socket, which may be closed since. If the kernel has taken all bytes, only libh2o's callback is
 * called. Otherwise, and for NULL, its loop polls its sockets. */
void server_run_libh2o(struct server *s, const h2o_socket_t *sock);

/* Asks the peer of a connection without a pending answer to begin no further request on it
 * (HTTP1_RETIRING). Call it while draining. A request that the peer has begun is served, and its
 * answer says "Connection: close". A peer that confirms closes the connection itself. */
void server_announce(struct server_conn *c);

/* Reports whether the last answer has a note that is still open. */
static inline bool server_noted(const struct server_conn *c)
{
    return c->note.arrived != NULL;
}

/* Returns the connections whose note's key may have the same start. */
static inline struct list_head *server_notes(struct server *s, struct str key)
{
    return &s->noted[str_hash(str_sub(key, 0, EXCHANGE_NOTE_START), 0) % NOTE_ROWS];
}

/* Closes the connection's note: the answer has arrived, or is lost. */
void server_close_note(struct server_conn *c, bool arrived);

/* Closes the note if a peer that confirms has confirmed the answer. */
void server_check_confirmation(struct server_conn *c);

/* intake.c: stops libh2o's reading, if it reads; from now on we read for it. */
void intake_stop_libh2o(struct server_conn *c);

/* Reads bytes of the next request. Called when bytes may have come and no request is present. May
 * free c. */
void intake_read(struct server_conn *c);

/* Forgets the input: the request is complete, or the connection has ended. (intake.c) */
void intake_forget(struct server_conn *c);

/* Handles a peer that left before the present request began: a later task abandons its exchange. */
void intake_pass_end(struct server_conn *c);

/* Lets libh2o read again. */
void intake_resume_libh2o(struct server_conn *c);

/* server.c: ends an exchange of c. Unread bytes in the socket are read after libh2o has released
 * its request. */
void server_end_exchange(struct server_conn *c);

/* Counts the arrived bytes of c's request for --max-worker-body-bytes. If the limit is exceeded,
 * refuses one request. */
void server_count_input(struct server_conn *c);

/* Like server_count_input, for the decoded bytes of the body of c's exchange. */
void server_count_decoded(struct server_conn *c, size_t bytes);

/* Counts the bytes of c's request while it is incomplete. 0: the request is complete. */
void server_count_unfinished(struct server_conn *c, size_t bytes);

/* Makes the connection of a lent descriptor. fd becomes libh2o's; watch_fd, which is watched,
 * remains the caller's. Sets *ret before anything is read. */
void server_open_lent(struct server *s, int fd, int watch_fd, struct lent *t,
                      struct server_conn **ret);

/* lent.c: reports whether the first bytes are those of a router's channel. If so, takes ownership
 * of the descriptors (-1: none). */
bool lent_introduced(struct server *s, struct str first, const int fds[2]);

/* Marks in the shared page that the first byte of a lent connection is read next. */
void lent_reads(struct server_conn *c);

/* Decides after a read of a lent connection whether it stays. False: it was returned, and c is
 * freed. */
bool lent_goes_on(struct server_conn *c);

/* Marks that a lent connection has nothing to read now. */
void lent_rests(struct server_conn *c);

/* Marks that answer bytes may be written from now on, or that no peer is left to read them. */
void lent_answers(struct server_conn *c);

/* Called when an answer was sent whole and the connection is kept. */
void lent_answered(struct server_conn *c);

/* Asks for the connection's return; it goes back when it is idle. */
void lent_recall(struct server_conn *c);

/* Returns c to its router if it must return. True: c is freed. Accepts connections of any kind. */
bool lent_leaves(struct server_conn *c);

/* Keeps the connection in memory for ever: the router will close it. */
void lent_strand(struct server_conn *c);

/* Ends the loan of a connection that libh2o has closed. */
void lent_closed(struct server_conn *c);

/* Returns the number of bytes of messages that routers' channels have not accepted yet. */
size_t lent_unsent(const struct server *s);

/* Ends all channels and closes idle lent connections. The last connection frees its channel. */
void lent_end_all(struct server *s);

/* deferred.c: adds x to the requests that begin in a later loop iteration. */
void deferred_add(struct server *s, struct exchange *x);

/* Removes and returns the next exchange to begin; NULL: there is none. */
struct exchange *deferred_next(struct server *s);

/* Frees the owners at the server's end. */
void deferred_done(struct server *s);

struct exchange *exchange_new(struct server_conn *conn, h2o_req_t *req);

/* Decodes a piece of a body that has a Content-Encoding. True: the body is complete or refused. For
 * bodies without an encoding that is so at once. */
bool exchange_decode_body(struct exchange *x);

/* Refuses a body that is being decoded; exchange_body_error has the reason. */
void exchange_refuse_body(struct exchange *x, const struct err *e);

/* Frees the decoded body. */
void exchange_free_coding(struct exchange *x);

/* Counts the bytes that are not handed to libh2o yet. */
static inline size_t exchange_unsent(const struct exchange *x)
{
    return x->parts_bytes + x->waiting.len;
}

/* Drops the waiting bytes of an exchange that is over. */
void exchange_drop_unsent(struct exchange *x);

/* unread.c: counts the waiting bytes of x again, after they may have changed. */
void unread_count(struct exchange *x);

/* Stops counting the exchange for its account. */
void unread_leave(struct exchange *x);

/* Removes x from the waiting exchanges and wakes its waiter. */
void exchange_wake(struct exchange *x);

/* Reports whether libh2o has the whole answer but has not reported its end. The kernel may have
 * accepted the answer, and the peer may have read it and left. */
bool exchange_given(const struct server_conn *c);

/* Handles that the peer has left: exchange_abandon, unless x must be carried out anyway. */
void exchange_left(struct exchange *x);

/* Ends the exchange because the peer has left or the server ends; calls its owner. */
void exchange_abandon(struct exchange *x);

#endif
