/* Parses heads of HTTP/1.1 (http1.h). Strict: what two parsers might read differently is refused,
 * because a router that disagrees with a server about where a request ends can be made to smuggle
 * one. Header lines are slices of the input; nothing is copied. Steps: first line, header lines
 * (indexes of known names are noted), then their combined meaning: Connection, framing, Host.
 *
 * Parsers return 1 when complete, 0 if more bytes are needed, -1 with e if malformed. */

#include "common/net/http1.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/base/attrs.h"
#include "common/base/limits.h"

/* ------------------------------------------------------------------ bytes */

enum { TOKEN = 1, HOST_BYTE = 2, METHOD_BYTE = 4 };

#define T TOKEN
#define A (TOKEN | HOST_BYTE)
#define M (TOKEN | HOST_BYTE | METHOD_BYTE)
#define H HOST_BYTE
/* Kinds of bytes: RFC 9110 5.6.2 (token), RFC 3986 3.2.2 and 3.2.3 (host and port), methods. */
static const unsigned char kinds[256] = {
    ['!'] = A,  ['#'] = T, ['$'] = A,         ['%'] = A,         ['&'] = A,
    ['\''] = A, ['*'] = A, ['+'] = A,         ['-'] = M,         ['.'] = A,
    ['^'] = T,  ['_'] = A, ['`'] = T,         ['|'] = T,         ['~'] = A,
    ['('] = H,  [')'] = H, [';'] = H,         ['='] = H,         [':'] = H,
    ['['] = H,  [']'] = H, ['0' ... '9'] = A, ['a' ... 'z'] = A, ['A' ... 'Z'] = M,
};
#undef T
#undef A
#undef M
#undef H

static bool is_kind(char c, int kind)
{
    return kinds[(unsigned char)c] & kind;
}

static const char *skip_kind(const char *p, const char *end, int kind)
{
    while (p < end && is_kind(*p, kind))
        p++;
    return p;
}

static bool all_kind(struct str s, int kind)
{
    return s.len == 0 || skip_kind(s.p, s.p + s.len, kind) == s.p + s.len;
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* Returns the first control byte other than a tab (which is the CR of a valid line end), or end. */
static const char *find_control(const char *p, const char *end)
{
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(0x1f), del = _mm_set1_epi8(0x7f), tab = _mm_set1_epi8('\t');

    for (; end - p >= 16; p += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i bad = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(v, low), v), _mm_cmpeq_epi8(v, del));
        int hits = _mm_movemask_epi8(_mm_andnot_si128(_mm_cmpeq_epi8(v, tab), bad));

        if (hits != 0)
            return p + __builtin_ctz((unsigned)hits);
    }
#endif
    while (p < end && !is_control(*p))
        p++;
    return p;
}

/* Checks for CRLF at p. Returns 1 if found, 0 if more bytes are needed, -1 for anything else. */
static int at_crlf(const char *p, const char *end)
{
    if (p == end)
        return 0;
    if (*p != '\r')
        return -1;
    if (p + 1 == end)
        return 0;
    return p[1] == '\n' ? 1 : -1;
}

/* ------------------------------------------------------------------ names */

struct known_name {
    struct str name;
    enum http1_name id;
    /* never forwarded: hop-by-hop, or a framing header that the forwarder writes itself */
    bool hop;
};

/* Known names by their length; at most three have the same. */
static const struct known_name known_names[][3] = {
    [2] = {{STR_LIT("te"), HTTP1_TE, true}},
    [4] = {{STR_LIT("host"), HTTP1_HOST, false}},
    [6] = {{STR_LIT("expect"), HTTP1_EXPECT, false}, {STR_LIT("origin"), HTTP1_ORIGIN, false}},
    [7] = {{STR_LIT("upgrade"), HTTP1_UPGRADE, true},
           {STR_LIT("trailer"), HTTP1_TRAILER, true},
           {STR_LIT("api-key"), HTTP1_API_KEY, false}},
    [9] = {{STR_LIT("x-api-key"), HTTP1_X_API_KEY, false}},
    [10] = {{STR_LIT("connection"), HTTP1_CONNECTION, true},
            {STR_LIT("keep-alive"), HTTP1_KEEP_ALIVE, true}},
    [13] = {{STR_LIT("authorization"), HTTP1_AUTHORIZATION, false}},
    [14] = {{STR_LIT("content-length"), HTTP1_CONTENT_LENGTH, true},
            {STR_LIT("sec-fetch-site"), HTTP1_SEC_FETCH_SITE, false}},
    [15] = {{STR_LIT(HTTP1_WAITED), HTTP1_WAITED_MS, true}},
    [16] = {{STR_LIT("proxy-connection"), HTTP1_PROXY_CONNECTION, true},
            {STR_LIT("x-forwarded-host"), HTTP1_X_FORWARDED_HOST, false}},
    [17] = {{STR_LIT("transfer-encoding"), HTTP1_TRANSFER_ENCODING, true},
            {STR_LIT(HTTP1_CONFIRMS), HTTP1_CONFIRMATION, true}},
    [18] = {{STR_LIT(HTTP1_FORWARDED_BY), HTTP1_FORWARDED, true}},
    [19] = {{STR_LIT("rollgate-request-id"), HTTP1_REQUEST_ID, false}},
};

