/*
 * struct exchange: one HTTP request and its answer. The server makes it and passes it to the
 * handler. The handler may use it until it has ended the answer (reply, end, fail) or `closed` was
 * called. After an end only `closed` follows, once. Answers are sent with backpressure: bytes that
 * the client does not accept yet wait here (exchange_waiting counts them).
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
struct str exchange_query(const struct exchange *x);     /* the text after the '?', may be empty */
struct str exchange_body(const struct exchange *x);      /* opens all of it */
struct str exchange_authority(const struct exchange *x); /* the Host header */
struct str exchange_header(const struct exchange *x, const char *name); /* absent: p NULL */

/* The body, of which no byte may be read before exchange_open_body was called with its place: a
 * long one is packed where it is base64. The holder of x may call both, on any thread. */
struct str exchange_closed_body(const struct exchange *x);
void exchange_open_body(const struct exchange *x, struct str part);

/* Why the body could not be decoded (Content-Encoding), and is empty; NULL: it is there. Borrowed.
 */
const struct err *exchange_body_error(const struct exchange *x);

/* Adds the keys that the request shows. */
void exchange_keys(const struct exchange *x, struct presented *to);

/* Keeps x and the head of its request in memory until exchange_release. `closed` comes when the
 * answer has ended or the peer has left; after that nothing is sent. A draining server counts x as
 * busy until the release. */
void exchange_retain(struct exchange *x);
void exchange_release(struct exchange *x);

/* Returns the owner of the request: requests share the loop by owner (server_options.owner). */
struct str exchange_owner(const struct exchange *x);

/* Keeps the body of the request in memory, too, until exchange_unhold: another thread reads it. The
 * peer may leave meanwhile (`closed` comes at once). Holds do not nest. */
void exchange_hold(struct exchange *x);

/* x may be gone then. */
void exchange_unhold(struct exchange *x);

/* Instead of exchange_unhold: the other thread is stuck, and may read the request for ever. So x,
 * its request and its connection stay in memory until the process ends, and x counts as over:
 * `closed` is not called. An answer by exchange_reply follows at once, unless the peer has left; it
 * goes past libh2o, as far as the socket takes it now, and ends the connection. */
void exchange_strand(struct exchange *x);

/* Frees the memory of a fragment of the body that is not read again; it may read as zeros
 * afterwards. The holder of x may call it, on any thread. */
void exchange_drop_body(const struct exchange *x, struct str part);

/* A header of the answer, before it starts. The name is a literal, the value is copied. */
void exchange_set_header(struct exchange *x, const char *name, struct str value);

/* Called once when the exchange is over: delivered when the last byte was taken by a client that
 * is still there. May come at any time after exchange_watch, also before the answer has begun. */
typedef void (*exchange_closed_fn)(void *ctx, bool delivered);
void exchange_watch(struct exchange *x, exchange_closed_fn closed, void *ctx);

/* Carries x's request out even if its peer leaves. That the peer left is kept until exchange_heed
 * was called n times (after the latest of these calls), or an answer begins. `closed` follows in a
 * later turn. If the server ends, `closed` is called at once. */
void exchange_finish(struct exchange *x, unsigned n);
void exchange_heed(struct exchange *x);

/* Reports whether some of those calls are still to come. Until then nothing may be sent: libh2o
 * would close x if its peer has left. */
bool exchange_finishing(const struct exchange *x);

/* An action for when the answer has arrived at the client. A peer that confirms (HTTP1_CONFIRMS)
 * reports that it has passed on the last byte, or sends its next request. Without confirmations an
 * answer counts as delivered when the kernel has accepted its last byte and the peer is still
 * connected. That is a weaker promise, since the kernel may still lose bytes. */
struct exchange_note {
    struct str key;                             /* EXCHANGE_NOTE_START bytes or more, at most
                                                   EXCHANGE_NOTE_MAX; copied */
    void (*arrived)(void *ctx, struct str key); /* never when it is lost */
    void (*drop)(void *ctx);                    /* after that, or when it is lost; or NULL */
    void *ctx;
};

/* Sets the action of x's answer; call it before the answer's end. */
void exchange_note(struct exchange *x, const struct exchange_note *note);

/* Removes the note, because a different answer goes out. Exchanges that wait for the answer
 * continue. */
void exchange_unnote(struct exchange *x);

/* Runs the actions of arrived answers whose key begins with key_start, at once instead of when the
 * loop comes to them. key_start has EXCHANGE_NOTE_START bytes or more. x is any exchange of the
 * server. Reads the notes with that start, not all connections. */
void exchange_check_delivery(struct exchange *x, struct str key_start);

/* Whether an answer with this key is under way on a connection that lives: it will have arrived or
 * be lost. */
bool exchange_under_way(const struct exchange *x, struct str key);

/* Calls `again` once, when a pending answer whose key begins with key_start has arrived or was
 * lost, or when x has waited for the given time in all (0: no limit). So a slow reader delays
 * others only for that time. Returns false if x's time is over. Does not call if x closes before.
 * key_start is borrowed until then. */
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

/* Sends the answer, which has not begun, to the log only, since the peer has left. A client that
 * half closed its lent connection would read the answer, so that connection ends here. A router
 * reads it and discards it. */
void exchange_mute(struct exchange *x);

/* The whole answer at once; body is copied, and left out where the status has none (204, 304). */
void exchange_reply(struct exchange *x, int status, const char *content_type, struct str body);

/* Replies like exchange_reply, but takes the bytes of `body`, which is empty afterwards; nothing is
 * copied. */
void exchange_reply_buf(struct exchange *x, int status, const char *content_type, struct buf *body);

/* Counts this answer's waiting bytes for the owner (copied) from now on. Call it once. */
void exchange_account(struct exchange *x, struct str owner);

/* Bytes that wait in all answers of an owner; x is any exchange of the server. */
size_t exchange_owner_waiting(const struct exchange *x, struct str owner);

/* Limits the waiting bytes of the answers of x's owner, if it has one, to max_bytes. While they
 * exceed it, cuts the unfinished answer with most waiting bytes: its connection closes, its waiting
 * and later bytes are dropped, and `closed` follows in a later turn. If all unfinished
 * answers together have at most max_bytes, one with at most EXCHANGE_WINDOW waiting bytes is not
 * cut. Returns the number of cut answers, x perhaps among them. */
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
 * exchange_fail, which may free x while it is in use. An error of `room` must be handled from the
 * loop. */
void exchange_on_space(struct exchange *x, exchange_more_fn room, void *ctx);

/* While draining: nothing was done about the request that cannot be done again by the worker's
 * successor. Closes without an answer, upon which the router asks that one. */
void exchange_hand_back(struct exchange *x);

/* Ends a started answer visibly broken: the connection closes without the last chunk. */
void exchange_fail(struct exchange *x);

#endif
