/* bench: rg_common */
/*
 * Stub workers for the router bench: N of them in one process, each on DIR/w<i>.sock and on TCP
 * port BASE+i, as fast as this loop allows.
 *
 *     bench_stub WORKERS DIR BASE_PORT
 *
 * The query of a request says what to do:
 *     delay=MS       answer later           bytes=N        answer N bytes of the pattern
 *     chunked=1      in chunks of 64 KiB    events=N,MS    N server-sent events, each with the time
 *     check=1        compare the body with the pattern
 * Answers name the worker (X-Worker) and the body bytes received.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench_clock.h"
#include "bench_pattern.h"
#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"
#include "common/os/loop.h"

enum { SCRATCH = 256 * 1024, CHUNK = 64 * 1024, PART_MAX = 16 * 1024 };

struct listener {
    struct loop_io io;
    int worker;
};

struct stub {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task end;
    int fd, worker;
    bool closed, want_out;
    char part[PART_MAX]; /* of a head */
    size_t part_len;
    /* the request */
    bool in_body, busy, check, bad, close_after;
    enum http1_body framing;
    struct chunked chunked;
    uint64_t left, got;
    uint64_t delay_ms, bytes, events, gap_ms;
    bool answer_chunked;
    /* the answer */
    char out[512];
    size_t out_len, out_at;
    uint64_t sent, event;
};

static struct loop *loop;
static char scratch[SCRATCH];
static struct http1_head head;

static void on_stub(struct loop_io *io, unsigned events);
static void flush(struct stub *s);

static void free_stub(struct loop_task *t)
{
    free(CONTAINER_OF(t, struct stub, end));
}

static void stub_close(struct stub *s)
{
    if (s->closed)
        return;
    s->closed = true;
    loop_timer_stop(loop, &s->timer);
    loop_forget(loop, &s->io);
    close(s->fd);
    loop_task_post(loop, &s->end, free_stub);
}

/* ------------------------------------------------------------------ answers */

static void answer_done(struct stub *s)
{
    if (s->close_after) {
        stub_close(s);
        return;
    }
    s->busy = false;
    s->out_len = s->out_at = 0;
    s->bytes = s->events = s->delay_ms = 0;
    if (s->want_out) {
        s->want_out = false;
        loop_mod(loop, &s->io, LOOP_IN | LOOP_RDHUP);
    }
}

static void blocked(struct stub *s)
{
    s->want_out = true;
    loop_mod(loop, &s->io, LOOP_IN | LOOP_RDHUP | LOOP_OUT);
}

/* The next piece of a large body: its framing goes into out, its payload is the pattern. */
static size_t next_piece(struct stub *s)
{
    uint64_t left = s->bytes - s->sent;

    if (!s->answer_chunked)
        return left < PATTERN_PERIOD ? (size_t)left : PATTERN_PERIOD;
    return left < CHUNK ? (size_t)left : CHUNK;
}

/* Writes out and then `n` pattern bytes, as far as they are taken; 0 when all was. */
static int write_piece(struct stub *s, uint64_t from, size_t n, size_t *ret_payload)
{
    struct iovec iov[2] = {
        {.iov_base = s->out + s->out_at, .iov_len = s->out_len - s->out_at},
        {.iov_base = (void *)(uintptr_t)pattern_from(from), .iov_len = n},
    };
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t r = sendmsg(s->fd, &m, MSG_NOSIGNAL);
    size_t headed;

    *ret_payload = 0;
    if (r < 0)
        return errno == EAGAIN ? 1 : -1;
    headed = (size_t)r < iov[0].iov_len ? (size_t)r : iov[0].iov_len;
    s->out_at += headed;
    *ret_payload = (size_t)r - headed;
    return (size_t)r < iov[0].iov_len + n;
}

/* Content-Length: as much as fits. 0 all, 1 blocked, -1 broken. */
static int send_length(struct stub *s)
{
    while (s->out_at < s->out_len || s->sent < s->bytes) {
        size_t payload;
        int r = write_piece(s, s->sent, s->bytes > s->sent ? next_piece(s) : 0, &payload);

        s->sent += payload;
        if (r != 0)
            return r;
    }
    return 0;
}

/* Chunked: `left` is what is still due of the current chunk. */
static int send_chunks(struct stub *s)
{
    for (;;) {
        size_t payload;
        int r = write_piece(s, s->sent, (size_t)s->left, &payload);

        s->sent += payload;
        s->left -= payload;
        if (r != 0)
            return r;
        if (s->sent == s->bytes && s->answer_chunked) {
            s->out_len = (size_t)sprintf(s->out, "\r\n0\r\n\r\n");
            s->out_at = 0;
            s->answer_chunked = false;
        } else if (s->sent < s->bytes) {
            s->left = s->bytes - s->sent < CHUNK ? s->bytes - s->sent : CHUNK;
            s->out_len = (size_t)sprintf(s->out, "%s%llx\r\n", s->sent ? "\r\n" : "",
                                         (unsigned long long)s->left);
            s->out_at = 0;
        } else {
            return 0;
        }
    }
}

