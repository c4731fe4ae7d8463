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
struct waiter;

/* Everything returned here is borrowed until the answer has ended. Header names are in lower case.
 */
struct str exchange_method(const struct exchange *x);
struct str exchange_path(const struct exchange *x);      /* raw bytes, without the query */
struct str exchange_query(const struct exchange *x);     /* the text after the '?', may be empty */
struct str exchange_body(const struct exchange *x);      /* unpacks all of the body */
struct str exchange_authority(const struct exchange *x); /* the Host header */
struct str exchange_header(const struct exchange *x, const char *name); /* absent: p NULL */

/* Returns for how many ms the client has waited at other workers, which were lost or handed the
 * request back. */
uint64_t exchange_waited_ms(const struct exchange *x);

/* Returns header i of the request. Returns false after the last one. */
bool exchange_header_at(const struct exchange *x, size_t i, struct str *ret_name,
                        struct str *ret_value);

/* The body without unpacking it: a long body is packed where it is base64. Call exchange_open_body
 * with a range of the body before you read that range. The holder of x may call both functions, on
 * any thread. */
struct str exchange_closed_body(const struct exchange *x);
void exchange_open_body(const struct exchange *x, struct str part);

/* Returns why the body could not be decoded (Content-Encoding); the body is empty then. NULL: the
 * body is there. Borrowed. */
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

/* Ends the hold. The call may free x. */
void exchange_unhold(struct exchange *x);

/* Replaces exchange_unhold when the other thread is stuck and may read the request for ever. So x,
 * its request and its connection stay in memory until the process ends. x counts as over: `closed`
 * is not called. An answer by exchange_reply follows at once, unless the peer has left. The answer
 * bypasses libh2o: the socket gets as much as it accepts now, then the connection ends. */
void exchange_strand(struct exchange *x);

/* Frees the memory of a fragment of the body that is not read again. The fragment may read as zeros
 * afterwards. The holder of x may call this, on any thread. */
void exchange_drop_body(const struct exchange *x, struct str part);

/* Sets a header of the answer before the answer starts. The name is a literal, the value is copied.
 */
void exchange_set_header(struct exchange *x, const char *name, struct str value);

/* Called once when the exchange is over. delivered: the kernel has accepted the last byte, and the
 * peer, which may be a router, is still connected; the kernel may still lose bytes. The call may
 * come at any time after exchange_watch, even before the answer has begun. */
typedef void (*exchange_closed_fn)(void *ctx, bool delivered);
void exchange_watch(struct exchange *x, exchange_closed_fn closed, void *ctx);

/* Carries out x's request even if its peer leaves. The exchange hides the peer's leaving until
 * exchange_heed was called n times (counted from the latest exchange_finish), or an answer begins.
 * `closed` follows in a later loop iteration. If the server ends, `closed` is called at once. */
void exchange_finish(struct exchange *x, unsigned n);
void exchange_heed(struct exchange *x);

/* Reports whether calls of exchange_heed are still to come. Until then nothing may be sent: libh2o
 * would close x if its peer has left. */
bool exchange_finishing(const struct exchange *x);

/* An action for when the answer has arrived. A peer that confirms (HTTP1_CONFIRMS), as routers do,
 * reports that it has passed on the last byte, or sends its next request. Without confirmations an
 * answer counts as arrived when it is `delivered` (exchange_closed_fn). That is a weaker promise.
 */
struct exchange_note {
    /* EXCHANGE_NOTE_START to EXCHANGE_NOTE_MAX bytes; copied */
    struct str key;
    void (*arrived)(void *ctx, struct str key); /* not called if the answer is lost */
    /* called after `arrived`, or when the answer is lost; or NULL */
    void (*drop)(void *ctx);
    void *ctx;
};

/* Sets the action of x's answer; call it before the answer's end. */
void exchange_note(struct exchange *x, const struct exchange_note *note);

