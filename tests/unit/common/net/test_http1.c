#include "common/base/limits.h"
#include "common/net/http1.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "testing.h"

enum { MAX_BYTES = 32768 };

static int request(struct http1_head *h, const char *text, struct err *e)
{
    return http1_request(h, str_cstr(text), 0, MAX_BYTES, e);
}

TEST(http1, request_is_taken_apart)
{
    static struct http1_head h;
    struct err e = {0};
    const char *text = "POST /sessions/w1-aa?x=%20 HTTP/1.1\r\nHost: a.b:80\r\nX-Long: 0123456789 "
                       "0123456789\tand more \r\nContent-Length: 005\r\nEmpty:\r\n\r\nhello";

    cr_assert_eq(request(&h, text, &e), 1, "%s", e.text);
    cr_assert(str_eq_c(h.method, "POST"));
    cr_assert(str_eq_c(h.target, "/sessions/w1-aa?x=%20"));
    cr_assert_eq(h.minor, 1);
    cr_assert_eq(h.n, 4);
    cr_assert_eq(h.body, HTTP1_LENGTH);
    cr_assert_eq(h.length, 5);
    cr_assert(h.keep_alive);
    cr_assert_eq(h.len_bytes, strlen(text) - 5);
    cr_assert(str_eq_c(http1_get(&h, STR("x-long")), "0123456789 0123456789\tand more"));
    cr_assert(str_eq_c(http1_known(&h, HTTP1_HOST), "a.b:80"));
    cr_assert_eq(http1_get(&h, STR("empty")).len, 0);
    cr_assert_null(http1_get(&h, STR("absent")).p);
}

TEST(http1, every_prefix_wants_more_and_the_whole_is_found)
{
    static struct http1_head h;
    const char *text = "\r\nGET /a HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
    size_t seen = 0;

    for (size_t n = 0; n < strlen(text); n++) {
        char *exact = malloc(n + 1); /* so that the sanitizer sees a byte too far */

        memcpy(exact, text, n);
        cr_assert_eq(http1_request(&h, str_of(exact, n), seen, MAX_BYTES, NULL), 0, "at %zu", n);
        free(exact);
        seen = n;
    }
    cr_assert_eq(http1_request(&h, str_cstr(text), seen, MAX_BYTES, NULL), 1);
}