static void flush(struct stub *s)
{
    bool chunks = s->framing == HTTP1_CHUNKED && s->bytes > 0;
    int r = chunks ? send_chunks(s) : send_length(s);

    if (r < 0)
        stub_close(s);
    else if (r > 0)
        blocked(s);
    else if (s->events == 0)
        answer_done(s);
}

static void on_event(struct loop_timer *t)
{
    struct stub *s = CONTAINER_OF(t, struct stub, timer);
    char event[128];
    int n = sprintf(event, "data: {\"t\":%llu,\"pad\":\"0123456789abcdef\"}\n\n",
                    (unsigned long long)clock_ns(CLOCK_MONOTONIC));

    s->out_len = (size_t)sprintf(s->out, "%x\r\n%s\r\n%s", (unsigned)n, event,
                                 ++s->event == s->events ? "0\r\n\r\n" : "");
    s->out_at = 0;
    if (s->event == s->events)
        s->events = 0;
    else
        loop_timer_set(loop, t, s->gap_ms, on_event);
    flush(s);
}

static void respond(struct stub *s)
{
    const char *last = s->close_after ? "Connection: close\r\n" : "";
    char body[96];
    int n = sprintf(body, "{\"worker\":%d,\"n\":%llu,\"ok\":%s}", s->worker,
                    (unsigned long long)s->got, s->bad ? "false" : "true");

    s->out_at = 0;
    s->sent = s->event = s->left = 0;
    s->framing = HTTP1_LENGTH;
    if (s->events > 0) {
        s->out_len = (size_t)sprintf(s->out,
                                     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                     "X-Worker: %d\r\nTransfer-Encoding: chunked\r\n%s\r\n",
                                     s->worker, last);
        loop_timer_set(loop, &s->timer, s->gap_ms, on_event);
    } else if (s->bytes > 0 && s->answer_chunked) {
        s->framing = HTTP1_CHUNKED;
        s->out_len = (size_t)sprintf(s->out,
                                     "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                                     "X-Worker: %d\r\nTransfer-Encoding: chunked\r\n%s\r\n",
                                     s->worker, last);
    } else {
        s->out_len = (size_t)sprintf(
            s->out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            "X-Worker: %d\r\nContent-Length: %llu\r\n%s\r\n%s",
            s->worker, s->bytes ? (unsigned long long)s->bytes : (unsigned long long)n, last,
            s->bytes ? "" : body);
    }
    flush(s);
}

static void on_delay(struct loop_timer *t)
{
    respond(CONTAINER_OF(t, struct stub, timer));
}

/* ------------------------------------------------------------------ requests */

static uint64_t number_after(struct str query, const char *name)
{
    size_t at = str_find(query, str_cstr(name), 0);

    return at == SIZE_MAX ? 0 : strtoull(query.p + at + strlen(name), NULL, 10);
}

static void request_complete(struct stub *s)
{
    s->in_body = false;
    s->busy = true;
    if (s->delay_ms > 0)
        loop_timer_set(loop, &s->timer, s->delay_ms, on_delay);
    else
        respond(s);
}

static void begin_request(struct stub *s)
{
    size_t at = str_find(head.target, STR("?"), 0);

    s->framing = head.body;
    s->left = head.length;
    s->got = 0;
    s->chunked = (struct chunked){0};
    s->check = s->bad = s->answer_chunked = false;
    s->close_after = !head.keep_alive;
    if (at != SIZE_MAX) {
        struct str query = str_sub(head.target, at, head.target.len);
        size_t comma = str_find(query, STR(","), 0);

        s->delay_ms = number_after(query, "delay=");
        s->bytes = number_after(query, "bytes=");
        s->events = number_after(query, "events=");
        s->answer_chunked = number_after(query, "chunked=") > 0;
        s->check = number_after(query, "check=") > 0;
        s->gap_ms = s->events && comma != SIZE_MAX ? number_after(query, ",") : 5;
    }
    s->in_body = head.body != HTTP1_NO_BODY;
    if (!s->in_body)
        request_complete(s);
}

static void take_payload(struct stub *s, const char *p, size_t n)
{
    if (s->check && !pattern_matches(s->got, p, n))
        s->bad = true;
    s->got += n;
}

