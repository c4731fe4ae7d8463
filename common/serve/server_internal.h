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
    size_t whole_bytes; /* head and body of the request; 0: its head contains no length (yet) */
    size_t room_bytes;  /* memory made for it at once; 0: none. Part of server->room_bytes */
    char *large_from, *large_to; /* range for which large pages were asked; NULL: none */
    bool unread;       /* the socket may have bytes that our watch does not report again */
    h2o_socket_cb had; /* libh2o's callback for what was read; NULL: libh2o reads, or no reader */
    struct loop_task more;    /* there is more to read */
    h2o_timeout_entry_t rest; /* linked: an exchange has ended in this turn */
};

struct body_coding;
struct lent;

/* One accepted connection; lives from accept to the close of its descriptor. */
struct server_conn {
    struct server *server;
    struct list_item item;  /* in server->conns */
    struct list_item noted; /* in a row of server->noted, while its note is open */
    struct loop_io watch;   /* EPOLLRDHUP, edge-triggered */
    int fd;
    h2o_socket_t *sock;      /* libh2o's; its input holds what of a request was read so far */
    size_t unfinished_bytes; /* bytes of its unfinished request, as counted last */
    struct intake intake;
    struct packed_input packed; /* the present or arriving request */
    struct lent *lent;          /* a client's, which a router has lent; or NULL */
    bool spoken;                /* something has come */
    size_t last_bytes;          /* size of its last request, if it is lent: the next is similar */
    bool refused;               /* it had most of what is too much */
    bool gone;                  /* the peer will send no more */
    bool announced;             /* the peer was notified that the server drains */
    bool shut;                  /* we read no more: the server drains */
    bool ends;                  /* the server's end has come to it */
    bool confirms;              /* the peer says what its client has been given */
    bool sent;                  /* the last answer went out to its last byte */
    struct exchange_note note;  /* note of the last answer */
    char note_key[EXCHANGE_NOTE_MAX];
    struct exchange *exchange; /* the present request, or NULL */
};

/* Waiting bytes of all answers that count for one owner. Lives while there are any. */
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
    h2o_socket_t *inner;
    h2o_timeout_entry_t due; /* linked: our loop has timers or tasks for this turn */
    struct list_head conns;
    struct list_head lenders;          /* routers' channels (lent.c) */
    struct list_head noted[NOTE_ROWS]; /* connections with a note, by the start of its key */
    size_t unfinished_bytes;           /* bytes of requests that are not complete */
    size_t room_bytes;                 /* made for what has not come yet */
    size_t body_bytes, answer_bytes;   /* bytes of exchanges; answers: without the shared ones */
    struct shared_answers answers;     /* shared answers that fly */
    size_t n_conns;
    struct loop_timer pause; /* pause of accepting */
    size_t busy;
    uint64_t turn_us; /* when the first callback of libh2o's turn came; 0: none yet */
    bool stop, draining;
    uint64_t patience_until_ms; /* draining: until then peers are waited for */
    struct exchange *awaiting;  /* exchanges that wait for pending answers */
    struct loop_task settled;
    struct list_head late;  /* owners of exchanges whose handler is called in a later turn */
    struct map late_owners; /* by name */
    struct loop_task begin_late;
};

/* A copy of a request's head. */
struct exchange_head {
    struct str method, path, authority; /* the path with its query */
    size_t query_at;
    size_t n;

    struct exchange_header {
        struct str name, value;
    } * headers;
};

/* One reference is libh2o's: the end of the request's pool calls exchange_dispose. */
struct exchange {
    h2o_generator_t generator; /* first: libh2o hands it back */
    h2o_req_t *req;            /* NULL: libh2o has freed it */
    struct server_conn *conn;  /* NULL: req is */
    struct server *server;
    unsigned refs;
    struct exchange_head *head; /* own, of a retained one; or NULL */
    bool over;                  /* no peer is left to be answered */
    VEC(struct buf) parts;      /* to be sent, each long enough; those before the first went */
    size_t first_part, parts_bytes;
    struct buf waiting;             /* to be sent after them */
    struct buf flying;              /* libh2o reads from it */
    struct shared_answer *shared;   /* instead of `flying`, or NULL */
    struct unread_account *account; /* account that it counts for, or NULL */
    struct list_item accounted;     /* in its account's list of exchanges */
    size_t counted;                 /* bytes that wait, of the account's */
    size_t own_counted;             /* its bytes in server->answer_bytes that are not shared */
    size_t body_bytes;              /* its bytes in server->body_bytes */
    struct body_coding *coding;     /* NULL: the body has no Content-Encoding */
    bool begun, sending, ending, failing, final;
    bool held;      /* exchange_hold: the request is still read */
    bool abandoned; /* meanwhile */
    bool stranded;  /* for ever: exchange_strand */
    bool cut;       /* too much of it waited: exchange_cut_unread */
    unsigned owed;  /* calls of exchange_heed that are to come */
    bool unheard;   /* the peer left meanwhile; `closed` was not called yet */
    exchange_closed_fn closed;
    void *closed_ctx;
    exchange_more_fn more;
    void *more_ctx;
    bool pulling;          /* inside `more` */
    exchange_more_fn room; /* once */
    void *room_ctx;
    struct list_item late;     /* in its owner's list in server->late */
    struct exchange_wait wait; /* in server->awaiting */
    bool settled;              /* the answer that it waits for has arrived or is lost */
    uint64_t wait_until_ms;    /* 0: it has not waited yet */
    struct loop_timer wait_end;
    struct exchange *next_awaiting;
};

