/*
 * struct exchange: one HTTP request and its answer. Made by the server and given to the handler,
 * who may use it until he has ended the answer (reply, end, fail) or `closed` was called; behind an
 * end only `closed` still comes, once. Answers are sent with backpressure: bytes that the
 * client does not take yet wait here, exchange_waiting tells how many.
 */
#ifndef RG_SERVE_EXCHANGE_H
#define RG_SERVE_EXCHANGE_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

enum { EXCHANGE_WINDOW = 256 << 10, EXCHANGE_NOTE_START = 16, EXCHANGE_NOTE_MAX = 160 };

struct err;
struct exchange;
struct presented;

/* All borrowed until the answer has ended. Header names in lower case. */
struct str exchange_method(const struct exchange *x);
struct str exchange_path(const struct exchange *x);      /* raw bytes, without the query */
struct str exchange_query(const struct exchange *x);     /* behind the '?', may be empty */
struct str exchange_body(const struct exchange *x);      /* opens all of it */
struct str exchange_authority(const struct exchange *x); /* the Host header */
struct str exchange_header(const struct exchange *x, const char *name); /* absent: p NULL */

/* The body, of which no byte may be read before exchange_open_body was called with its place: a
 * long one is packed where it is base64. Whoever holds x may call both, on any thread. */
struct str exchange_closed_body(const struct exchange *x);
void exchange_open_body(const struct exchange *x, struct str part);

/* Why the body could not be decoded (Content-Encoding), and is empty; NULL: it is there. Borrowed.
 */
const struct err *exchange_body_error(const struct exchange *x);

/* Adds the keys that the request shows. */
void exchange_keys(const struct exchange *x, struct presented *to);

/* Keeps x and the head of its request in memory until exchange_release. `closed` comes when the
 * answer has ended or the peer has left; after that nothing is sent any more. A server that drains
 * counts x as busy until the release. */
void exchange_retain(struct exchange *x);
void exchange_release(struct exchange *x);

/* Returns the owner by whom requests share the loop (server_options.owner). */
struct str exchange_owner(const struct exchange *x);

/* Keeps the body of the request in memory, too, until exchange_let: another thread reads it. The
 * peer may leave meanwhile (`closed` comes at once). Holds do not nest. */
void exchange_hold(struct exchange *x);

/* x may be gone then. */
void exchange_let(struct exchange *x);

/* Instead of exchange_let: the other thread is stuck, and may read the request for ever. So x, its
 * request and its connection stay in memory until the process ends, and x counts as over: `closed`
 * is not called. An answer by exchange_reply follows at once, unless the peer has left; it goes
 * past libh2o, as far as the socket takes it now, and ends the connection. */
void exchange_strand(struct exchange *x);

/* Gives back memory of a part of the body that nobody reads again; it may read as zeros then.
 * Whoever holds x may call it, on any thread. */
void exchange_drop_body(const struct exchange *x, struct str part);

/* A header of the answer, before it starts. The name is a literal, the value is copied. */
void exchange_set_header(struct exchange *x, const char *name, struct str value);

/* Called once when the exchange is over: delivered when the last byte was taken by a client that
 * is still there. May come at any time after exchange_watch, also before the answer has begun. */
typedef void (*exchange_closed_fn)(void *ctx, bool delivered);
void exchange_watch(struct exchange *x, exchange_closed_fn closed, void *ctx);

/* What x asks is carried out whether or not its peer stays: that the peer left is kept until
 * exchange_heed was called n times (after the latest of these calls), or an answer begins; `closed`
 * comes in a later turn then. The server's end tells at once. */
void exchange_finish(struct exchange *x, unsigned n);
void exchange_heed(struct exchange *x);

/* Whether some of those calls are still to come. Until then nothing may be sent: libh2o would
 * close x at what a peer that left does not take. */
bool exchange_finishing(const struct exchange *x);

/* What is to be done when the answer has arrived at the client. A peer that confirms
 * (HTTP1_CONFIRMS) says when it has handed the last byte on, or sends its next request. Without
 * confirmations, an answer counts as delivered once the kernel has accepted its last byte and the
 * peer is still connected: that is less, for the kernel may still lose what it holds. */