/* Finds a known header name. Returns NULL for the others. */
static const struct known_name *find_known(struct str name)
{
    const struct known_name *k;

    if (name.len >= ARRAY_LEN(known_names))
        return NULL;
    k = known_names[name.len];
    for (int i = 0; i < 3 && k[i].id != HTTP1_OTHER; i++)
        if ((name.p[0] | 0x20) == k[i].name.p[0] && str_eq_nocase(name, k[i].name))
            return &k[i];
    return NULL;
}

struct str http1_get(const struct http1_head *h, struct str name)
{
    for (size_t i = 0; i < h->n; i++)
        if (str_eq_nocase(h->headers[i].name, name))
            return h->headers[i].value;
    return (struct str){0};
}

/* Takes the next element off a comma list. Returns false at the end. Skips empty elements. */
static bool next_element(struct str *list, struct str *ret)
{
    while (list->len > 0) {
        const char *comma = memchr(list->p, ',', list->len);
        size_t n = comma ? (size_t)(comma - list->p) : list->len;

        *ret = str_trim(str_of(list->p, n));
        *list = str_sub(*list, n + 1, list->len);
        if (ret->len > 0)
            return true;
    }
    return false;
}

bool http1_list_has(struct str list, struct str token)
{
    struct str element;

    while (next_element(&list, &element))
        if (str_eq_nocase(element, token))
            return true;
    return false;
}

/* ------------------------------------------------------------------ header lines */

/* Reports whether a process of the gateway has added its headers: a node has forwarded the request,
 * or the router reads again what it had sent to a worker. */
static bool has_our_lines(const struct http1_head *h)
{
    return h->at[HTTP1_FORWARDED] || h->at[HTTP1_CONFIRMATION];
}

/* Returns the number of headers that count for the limit of a worker: not those of a hop, which
 * adds Expect, too. */
static size_t count_for_limit(const struct http1_head *h)
{
    bool by_node = h->at[HTTP1_FORWARDED] > 0;

    return h->n - by_node - (by_node && h->at[HTTP1_EXPECT] > 0) - (h->at[HTTP1_CONFIRMATION] > 0);
}

static int too_many(const struct http1_head *h, struct err *e)
{
    return err_set(e, ERR_HEAD_TOO_LARGE, "more than %d headers",
                   h->method.p ? HTTP1_CLIENT_HEADERS_MAX : HTTP1_HEADERS_MAX);
}

/* Adds a header. Refuses a second one of a name that must be unique. */
static int add_header(struct http1_head *h, struct str name, struct str value, const char *end,
                      struct err *e)
{
    const struct known_name *k = find_known(name);
    struct http1_header *to;

    if (h->n == HTTP1_HEADERS_MAX)
        return too_many(h, e);
    to = &h->headers[h->n++];
    *to = (struct http1_header){.name = name, .value = value, .end = end};
    if (k == NULL)
        return 0;
    to->known = (unsigned char)k->id;
    to->drop = k->hop;
    if (h->at[k->id] == 0) {
        h->at[k->id] = (unsigned char)h->n;
        return 0;
    }
    if (k->id == HTTP1_HOST || k->id == HTTP1_CONTENT_LENGTH || k->id == HTTP1_TRANSFER_ENCODING)
        return err_set(e, ERR_INVALID, "%s is given twice", k->name.p);
    return 0;
}

/* Sets an error that names the byte found instead of CRLF. */
static int bad_line_end(char found, struct err *e)
{
    if (found == '\n')
        return err_set(e, ERR_INVALID, "a line ends without CR");
    if (found == '\r')
        return err_set(e, ERR_INVALID, "a CR without LF");
    return err_set(e, ERR_INVALID, "a control character in the head");
}

