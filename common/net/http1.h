/*
 * HTTP/1.1 heads: a strict, pure parser of request and response heads, and the forwarding of a
 * head without its hop-by-hop lines. It alone decides the framing of the body.
 *
 * Refused (RFC 9112 allows a recipient each of these, most are musts): line ends other than CRLF,
 * obs-fold, NUL and control bytes, blanks before a colon, empty names, a second Content-Length
 * (even an equal one), Content-Length beside Transfer-Encoding, any Transfer-Encoding but one
 * "chunked", Transfer-Encoding in HTTP/1.0, no Host in HTTP/1.1, two Hosts, a Host that is not
 * host[:port], absolute, authority and asterisk targets, CONNECT and TRACE, methods with other
 * bytes than A-Z and '-', a Connection header that names Host or a framing header, HTTP/0.9.
 *
 * A parsed head borrows the input bytes: it is valid as long as they stay where they are. Nothing
 * here allocates, does I/O or knows the time. Limits are the caller's numbers.
 */
#ifndef RG_NET_HTTP1_H
#define RG_NET_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/str.h"

enum {
    HTTP1_NAMED_MAX = 16,
    HTTP1_OWN_BYTES = 512 /* bytes that a process of the gateway adds to a request's head */
};

/* An interim status between processes of the gateway: the sender will not accept further requests
 * on this connection. It still serves the request that it has been sent or is being sent, if any.
 * The receiver sends no other, and closes the connection when it is idle. Not forwarded to
 * clients. */
enum { HTTP1_RETIRING = 199 };

/* A request header between processes of the gateway. Its sender writes an empty line, which any
 * server skips before a request, when its own client has received the whole answer. If the
 * connection ends without an empty line or a next request, the answer was not delivered. */
#define HTTP1_CONFIRMS "rollgate-confirms"

/* A request header between two gateways: the sender forwards the request to the node that owns its
 * session, which must not forward it again. The value is the sender's own worker indexes,
 * FIRST-LAST, in a fleet its name and a proof. */
#define HTTP1_FORWARDED_BY "rollgate-forwarded"
#define HTTP1_ROUTE "route" /* the element that `rollgate route` adds to HTTP1_FORWARDED_BY */

/* A request header between processes of the gateway, when a request is sent again or was held: for
 * how many ms its client has waited before. */
#define HTTP1_WAITED "rollgate-waited"

/* Header names that framing, forwarding or routing uses. */
enum http1_name {
    HTTP1_OTHER,
    HTTP1_HOST,
    HTTP1_CONTENT_LENGTH,
    HTTP1_TRANSFER_ENCODING,
    HTTP1_CONNECTION,
    HTTP1_KEEP_ALIVE,
    HTTP1_PROXY_CONNECTION,
    HTTP1_TE,
    HTTP1_TRAILER,
    HTTP1_UPGRADE,
    HTTP1_EXPECT,
    HTTP1_AUTHORIZATION,
    HTTP1_X_API_KEY,
    HTTP1_API_KEY,
    HTTP1_REQUEST_ID,   /* Rollgate-Request-Id */
    HTTP1_CONFIRMATION, /* HTTP1_CONFIRMS: from hop to hop */
    HTTP1_ORIGIN,
    HTTP1_SEC_FETCH_SITE,
    HTTP1_X_FORWARDED_HOST,
    HTTP1_FORWARDED, /* HTTP1_FORWARDED_BY: from hop to hop */
    HTTP1_WAITED_MS, /* HTTP1_WAITED: from hop to hop */
    HTTP1_NAME_COUNT
};

enum http1_body {
    HTTP1_NO_BODY,
    HTTP1_LENGTH,     /* http1_head.length bytes, > 0 */
    HTTP1_CHUNKED,    /* see chunked.h */
    HTTP1_UNTIL_CLOSE /* responses only */
};

struct http1_header {
    struct str name;  /* name as sent */
    struct str value; /* without blanks at both ends */
    const char *end;  /* after the line's CRLF; the line begins at name.p */
    unsigned char known;
    bool drop; /* hop-by-hop or framing: not forwarded */
};

struct http1_head {
    struct str method, target; /* requests */
    struct str reason;         /* responses */
    int status;                /* responses: 100..599 */
    int minor;                 /* HTTP/1.minor: 0 or 1 */
    enum http1_body body;
    uint64_t length;                    /* Content-Length when given, also of an answer to HEAD */
    bool has_length;                    /* Content-Length was given */
    bool keep_alive;                    /* the sender will keep the connection */
    bool expects_continue;              /* Expect: 100-continue */
    size_t len_bytes;                   /* bytes of the head, including the empty line */
    size_t n;                           /* headers */
    unsigned char at[HTTP1_NAME_COUNT]; /* index + 1 of the first header of that name; 0: none */
    struct http1_header headers[HTTP1_HEADERS_MAX];
};

/* Parses the request head at the start of `in`. `seen_bytes`: bytes that an earlier call has parsed
 * that returned 0 (0 at first). Returns 1 if done, 0 if more bytes are needed. -1: ERR_INVALID
 * (400), ERR_HTTP_VERSION (505) or ERR_HEAD_TOO_LARGE (431, beyond max_bytes or
 * HTTP1_CLIENT_HEADERS_MAX; HTTP1_FORWARDED, Expect next to it, and HTTP1_CONFIRMATION do not
 * count, and with one of them the head may have HTTP1_OWN_BYTES more). One empty line before the
 * request line is skipped (and counted in len_bytes). */
RG_MUSTCHECK int http1_request(struct http1_head *h, struct str in, size_t seen_bytes,
                               size_t max_bytes, struct err *e);

/* Parses a response head; every failure is ERR_WORKER_INVALID. `to_head`: it answers a HEAD
 * request. Interim answers (1xx) are returned as heads of their own, without body. */
RG_MUSTCHECK int http1_response(struct http1_head *h, struct str in, size_t seen_bytes,
                                size_t max_bytes, bool to_head, struct err *e);

/* The first header of a known name, or an absent str. */
static inline struct str http1_known(const struct http1_head *h, enum http1_name name)
{
    return h->at[name] ? h->headers[h->at[name] - 1].value : (struct str){0};
}

/* The first header of that name (any case), or an absent str. */
struct str http1_get(const struct http1_head *h, struct str name);

/* Reports whether a comma-separated list header contains the token, in any case. */
bool http1_list_has(struct str list, struct str token);

/* Fills iov with the header lines that are forwarded; adjacent lines are merged. Leaves out the
 * first line, the empty line, and all framing headers, which the caller writes. Returns the number
 * of entries, at most HTTP1_HEADERS_MAX; iov must have space for so many. */
int http1_forward(const struct http1_head *h, struct iovec *iov);

/* Returns the reason phrase of a final status. */
const char *http1_reason(int status);

#endif