static const struct {
    const char *text;
    int status;
} refused[] = {
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: a\n\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\rX: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: a\x01z\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fz\r\n\r\n", 400},
    {"GET /\r\n\r\n", 400},
    {"GET\r\n\r\n", 400},
    {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
    {"GET /\ta HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1,1\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
    {"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\n", 505},
    {"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "identity\r\n\r\n",
     400},
    {"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Host\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: Transfer-Encoding\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\r\n\r\n", 400},
};

TEST(http1, refused_heads)
{
    static struct http1_head h;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct err e = {0};

        cr_assert_eq(request(&h, refused[i].text, &e), -1, "case %zu: %s", i, refused[i].text);
        cr_assert_eq(err_status(&e), refused[i].status, "case %zu: %s", i, refused[i].text);
    }
}

TEST(http1, nul_bytes_are_refused)
{
    static struct http1_head h;
    struct err e = {0};

    cr_assert_eq(
        http1_request(&h, STR("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n"), 0, MAX_BYTES, &e), -1);
    cr_assert_eq(http1_request(&h, STR("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"), 0, MAX_BYTES, &e),
                 -1);
    cr_assert_eq(http1_request(&h, STR("GET / HTTP/1.1\r\nHost\0: a\r\n\r\n"), 0, MAX_BYTES, &e),
                 -1);
}

TEST(http1, limits)
{
    static struct http1_head h;
    struct err e = {0};
    char *text = malloc(200000);
    size_t n = (size_t)sprintf(text, "GET / HTTP/1.1\r\nHost: a\r\nX: ");

    memset(text + n, 'a', 100000);
    cr_assert_eq(http1_request(&h, str_of(text, MAX_BYTES), 0, MAX_BYTES, &e), 0);
    n = MAX_BYTES + HTTP1_OWN_BYTES;
    cr_assert_eq(http1_request(&h, str_of(text, n), MAX_BYTES, MAX_BYTES, &e), 0);
    cr_assert_eq(http1_request(&h, str_of(text, n + 1), n, MAX_BYTES, &e), -1);
    cr_assert_eq(err_status(&e), 431);
    memcpy(text + 40000, "\r\n\r\n", 4);
    cr_assert_eq(http1_request(&h, str_of(text, 100000), 0, MAX_BYTES, &e), -1);
    cr_assert_eq(err_status(&e), 431);
    for (int own = 0; own < 3; own++) { /* a node's own headers come on top */
        n = (size_t)sprintf(text, "GET / HTTP/1.1\r\nHost: a\r\n%s%s",
                            own > 0 ? "Rollgate-Confirms: 1\r\n" : "",
                            own > 1 ? "Rollgate-Forwarded: b\r\n" : "");
        for (int i = 1; i < HTTP1_CLIENT_HEADERS_MAX; i++)
            n += (size_t)sprintf(text + n, "X-%d: b\r\n", i);
        cr_assert_eq(http1_request(&h, str_of(text, n), 0, MAX_BYTES, &e), 0);
        memcpy(text + n, "\r\n", 3);
        cr_assert_eq(request(&h, text, &e), 1);
        memcpy(text + n, "X: y\r\n\r\n", 9);
        cr_assert_eq(request(&h, text, &e), -1);
        cr_assert_eq(err_status(&e), 431);
        cr_assert(strstr(e.text, "than 100 headers"), "%s", e.text);
    }
    n = (size_t)sprintf(text, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i <= HTTP1_HEADERS_MAX; i++)
        n += (size_t)sprintf(text + n, "X-%d: b\r\n", i);
    cr_assert_eq(http1_response(&h, str_of(text, n), 0, MAX_BYTES, false, &e), -1);
    cr_assert(strstr(e.text, "more than 105 headers"), "%s", e.text);
    free(text);
}

static void joined(const struct http1_head *h, char *to)
{
    struct iovec iov[HTTP1_HEADERS_MAX];
    int n = http1_forward(h, iov);

    *to = 0;
    for (int i = 0; i < n; i++)
        strncat(to, iov[i].iov_base, iov[i].iov_len);
}

TEST(http1, hop_by_hop_lines_are_dropped)
{
    static struct http1_head h;
    char kept[1000];

    cr_assert_eq(
        request(&h,
                "POST / HTTP/1.1\r\nHost: a\r\nA: 1\r\nConnection: Keep-Alive, , x-hop\r\n"
                "B: 2\r\nX-HOP: 1\r\nTE: trailers\r\nkeep-alive: 5\r\nUpgrade: h2c\r\n"
                "Proxy-Connection: x\r\nTrailer: t\r\nC: 3\r\nTransfer-Encoding: CHUNKED\r\n"
                "Rollgate-Confirms: 1\r\nD: 4\r\n\r\n",
                NULL),
        1);
    joined(&h, kept);
    cr_assert_str_eq(kept, "Host: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n");
    cr_assert_eq(h.body, HTTP1_CHUNKED);
    cr_assert(h.keep_alive);
}

TEST(http1, keep_alive_by_version_and_token)
{
    static struct http1_head h;

    cr_assert_eq(request(&h, "GET / HTTP/1.0\r\n\r\n", NULL), 1);
    cr_assert(!h.keep_alive);
    cr_assert_eq(request(&h, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", NULL), 1);
    cr_assert(h.keep_alive);
    cr_assert_eq(request(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", NULL), 1);
    cr_assert(!h.keep_alive);
    cr_assert_eq(request(&h, "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n", NULL), 1);
    cr_assert(h.expects_continue);
}

static const struct {
    const char *text;
    bool to_head;
    int result;
    enum http1_body body;
} responses[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, 1, HTTP1_LENGTH},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 1, HTTP1_NO_BODY},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, 1, HTTP1_NO_BODY},
    {"HTTP/1.1 200\r\n\r\n", false, 1, HTTP1_UNTIL_CLOSE},
    {"HTTP/1.1 200 \r\n\r\n", false, 1, HTTP1_UNTIL_CLOSE},
    {"HTTP/1.0 404 Not Found\r\n\r\n", false, 1, HTTP1_UNTIL_CLOSE},
    {"HTTP/1.1 204 No\r\n\r\n", false, 1, HTTP1_NO_BODY},
    {"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", false, 1, HTTP1_NO_BODY},
    {"HTTP/1.1 100 Continue\r\n\r\n", false, 1, HTTP1_NO_BODY},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, 1, HTTP1_CHUNKED},
    {"HTTP/1.1 200 OK\r\n", false, 0, HTTP1_NO_BODY},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, -1, 0},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 200 OK\nX: a\n\n", false, -1, 0},
    {"HTTP/1.1 20 OK\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 099 OK\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 600 OK\r\n\r\n", false, -1, 0},
    {"HTTP/1.1 2000 OK\r\n\r\n", false, -1, 0},
    {"HTTP/1.1  200 OK\r\n\r\n", false, -1, 0},
    {"HTTP/2.0 200 OK\r\n\r\n", false, -1, 0},
    {"ICY 200 OK\r\n\r\n", false, -1, 0},
    {"\r\nHTTP/1.1 200 OK\r\n\r\n", false, -1, 0},
};

TEST(http1, responses)
{
    static struct http1_head h;

    for (size_t i = 0; i < ARRAY_LEN(responses); i++) {
        struct err e = {0};
        int r =
            http1_response(&h, str_cstr(responses[i].text), 0, MAX_BYTES, responses[i].to_head, &e);

        cr_assert_eq(r, responses[i].result, "case %zu: %s", i, responses[i].text);
        if (r == 1)
            cr_assert_eq(h.body, responses[i].body, "case %zu", i);
        if (r < 0)
            cr_assert_eq(err_status(&e), 502, "case %zu", i);
    }
}

TEST(http1, reasons)
{
    cr_expect_str_eq(http1_reason(201), "Created");
    cr_expect_str_eq(http1_reason(206), "Other");
    cr_expect_str_eq(http1_reason(418), "Refused");
    cr_expect_str_eq(http1_reason(599), "Failed");
}