/* Parses one line "name: value CRLF" at *at, and moves *at after it. Returns 1, 0 or -1. */
static int parse_header(struct http1_head *h, const char **at, const char *end, struct err *e)
{
    const char *p = *at, *colon = skip_kind(p, end, TOKEN), *v, *stop;
    int line_end;

    if (colon == end)
        return 0;
    if (*colon != ':' || colon == p)
        return err_set(e, ERR_INVALID,
                       *p == ' ' || *p == '\t' ? "a folded header line"
                                               : "a malformed header name");
    for (v = colon + 1; v < end && (*v == ' ' || *v == '\t'); v++)
        ;
    stop = find_control(v, end);
    line_end = at_crlf(stop, end);
    if (line_end == 0)
        return 0;
    if (line_end < 0)
        return bad_line_end(*stop, e);
    *at = stop + 2;
    while (stop > v && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    if (add_header(h, str_of(p, (size_t)(colon - p)), str_of(v, (size_t)(stop - v)), *at, e) != 0)
        return -1;
    return 1;
}

/* Parses all header lines and the empty line. Returns 1, 0 or -1. */
static int parse_headers(struct http1_head *h, const char **at, const char *end, struct err *e)
{
    for (;;) {
        int r = at_crlf(*at, end);

        if (r == 0)
            return 0;
        if (r > 0) {
            *at += 2;
            return 1;
        }
        if (**at == '\r' || **at == '\n')
            return bad_line_end(**at, e);
        r = parse_header(h, at, end, e);
        if (r != 1)
            return r;
    }
}

/* ------------------------------------------------------------------ meaning */

/* Reports whether a Connection header must not name this header, because it says how a request is
 * read, or for whom it is. */
static bool must_stay(struct str name)
{
    static const struct str names[] = {
        STR_LIT("host"),          STR_LIT("content-length"), STR_LIT("transfer-encoding"),
        STR_LIT("authorization"), STR_LIT("x-api-key"),      STR_LIT("api-key"),
        STR_LIT("origin"),        STR_LIT("sec-fetch-site"), STR_LIT("x-forwarded-host")};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq_nocase(name, names[i]))
            return true;
    return false;
}

/* Marks the headers that a Connection header names, reads close and keep-alive. */
static int apply_connection_token(struct http1_head *h, struct str token, bool *ret_close,
                                  bool *ret_keep, struct err *e)
{
    if (!all_kind(token, TOKEN))
        return err_set(e, ERR_INVALID, "a malformed Connection header");
    if (str_eq_nocase(token, STR("close")))
        *ret_close = true;
    else if (str_eq_nocase(token, STR("keep-alive")))
        *ret_keep = true;
    else if (must_stay(token))
        return err_set(e, ERR_INVALID, "Connection names %.*s, which no hop may drop",
                       (int)token.len, token.p);
    else
        for (size_t i = 0; i < h->n; i++)
            if (str_eq_nocase(h->headers[i].name, token))
                h->headers[i].drop = true;
    return 0;
}

/* Decides keep-alive or close, and which headers are for this hop only. */
static int apply_connection(struct http1_head *h, struct err *e)
{
    bool close = false, keep = false;
    int tokens = 0;

    for (size_t i = 0; h->at[HTTP1_CONNECTION] && i < h->n; i++) {
        struct str list = h->headers[i].value, token;

        if (h->headers[i].known != HTTP1_CONNECTION)
            continue;
        while (next_element(&list, &token)) {
            if (++tokens > HTTP1_NAMED_MAX)
                return err_set(e, ERR_INVALID, "Connection names too many headers");
            if (apply_connection_token(h, token, &close, &keep, e) != 0)
                return -1;
        }
    }
    h->keep_alive = !close && (h->minor == 1 || keep);
    return 0;
}

/* Applies Content-Length and Transfer-Encoding together. Each occurs at most once (add_header). */
static int apply_framing(struct http1_head *h, struct err *e)
{
    struct str te = http1_known(h, HTTP1_TRANSFER_ENCODING);
    struct str cl = http1_known(h, HTTP1_CONTENT_LENGTH);

    h->body = HTTP1_NO_BODY;
    if (te.p != NULL) {
        if (h->minor == 0)
            return err_set(e, ERR_INVALID, "Transfer-Encoding in HTTP/1.0");
        if (cl.p != NULL)
            return err_set(e, ERR_INVALID, "both Content-Length and Transfer-Encoding");
        if (!str_eq_nocase(te, STR("chunked")))
            return err_set(e, ERR_INVALID, "a Transfer-Encoding other than chunked");
        h->body = HTTP1_CHUNKED;
    }
    if (cl.p != NULL) {
        if (str_to_u64(cl, INT64_MAX, &h->length) != 0)
            return err_set(e, ERR_INVALID, "a malformed Content-Length");
        h->has_length = true;
        if (h->length > 0)
            h->body = HTTP1_LENGTH;
    }
    return 0;
}