/* Removes the note, because a different answer is sent. Exchanges that wait for the noted answer
 * continue. */
void exchange_unnote(struct exchange *x);

/* Runs the actions of arrived answers whose key begins with key_start now, without waiting for the
 * loop. key_start has EXCHANGE_NOTE_START bytes or more. x is any exchange of the server. Reads
 * only the notes with that start, not all connections. */
void exchange_check_delivery(struct exchange *x, struct str key_start);

/* Reports whether an answer with this key is pending on a connection that still exists. The answer
 * will then either arrive or be lost. */
bool exchange_under_way(const struct exchange *x, struct str key);

/* Wakes `known` once, when a pending answer whose key begins with key_start has arrived or was
 * lost. A limit (0: none) bounds how long x waits in all: `known` is also woken when the limit is
 * reached. So a slow reader delays others only for that time. Returns false if x has used up its
 * time. If x closes first, `known` is not woken. key_start and known are borrowed until then. */
bool exchange_await(struct exchange *x, struct str key_start, uint64_t max_ms,
                    struct waiter *known);

/* Asks the kernel whether the peer has left. The kernel may know before the loop does. */
bool exchange_peer_gone(const struct exchange *x);

/* Writes the answer, which has not begun, to the log only, because the peer has left. A client that
 * has closed only its sending side would still read an answer. So a lent connection ends here. A
 * router reads the answer and discards it. */
void exchange_mute(struct exchange *x);

/* Sends a whole answer. The body is copied. A status that has no body (204, 304) is sent without
 * it. */
void exchange_reply(struct exchange *x, int status, const char *content_type, struct str body);

/* Like exchange_reply, but takes ownership of the bytes of `body` instead of copying them. `body`
 * is empty afterwards. */
void exchange_reply_buf(struct exchange *x, int status, const char *content_type, struct buf *body);

/* Counts the waiting bytes of this answer for the owner from now on. Call it once. The owner's name
 * is copied. */
void exchange_account(struct exchange *x, struct str owner);

/* Returns the bytes that wait in all answers of an owner. x is any exchange of the server. */
size_t exchange_owner_waiting(const struct exchange *x, struct str owner);

/* Limits the waiting bytes of all answers of x's owner, if x has one, to max_bytes. While they
 * exceed the limit, cuts the unfinished answer with most waiting bytes: its connection closes, its
 * waiting and later bytes are dropped, and `closed` follows in a later loop iteration. An answer
 * with at most EXCHANGE_WINDOW waiting bytes is cut only if the unfinished answers alone exceed
 * max_bytes. Returns the number of cut answers; x may be one. */
unsigned exchange_cut_unread(struct exchange *x, size_t max_bytes);

/* Sends a streamed answer (200): exchange_start sends the head, exchange_send the bytes of `bytes`,
 * which is empty afterwards, exchange_end the end. */
void exchange_start(struct exchange *x, const char *content_type);
bool exchange_started(const struct exchange *x);
void exchange_send(struct exchange *x, struct buf *bytes);
size_t exchange_waiting(const struct exchange *x);

void exchange_end(struct exchange *x);

/* Calls `room` once, when less than a window of bytes is waiting. `room` must not call
 * exchange_fail, which may free x while x is in use. Handle an error in `room` later, from the
 * loop. */
typedef void (*exchange_space_fn)(void *ctx);
void exchange_on_space(struct exchange *x, exchange_space_fn room, void *ctx);

/* Closes x without an answer, so that the router sends the request to this worker's successor. Call
 * it only while draining, and only if nothing was done that the successor cannot repeat. */
void exchange_hand_back(struct exchange *x);

/* Cuts a started answer that its client does not read: its connection closes, its waiting and later
 * bytes are dropped, and `closed` follows in a later loop iteration. */
void exchange_cut(struct exchange *x);

/* Ends a started answer visibly broken: the connection closes without the last chunk. */
void exchange_fail(struct exchange *x);

#endif
