/* Heads consist of pieces of the received head and of our own lines. http1_forward leaves out
 * hop-by-hop headers. */

#include "router/heads.h"

/* Confirmation, time waited, one X-Forwarded line, and a Content-Length for the dropped one. */
enum { OWN_LINES = 4 };

/* X-Forwarded-Host is the longest line that is not in `extra`. It replaces Host. */
_Static_assert((int)HEADS_EXTRA + sizeof("X-Forwarded-") <= (int)HTTP1_OWN_BYTES,
               "a node takes it");

/* Makes the request line, with our version. Returns the number of entries. */
static int first_line(const struct http1_head *h, struct iovec *iov)
{
    const char *p = h->method.p, *end = h->target.p + h->target.len;
    static const char version[] = " HTTP/1.1\r\n";

    iov[0] = (struct iovec){.iov_base = (char *)(uintptr_t)p, .iov_len = (size_t)(end - p)};
    iov[1] = (struct iovec){.iov_base = (char *)(uintptr_t)version, .iov_len = sizeof(version) - 1};
    return 2;
}

/* Appends text. printf would cost measurable time. */
static char *put_text(char *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    return to + len;
}

#define PUT(to, literal) put_text(to, literal, sizeof(literal) - 1)

/* Appends decimal digits. */
static char *put_number(char *to, uint64_t n)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    return put_text(to, digits + at, sizeof(digits) - at);
}

static char *put_length(char *to, uint64_t n)
{
    return PUT(put_number(PUT(to, "Content-Length: "), n), "\r\n");
}

static bool has_proto(const struct http1_head *h)
{
    for (size_t i = 0; i < h->n; i++) {
        if (str_eq_nocase(h->headers[i].name, STR("x-forwarded-proto")))
            return true;
    }
    return false;
}

/* Writes our header lines of a request and the empty line. Returns their length. */
static size_t request_lines(const struct http1_head *h, const struct heads_request *r,
                            char extra[HEADS_EXTRA])
{
    char *to = extra;

    if (r->confirms)
        to = PUT(to, HTTP1_CONFIRMS ": 1\r\n");
    if (r->expects)
        to = PUT(to, "Expect: 100-continue\r\n");
    if (r->waited_ms > 0)
        to = PUT(put_number(PUT(to, HTTP1_WAITED ": "), r->waited_ms), "\r\n");
    if (r->encrypted && h->n < HTTP1_CLIENT_HEADERS_MAX && !has_proto(h))
        to = PUT(to, "X-Forwarded-Proto: https\r\n");
    if (r->host.len > 0) {
        to = put_text(PUT(to, "Host: "), r->host.p, MIN_OF(r->host.len, (size_t)HEADS_HOST_MAX));
        to = PUT(to, "\r\n");
    }
    if (r->forwarded.len > 0) {
        to = put_text(PUT(to, HTTP1_FORWARDED_BY ": "), r->forwarded.p,
                      MIN_OF(r->forwarded.len, (size_t)HEADS_FORWARDER_MAX));
        to = PUT(to, "\r\n");
    }
    if (h->body == HTTP1_CHUNKED)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    else if (h->has_length)
        to = put_length(to, h->length);
    return (size_t)(PUT(to, "\r\n") - extra);
}

bool heads_have_space(const struct http1_head *h)
{
    size_t kept = h->n;

    for (size_t i = 0; i < h->n; i++)
        kept -= h->headers[i].drop;
    return kept + OWN_LINES <= HTTP1_CLIENT_HEADERS_MAX;
}

/* Makes X-Forwarded-Host of the client's Host, unless a proxy has written one or there is no space.
 * Returns the number of entries. */
static int forward_host(struct http1_head *h, struct iovec *iov)
{
    static const char name[] = "X-Forwarded-Host: ", end[] = "\r\n";
    struct str host = http1_known(h, HTTP1_HOST);
    bool needed = !h->at[HTTP1_X_FORWARDED_HOST] && heads_have_space(h);

    if (!host.p)
        return 0;
    h->headers[h->at[HTTP1_HOST] - 1].drop = true;
    if (!needed)
        return 0;
    iov[0] = (struct iovec){.iov_base = (char *)(uintptr_t)name, .iov_len = sizeof(name) - 1};
    iov[1] = (struct iovec){.iov_base = (char *)(uintptr_t)host.p, .iov_len = host.len};
    iov[2] = (struct iovec){.iov_base = (char *)(uintptr_t)end, .iov_len = sizeof(end) - 1};
    return 3;
}

int heads_request(struct http1_head *h, const struct heads_request *r, struct str body,
                  char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV])
{
    int n = first_line(h, iov);

    if (r->host.len > 0)
        n += forward_host(h, iov + n);
    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = extra, .iov_len = request_lines(h, r, extra)};
    if (body.len > 0)
        iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t)body.p, .iov_len = body.len};
    return n;
}

/* Writes our header lines of an answer and the empty line. Returns their length. */
static size_t answer_lines(const struct http1_head *h, const struct heads_answer *a,
                           char extra[HEADS_EXTRA])
{
    char *to = extra;

    if (a->request_id.len > 0) {
        to = put_text(PUT(to, "Rollgate-Request-Id: "), a->request_id.p, a->request_id.len);
        to = PUT(to, "\r\n");
    }
    if (h->body == HTTP1_CHUNKED && !a->old)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    else if (h->has_length && h->status != 204)
        to = put_length(to, h->length);
    if (a->closing)
        to = PUT(to, "Connection: close\r\n");
    else if (a->old)
        to = PUT(to, "Connection: keep-alive\r\n");
    return (size_t)(PUT(to, "\r\n") - extra);
}

/* Makes the status line, with our version. */
static void status_line(const struct http1_head *h, const char *in, struct iovec *iov)
{
    static const char version[] = "HTTP/1.1";
    const char *end = h->n > 0 ? h->headers[0].name.p : in + h->len_bytes - 2;

    iov[0] = (struct iovec){.iov_base = (char *)(uintptr_t)version, .iov_len = 8};
    iov[1] =
        (struct iovec){.iov_base = (char *)(uintptr_t)(in + 8), .iov_len = (size_t)(end - in - 8)};
}

int heads_answer(const struct http1_head *h, const char *in, const struct heads_answer *a,
                 char extra[HEADS_EXTRA], struct iovec iov[HEADS_IOV])
{
    int n = 2;

    status_line(h, in, iov);
    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = extra, .iov_len = answer_lines(h, a, extra)};
    return n;
}

int heads_interim(const struct http1_head *h, const char *in, struct iovec iov[HEADS_IOV])
{
    int n = 2;

    status_line(h, in, iov);
    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t) "\r\n", .iov_len = 2};
    return n;
}