/* Applies the Host header, which HTTP/1.1 requires. */
static int apply_host(const struct http1_head *h, struct err *e)
{
    struct str host = http1_known(h, HTTP1_HOST);

    if (host.p == NULL && h->minor == 1)
        return err_set(e, ERR_INVALID, "no Host header");
    if (!all_kind(host, HOST_BYTE))
        return err_set(e, ERR_INVALID, "a malformed Host header");
    return 0;
}

/* ------------------------------------------------------------------ first lines */

/* Parses "HTTP/1.x" of 8 bytes. A different version is refused with 505. */
static int parse_version(struct http1_head *h, const char *p, struct err *e)
{
    if (memcmp(p, "HTTP/", 5) != 0 || p[6] != '.' || p[5] < '0' || p[5] > '9' || p[7] < '0' ||
        p[7] > '9')
        return err_set(e, ERR_INVALID, "a malformed HTTP version");
    if (p[5] != '1' || p[7] > '1')
        return err_set(e, ERR_HTTP_VERSION, "only HTTP/1.0 and HTTP/1.1 are served");
    h->minor = p[7] - '0';
    return 0;
}

/* Accepts only paths: no proxy requests. */
static int check_target(const struct http1_head *h, struct err *e)
{
    if (str_eq(h->method, STR("CONNECT")) || str_eq(h->method, STR("TRACE")))
        return err_set(e, ERR_INVALID, "method not served");
    if (h->target.len == 0 || h->target.p[0] != '/')
        return err_set(e, ERR_INVALID, "the request target must be a path");
    if (memchr(h->target.p, '\t', h->target.len))
        return err_set(e, ERR_INVALID, "a blank in the request target");
    return 0;
}

/* Parses "METHOD SP target SP HTTP/1.x CRLF". Returns 1, 0 or -1. */
static int parse_request_line(struct http1_head *h, const char **at, const char *end, struct err *e)
{
    const char *p = *at, *sp = skip_kind(p, end, METHOD_BYTE), *stop, *last;

    if (sp == end)
        return 0;
    if (*sp != ' ' || sp == p)
        return err_set(e, ERR_INVALID, "a malformed method");
    stop = find_control(sp, end);
    switch (at_crlf(stop, end)) {
    case 0:
        return 0;
    case -1:
        return bad_line_end(*stop, e);
    }
    last = memchr(sp + 1, ' ', (size_t)(stop - sp - 1));
    if (last == NULL || stop - last != 9)
        return err_set(e, ERR_INVALID, "a malformed request line");
    h->method = str_of(p, (size_t)(sp - p));
    h->target = str_of(sp + 1, (size_t)(last - sp - 1));
    *at = stop + 2;
    if (parse_version(h, last + 1, e) != 0 || check_target(h, e) != 0)
        return -1;
    return 1;
}

/* Parses "HTTP/1.x SP ddd [SP reason] CRLF". Returns 1, 0 or -1. */
static int parse_status_line(struct http1_head *h, const char **at, const char *end, struct err *e)
{
    const char *p = *at, *stop = find_control(p, end);
    uint64_t status;

    switch (at_crlf(stop, end)) {
    case 0:
        return 0;
    case -1:
        return bad_line_end(*stop, e);
    }
    if (stop - p < 12 || p[8] != ' ' || (stop - p > 12 && p[12] != ' '))
        return err_set(e, ERR_INVALID, "a malformed status line");
    if (parse_version(h, p, e) != 0)
        return -1;
    if (str_to_u64(str_of(p + 9, 3), 599, &status) != 0 || status < 100)
        return err_set(e, ERR_INVALID, "a malformed status");
    h->status = (int)status;
    if (stop - p > 13)
        h->reason = str_of(p + 13, (size_t)(stop - p - 13));
    *at = stop + 2;
    return 1;
}

/* ------------------------------------------------------------------ heads */

static void clear_head(struct http1_head *h)
{
    /* Clears all but the header array, whose used part add_header writes. */
    memset(h, 0, offsetof(struct http1_head, headers));
}