struct exchange_note {
    struct str key;                             /* EXCHANGE_NOTE_START bytes or more, at most
                                                   EXCHANGE_NOTE_MAX; copied */
    void (*arrived)(void *ctx, struct str key); /* never when it is lost */
    void (*drop)(void *ctx);                    /* after that, or when it is lost; or NULL */
    void *ctx;
};

/* Before the end of the answer. */
void exchange_note(struct exchange *x, const struct exchange_note *note);

/* Takes the note back: the answer does not go out, another one does. Who awaits it goes on. */
void exchange_unnote(struct exchange *x);

/* Tells now of answers whose key begins so (EXCHANGE_NOTE_START bytes or more) and that have
 * arrived though the loop has not come to it. x is any exchange of the server. Looks at the notes
 * with that start, not at all connections. */
void exchange_settle(struct exchange *x, struct str key_start);

/* Whether an answer with this key is under way on a connection that lives: it will have arrived or
 * be lost. */
bool exchange_under_way(const struct exchange *x, struct str key);

/* Calls `again` once, when an answer under way whose key begins so has arrived or was lost, or when
 * x has waited for that long in all (0: no limit): who reads slowly holds nobody up for ever.
 * False: it has. Not when x closes before. key_start is borrowed until then. */
typedef void (*exchange_again_fn)(void *ctx);

struct exchange_wait {
    struct str key_start;
    uint64_t max_ms;
    exchange_again_fn again;
    void *ctx;
};

bool exchange_await(struct exchange *x, const struct exchange_wait *w);

/* Whether the peer has left, asked of the kernel now: it may know before the loop does. */
bool exchange_peer_gone(const struct exchange *x);

/* The answer, which has not begun, is for the log alone: its peer has left. A client that half
 * closed its lent connection would read it, so that connection ends here; a router reads it and
 * has nobody to hand it on to. */
void exchange_mute(struct exchange *x);

/* The whole answer at once; body is copied, and left out where the status has none (204, 304). */
void exchange_reply(struct exchange *x, int status, const char *content_type, struct str body);

/* The same; takes what `body` holds, which is empty then: nothing is copied. */
void exchange_reply_buf(struct exchange *x, int status, const char *content_type, struct buf *body);

/* What waits of this answer counts for this owner (copied), from now on; once. */
void exchange_account(struct exchange *x, struct str owner);

/* Bytes that wait in all answers of an owner; x is any exchange of the server. */
size_t exchange_owner_waiting(const struct exchange *x, struct str owner);

/* While more than max_bytes wait in the answers of x's owner, if it has one, cuts the one that has
 * most waiting of those that have not ended: its client finds the connection closed, what waits is
 * dropped, as is what is sent from now on, and `closed` follows in a later turn. Where answers that
 * have ended are what waits, one with less than a window is left. How many were cut, x perhaps
 * among them. */
unsigned exchange_cut_unread(struct exchange *x, size_t max_bytes);

/* A streamed answer (200): head now, then bytes, then end. exchange_send empties `bytes`. */
void exchange_start(struct exchange *x, const char *content_type);
bool exchange_started(const struct exchange *x);
void exchange_send(struct exchange *x, struct buf *bytes);
size_t exchange_waiting(const struct exchange *x);

/* Calls `more` now and whenever less than a window of bytes is waiting, until the end: for answers
 * that are made piece by piece. */
typedef void (*exchange_more_fn)(void *ctx);
void exchange_pull(struct exchange *x, exchange_more_fn more, void *ctx);

void exchange_end(struct exchange *x);

/* Calls `room` once, when less than a window of bytes is waiting. `room` must not call
 * exchange_fail, which may free x: x is used behind it. What fails because of it fails from the
 * loop. */
void exchange_on_room(struct exchange *x, exchange_more_fn room, void *ctx);

/* While draining: nothing was done about the request that cannot be done again by the worker's
 * successor. Closes without an answer, upon which the router asks that one. */
void exchange_hand_back(struct exchange *x);

/* Ends a started answer visibly broken: the connection closes without the last chunk. */
void exchange_fail(struct exchange *x);

#endif