/* Body bytes; returns how many were used, -1 when they are malformed. */
static ssize_t take_body(struct stub *s, const char *p, size_t n)
{
    size_t used = 0;

    if (s->framing == HTTP1_LENGTH) {
        used = n < s->left ? n : (size_t)s->left;
        take_payload(s, p, used);
        s->left -= used;
        if (s->left == 0)
            request_complete(s);
        return (ssize_t)used;
    }
    while (used < n) {
        struct chunked_run run;
        int r = chunked_next(&s->chunked, str_of(p + used, n - used), &run, NULL);

        if (r < 0)
            return -1;
        if (run.kind == CHUNKED_DATA)
            take_payload(s, p + used, run.len_bytes);
        used += run.len_bytes;
        if (r == 1) {
            request_complete(s);
            break;
        }
    }
    return (ssize_t)used;
}

/* A head at p (behind what is kept in part); returns how many bytes were used, -1 malformed. */
static ssize_t take_head(struct stub *s, const char *p, size_t n)
{
    size_t before = s->part_len;
    int r;

    if (before == 0) {
        r = http1_request(&head, str_of(p, n), 0, PART_MAX, NULL);
    } else {
        size_t more = n < PART_MAX - before ? n : PART_MAX - before;

        memcpy(s->part + before, p, more);
        r = http1_request(&head, str_of(s->part, before + more), 0, PART_MAX, NULL);
    }
    if (r < 0 || (r == 0 && before + n > PART_MAX))
        return -1;
    if (r == 0) {
        if (before == 0)
            memcpy(s->part, p, n);
        s->part_len = before + n;
        return (ssize_t)n;
    }
    s->part_len = 0;
    n = head.len_bytes - before;
    begin_request(s);
    return (ssize_t)n;
}

static void feed(struct stub *s, const char *p, size_t n)
{
    while (n > 0 && !s->closed) {
        ssize_t used = s->busy ? -1 /* bytes beyond the request: a proxy never pipelines here */
                       : s->in_body ? take_body(s, p, n)
                                    : take_head(s, p, n);

        if (used < 0) {
            stub_close(s);
            return;
        }
        p += used;
        n -= (size_t)used;
    }
}

static void on_stub(struct loop_io *io, unsigned events)
{
    struct stub *s = CONTAINER_OF(io, struct stub, io);

    if ((events & LOOP_OUT) && s->busy && s->want_out)
        flush(s);
    while (!s->closed && (events & ~LOOP_OUT)) {
        ssize_t n = recv(s->fd, scratch, sizeof(scratch), 0);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            stub_close(s);
            return;
        }
        feed(s, scratch, (size_t)n);
        if ((size_t)n < sizeof(scratch) && !(events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR)))
            return;
    }
}

/* ------------------------------------------------------------------ start */

static void on_listener(struct loop_io *io, unsigned events)
{
    struct listener *l = CONTAINER_OF(io, struct listener, io);
    int fd;

    (void)events;
    while ((fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct stub *s = mem_zalloc(sizeof(*s));

        s->fd = fd;
        s->worker = l->worker;
        CHECK(loop_add(loop, &s->io, fd, LOOP_IN | LOOP_RDHUP, on_stub, NULL) == 0);
    }
}

static void serve(int fd, const struct sockaddr *a, socklen_t len, int worker)
{
    struct listener *l = mem_zalloc(sizeof(*l));
    int one = 1;

    l->worker = worker;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (a->sa_family == AF_INET)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (bind(fd, a, len) != 0 || listen(fd, 4096) != 0) {
        perror("bench_stub: listen");
        exit(1);
    }
    CHECK(loop_add(loop, &l->io, fd, LOOP_IN, on_listener, NULL) == 0);
}

int main(int argc, char **argv)
{
    struct rlimit r;
    long workers, base;

    if (argc != 4) {
        (void)fprintf(stderr, "usage: bench_stub WORKERS DIR BASE_PORT\n");
        return 2;
    }
    workers = strtol(argv[1], NULL, 10);
    base = strtol(argv[3], NULL, 10);
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    pattern_init();
    loop = loop_new(NULL);
    CHECK(loop != NULL);
    for (int i = 0; i < workers; i++) {
        struct sockaddr_un u = {.sun_family = AF_UNIX};
        struct sockaddr_in in = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)(base + i)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        (void)snprintf(u.sun_path, sizeof(u.sun_path), "%s/w%d.sock", argv[2], i);
        (void)unlink(u.sun_path);
        serve(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&u, sizeof(u), i);
        serve(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&in, sizeof(in),
              i);
    }
    loop_run(loop);
    return 0;
}