static int too_large(size_t max_bytes, struct err *e)
{
    return err_set(e, ERR_HEAD_TOO_LARGE, "the head is larger than %zu bytes", max_bytes);
}

/* Reports whether parsing `in` again can give a new result: only if a line ended, and each line
 * ends with LF. */
static bool worth_parsing(struct str in, size_t seen_bytes, size_t max_bytes)
{
    return seen_bytes == 0 || in.len > max_bytes ||
           (in.len > seen_bytes && memchr(in.p + seen_bytes, '\n', in.len - seen_bytes));
}

typedef int (*first_line_fn)(struct http1_head *h, const char **at, const char *end, struct err *e);

/* A head that is larger than max_bytes is an error as soon as this is known. Our lines of a
 * request, which are its last, come on top. */
static int parse_head(struct http1_head *h, struct str in, size_t max_bytes, first_line_fn first,
                      struct err *e)
{
    const char *at = in.p, *end = in.p + in.len;
    bool empty_line = in.len >= 2 && in.p[0] == '\r' && in.p[1] == '\n';
    size_t own_bytes = first == parse_request_line ? HTTP1_OWN_BYTES : 0;
    int r;

    clear_head(h);
    if (in.len == 0 || (in.len == 1 && in.p[0] == '\r'))
        return 0;
    if (empty_line && first == parse_request_line)
        at += 2;
    r = first(h, &at, end, e);
    if (r == 1)
        r = parse_headers(h, &at, end, e);
    if (r == 0 && in.len > max_bytes + own_bytes)
        return too_large(max_bytes, e);
    if (r != 1)
        return r;
    h->len_bytes = (size_t)(at - in.p);
    if (h->len_bytes > max_bytes + (has_our_lines(h) ? own_bytes : 0))
        return too_large(max_bytes, e);
    return apply_connection(h, e) == 0 && apply_framing(h, e) == 0 ? 1 : -1;
}

/* Skips an empty line before the request, because clients may send one. */
int http1_request(struct http1_head *h, struct str in, size_t seen_bytes, size_t max_bytes,
                  struct err *e)
{
    int r;

    if (!worth_parsing(in, seen_bytes, max_bytes))
        return 0;
    r = parse_head(h, in, max_bytes, parse_request_line, e);
    if (r != 1)
        return r;
    if (count_for_limit(h) > HTTP1_CLIENT_HEADERS_MAX)
        return too_many(h, e);
    h->expects_continue =
        h->minor == 1 && str_eq_nocase(http1_known(h, HTTP1_EXPECT), STR("100-continue"));
    return apply_host(h, e) == 0 ? 1 : -1;
}

static void apply_response_body(struct http1_head *h, bool to_head)
{
    if (to_head || h->status < 200 || h->status == 204 || h->status == 304)
        h->body = HTTP1_NO_BODY;
    else if (h->body == HTTP1_NO_BODY && !h->has_length)
        h->body = HTTP1_UNTIL_CLOSE;
}

/* Errors are the upstream's: ERR_WORKER_INVALID. */
int http1_response(struct http1_head *h, struct str in, size_t seen_bytes, size_t max_bytes,
                   bool to_head, struct err *e)
{
    int r;

    if (!worth_parsing(in, seen_bytes, max_bytes))
        return 0;
    r = parse_head(h, in, max_bytes, parse_status_line, e);
    if (r < 0 && e != NULL)
        e->kind = ERR_WORKER_INVALID;
    if (r == 1)
        apply_response_body(h, to_head);
    return r;
}

/* ------------------------------------------------------------------ forwarding */

/* Merges lines to as few pieces as possible. */
int http1_forward(const struct http1_head *h, struct iovec *iov)
{
    int n = 0;

    for (size_t i = 0; i < h->n; i++) {
        const struct http1_header *header = &h->headers[i];
        char *line = (char *)(uintptr_t)header->name.p;
        size_t len = (size_t)(header->end - header->name.p);

        if (header->drop)
            continue;
        if (n > 0 && (char *)iov[n - 1].iov_base + iov[n - 1].iov_len == line)
            iov[n - 1].iov_len += len;
        else
            iov[n++] = (struct iovec){.iov_base = line, .iov_len = len};
    }
    return n;
}

const char *http1_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {304, "Not Modified"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {508, "Loop Detected"},
    };

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return status < 400 ? "Other" : status < 500 ? "Refused" : "Failed";
}