static inline struct str str_of_iovec(h2o_iovec_t v)
{
    return str_of(v.base ? v.base : "", v.len);
}

/* While draining, on a connection without an answer under way: asks the peer to begin no further
 * request on it (HTTP1_RETIRING). One that it has begun is served, and its answer says "Connection:
 * close", unless the peer confirms: then it closes itself. */
void server_announce(struct server_conn *c);

/* Whether something is noted of the last answer, and not settled. */
static inline bool server_noted(const struct server_conn *c)
{
    return c->note.arrived != NULL;
}

/* The connections whose note's key may begin as this one does. */
static inline struct list_head *server_notes(struct server *s, struct str key)
{
    return &s->noted[str_hash(str_sub(key, 0, EXCHANGE_NOTE_START), 0) % NOTE_ROWS];
}

/* Closes the connection's note: the answer has arrived, or is lost. */
void server_close_note(struct server_conn *c, bool arrived);

/* Settles it if a peer that confirms has done so. */
void server_check_confirmation(struct server_conn *c);

/* intake.c: stops libh2o's reading, if it reads; from now on we read for it. */
void intake_stop_libh2o(struct server_conn *c);

/* Reads the start of a request, or more of it; called when bytes may have come and no request is
 * present. c may be gone then. */
void intake_read(struct server_conn *c);

/* Forgets the input: the request is complete, or the connection has ended. */
void intake_forget(struct server_conn *c);

/* Handles that the peer left before the present request was begun: a later task abandons its
 * exchange. */
void intake_pass_end(struct server_conn *c);

/* Lets libh2o read again. */
void intake_resume_libh2o(struct server_conn *c);

/* server.c: ends an exchange of c. Unread bytes in the socket are read after libh2o has released
 * its request. */
void server_end_exchange(struct server_conn *c);

/* Counts the arrived bytes of c's request for --max-worker-body-bytes. Above it, one request is
 * refused. */
void server_count_input(struct server_conn *c);

/* Like server_count_input, of c's exchange, whose body is decoded so far. */
void server_count_decoded(struct server_conn *c, size_t bytes);

/* Counts the bytes of c's request while it is incomplete; 0: it is complete. */
void server_count_unfinished(struct server_conn *c, size_t bytes);

/* A lent connection of this descriptor, which becomes libh2o's, watched by the other one, which
 * stays the caller's. *ret is set before anything is read. */
void server_open_lent(struct server *s, int fd, int watch_fd, struct lent *t,
                      struct server_conn **ret);

/* lent.c: whether these are a router's channel. Takes the descriptors (-1: none). */
bool lent_introduced(struct server *s, struct str first, const int fds[2]);

/* Marks a lent connection in the page before the first byte of it is read. */
void lent_reads(struct server_conn *c);

/* Decides after a read of a lent connection. False: it was returned, and c is gone. */
bool lent_goes_on(struct server_conn *c);

/* There is nothing to read now. */
void lent_rests(struct server_conn *c);

/* Marks that answer bytes may be written from now on, or that no peer is left to read them. */
void lent_answers(struct server_conn *c);

/* An answer went out whole, and the connection is kept. */
void lent_answered(struct server_conn *c);

/* Asks for the connection's return; it goes back when it is idle. */
void lent_recall(struct server_conn *c);

/* Returns c to its router if it must go back; true: c is gone. Accepts any connection. */
bool lent_leaves(struct server_conn *c);

/* Keeps the connection in memory for ever: the router closes it. */
void lent_strand(struct server_conn *c);

/* Ends the loan of a connection that libh2o has closed. */
void lent_closed(struct server_conn *c);

/* Messages to routers that wait for room in their channels. */
size_t lent_unsent(const struct server *s);

/* Stops lending and closes idle lent connections. Nothing is left after the last connection. */
void lent_end_all(struct server *s);

/* deferred.c: x is to be begun in a later turn. */
void deferred_add(struct server *s, struct exchange *x);

/* Removes and returns the next exchange to begin; NULL: there is none. */
struct exchange *deferred_next(struct server *s);

/* Frees the owners at the server's end. */
void deferred_done(struct server *s);

struct exchange *exchange_new(struct server_conn *conn, h2o_req_t *req);

/* Decodes a piece of a body with a Content-Encoding. True: the body is there, or refused; of most
 * requests at once. */
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

/* unread.c: what waits of x may have changed. */
void unread_count(struct exchange *x);

/* Stops counting the exchange for its account. */
void unread_leave(struct exchange *x);

/* Takes x off those that await, and lets it look again. */
void exchange_again(struct exchange *x);

/* Reports whether libh2o has all of the answer and has not reported its end. The kernel may have
 * taken it, and the peer may have read it and left. */
bool exchange_given(const struct server_conn *c);

/* The peer has left: as exchange_abandon, unless what x asks is carried out all the same. */
void exchange_left(struct exchange *x);

/* Ends the exchange because the peer has left or the server ends; calls its owner. */
void exchange_abandon(struct exchange *x);

#endif
