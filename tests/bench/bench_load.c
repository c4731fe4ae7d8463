/* bench: rg_common */
/*
 * Closed-loop load on one HTTP/1.1 port: C connections, each sending its next request when the
 * answer to the last one is complete and checked. Prints one JSON object.
 *
 *     bench_load PORT [key=value ...]
 *
 *     connections=64  seconds=2 | requests=N   workers=4 (the ids' indexes)
 *     body=BYTES      the request body, of the pattern; GET without it     chunked=1
 *     query=TEXT      for the stub                expect=BYTES   the answer's body is the pattern
 *     fresh=1         a new connection per request
 *     ids=good|bad|none   good: w<i>-<32 hex> and the answer must come from worker i; bad:
 * malformed events=1        measure server-sent events instead: time from the worker's write to the
 * read slow=BYTES      per second and connection are read, with a small receive buffer
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench_clock.h"
#include "bench_pattern.h"
#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"
#include "common/os/loop.h"

enum { SCRATCH = 256 * 1024, CHUNK = 64 * 1024, HEAD_MAX = 4096, WORKERS_MAX = 256, SLOW_MS = 20 };

enum ids { IDS_GOOD, IDS_BAD, IDS_NONE };

static struct {
    int port;
    long connections, requests, workers, slow;
    double seconds;
    uint64_t body, expect;
    const char *query;
    bool chunked, fresh, events, has_body;
    enum ids ids;
} want = {.connections = 64, .workers = 4, .query = ""};

struct user {
    struct loop_io io;
    struct loop_timer timer; /* slow readers */
    struct loop_task next;
    int fd;
    bool want_out, head_done, over;
    char out[512]; /* head, or the framing of a chunk */
    size_t out_len, out_at;
    uint64_t sent, chunk_left;
    int phase; /* of a chunked upload: 0 data, 1 end */
    int worker;
    uint64_t start_ns;
    char head[HEAD_MAX];
    size_t head_len;
    enum http1_body framing;
    uint64_t left, got;
    struct chunked scan;
    bool close_after;
    char line[160]; /* of an event */
    size_t line_len;
};

static struct loop *loop;
static struct http1_head parsed;
static char scratch[SCRATCH];
static VEC(float) latency;
static uint64_t started, done, failures, bad_status, misrouted, bad_body, connects, bytes_in,
    bytes_out;
static uint64_t served[WORKERS_MAX];
static bool stopping;
static long alive;

static void on_user(struct loop_io *io, unsigned events);
static void start_request(struct user *u);

static uint64_t random64(void)
{
    static uint64_t x = 0x9e3779b97f4a7c15u;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static bool more(void)
{
    return !stopping && (want.requests == 0 || started < (uint64_t)want.requests);
}

/* ------------------------------------------------------------------ requests */

/* Seven ways of not being a session id. */
static void bad_id(char *to)
{
    static unsigned turn;
    unsigned long long a = random64(), b = random64();

    switch (turn++ % 7) {
    case 0:
        (void)sprintf(to, "%016llx%016llx", a, b);
        break;
    case 1:
        (void)sprintf(to, "w-%016llx%016llx", a, b);
        break;
    case 2:
        (void)sprintf(to, "w%ld-%016llx%016llx", want.workers + 7, a, b);
        break;
    case 3:
        (void)sprintf(to, "W1-%016llx%016llx", a, b);
        break;
    case 4:
        (void)sprintf(to, "w99999999999999999999-%016llx%016llx", a, b);
        break;
    case 5:
        (void)sprintf(to, "w1_%016llx%016llx", a, b);
        break;
    default:
        (void)sprintf(to, "w1");
    }
}

static void make_head(struct user *u)
{
    char path[128], framing[64] = "";
    char *id = path + sprintf(path, "/sessions/");

    u->worker = -1;
    if (want.ids == IDS_GOOD) {
        u->worker = (int)(random64() % (uint64_t)want.workers);
        id += sprintf(id, "w%d-%016llx%016llx", u->worker, (unsigned long long)random64(),
                      (unsigned long long)random64());
    } else if (want.ids == IDS_BAD) {
        bad_id(id);
        id += strlen(id);
    } else {
        id--;
    }
    (void)sprintf(id, "%s", want.ids == IDS_NONE ? "" : "/v1/chat/completions");
    if (want.has_body && want.chunked)
        (void)sprintf(framing, "Transfer-Encoding: chunked\r\n");
    else if (want.has_body)
        (void)sprintf(framing, "Content-Length: %llu\r\n", (unsigned long long)want.body);
    u->out_len = (size_t)snprintf(
        u->out, sizeof(u->out),
        "%s %s%s%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench_load\r\nAccept: */*\r\n"
        "%s%s%s\r\n",
        want.has_body ? "POST" : "GET", path, *want.query ? "?" : "", want.query, want.port,
        want.fresh ? "Connection: close\r\n" : "",
        want.has_body ? "Content-Type: application/json\r\n" : "", framing);
}

static void finished(struct loop_task *t)
{
    start_request(CONTAINER_OF(t, struct user, next));
}

static void leave(struct user *u)
{
    if (u->fd >= 0) {
        loop_forget(loop, &u->io);
        close(u->fd);
        u->fd = -1;
    }
}

static void user_ends(struct user *u)
{
    leave(u);
    loop_timer_stop(loop, &u->timer);
    u->over = true;
    if (--alive == 0)
        loop_stop(loop);
}

static void fail(struct user *u)
{
    failures++;
    leave(u);
    if (failures > 100000)
        user_ends(u);
    else
        loop_task_post(loop, &u->next, finished);
}

/* The next bytes to send: what is in out, then the body. Refills out for chunked bodies. */
static size_t upload_piece(struct user *u)
{
    uint64_t left = want.has_body ? want.body - u->sent : 0;

    if (!want.chunked)
        return left < PATTERN_PERIOD ? (size_t)left : PATTERN_PERIOD;
    if (u->out_at == u->out_len && u->chunk_left == 0 && u->phase == 0) {
        const char *crlf = u->sent ? "\r\n" : "";

        u->chunk_left = left < CHUNK ? left : CHUNK;
        u->phase = u->chunk_left == 0;
        u->out_len = (size_t)sprintf(u->out, u->phase ? "%s0\r\n\r\n" : "%s%llx\r\n", crlf,
                                     (unsigned long long)u->chunk_left);
        u->out_at = 0;
    }
    return (size_t)u->chunk_left;
}

static void upload(struct user *u)
{
    for (;;) {
        size_t piece = upload_piece(u), headed;
        struct iovec iov[2] = {
            {.iov_base = u->out + u->out_at, .iov_len = u->out_len - u->out_at},
            {.iov_base = (void *)(uintptr_t)pattern_from(u->sent), .iov_len = piece},
        };
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t r;

        if (iov[0].iov_len + piece == 0)
            return;
        r = sendmsg(u->fd, &m, MSG_NOSIGNAL);
        if (r < 0) {
            if (errno == EAGAIN && !u->want_out) {
                u->want_out = true;
                loop_mod(loop, &u->io, LOOP_IN | LOOP_RDHUP | LOOP_OUT);
            }
            return; /* a broken pipe shows when reading: the answer may be there */
        }
        bytes_out += (uint64_t)r;
        headed = (size_t)r < iov[0].iov_len ? (size_t)r : iov[0].iov_len;
        u->out_at += headed;
        u->sent += (size_t)r - headed;
        if (want.chunked)
            u->chunk_left -= (size_t)r - headed;
    }
}

static void open_connection(struct user *u)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)want.port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, small = 64 * 1024;

    u->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(u->fd >= 0);
    (void)setsockopt(u->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (want.slow)
        (void)setsockopt(u->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    connects++;
    u->want_out = true;
    (void)connect(u->fd, (struct sockaddr *)&a, sizeof(a));
    CHECK(loop_add(loop, &u->io, u->fd, LOOP_IN | LOOP_RDHUP | LOOP_OUT, on_user, NULL) == 0);
}

static void start_request(struct user *u)
{
    if (!more()) {
        user_ends(u);
        return;
    }
    started++;
    u->start_ns = clock_ns(CLOCK_MONOTONIC);
    u->out_at = u->sent = u->chunk_left = u->head_len = u->got = u->line_len = 0;
    u->phase = 0;
    u->head_done = false;
    u->scan = (struct chunked){0};
    make_head(u);
    if (u->fd < 0)
        open_connection(u);
    else
        upload(u);
}

/* ------------------------------------------------------------------ answers */

static void complete(struct user *u)
{
    if (!want.events)
        *vec_push(&latency) = (float)((double)(clock_ns(CLOCK_MONOTONIC) - u->start_ns) / 1e3);
    done++;
    if (want.expect && u->got != want.expect)
        bad_body++;
    if (want.fresh || u->close_after)
        leave(u);
    loop_task_post(loop, &u->next, finished);
}

static void take_event_bytes(struct user *u, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '\n' && u->line_len < sizeof(u->line) - 1) {
            u->line[u->line_len++] = p[i];
            continue;
        }
        u->line[u->line_len] = 0;
        u->line_len = 0;
        if (strncmp(u->line, "data: {\"t\":", 11) == 0)
            *vec_push(&latency) =
                (float)((double)(clock_ns(CLOCK_MONOTONIC) - strtoull(u->line + 11, NULL, 10)) /
                        1e3);
    }
}

static void take_payload(struct user *u, const char *p, size_t n)
{
    bool good = true;

    if (want.events)
        take_event_bytes(u, p, n);
    else if (want.expect)
        good = pattern_matches(u->got, p, n);
    else if (want.body)
        good = memmem(p, n, "\"ok\":false", 10) == NULL;
    bad_body += !good;
    u->got += n;
}

static void check_head(struct user *u)
{
    struct str worker = http1_get(&parsed, STR("x-worker"));
    uint64_t index = WORKERS_MAX;

    if (parsed.status != 200)
        bad_status++;
    (void)str_to_u64(worker, WORKERS_MAX - 1, &index);
    if (index < WORKERS_MAX)
        served[index]++;
    if (u->worker >= 0 && parsed.status == 200 && index != (uint64_t)u->worker)
        misrouted++;
    u->framing = parsed.body;
    u->left = parsed.length;
    u->close_after = !parsed.keep_alive;
}

/* Returns how many bytes were used, -1 malformed. Sets *ret_complete. */
static ssize_t take_body(struct user *u, const char *p, size_t n, bool *ret_complete)
{
    size_t used = 0;

    if (u->framing != HTTP1_CHUNKED) {
        used = n < u->left ? n : (size_t)u->left;
        take_payload(u, p, used);
        u->left -= used;
        *ret_complete = u->left == 0;
        return (ssize_t)used;
    }
    while (used < n && !*ret_complete) {
        struct chunked_run run;
        int r = chunked_next(&u->scan, str_of(p + used, n - used), &run, NULL);

        if (r < 0)
            return -1;
        if (run.kind == CHUNKED_DATA)
            take_payload(u, p + used, run.len_bytes);
        used += run.len_bytes;
        *ret_complete = r == 1;
    }
    return (ssize_t)used;
}

/* Returns how many bytes were used, -1 malformed. */
static ssize_t take_head(struct user *u, const char *p, size_t n)
{
    size_t before = u->head_len, add = n < HEAD_MAX - before ? n : HEAD_MAX - before;
    int r;

    memcpy(u->head + before, p, add);
    u->head_len += add;
    r = http1_response(&parsed, str_of(u->head, u->head_len), 0, HEAD_MAX, false, NULL);
    if (r < 0 || (r == 0 && u->head_len == HEAD_MAX))
        return -1;
    if (r == 0)
        return (ssize_t)n;
    u->head_done = true;
    check_head(u);
    return (ssize_t)(parsed.len_bytes - before);
}

static bool feed(struct user *u, const char *p, size_t n)
{
    bool whole = false;

    while (n > 0 && !whole) {
        ssize_t used = u->head_done ? take_body(u, p, n, &whole) : take_head(u, p, n);

        if (used < 0)
            return false;
        p += used;
        n -= (size_t)used;
        whole = whole || (u->head_done && u->framing != HTTP1_CHUNKED && u->left == 0);
    }
    if (whole)
        complete(u);
    return n == 0;
}

/* Reads at most `limit` bytes. */
static void read_answer(struct user *u, size_t limit)
{
    while (u->fd >= 0 && limit > 0) {
        size_t n_max = limit < sizeof(scratch) ? limit : sizeof(scratch);
        ssize_t n = recv(u->fd, scratch, n_max, 0);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || !feed(u, scratch, (size_t)n)) {
            fail(u);
            return;
        }
        bytes_in += (uint64_t)n;
        limit -= (size_t)n;
        if ((size_t)n < n_max)
            return;
    }
}

static void on_user(struct loop_io *io, unsigned events)
{
    struct user *u = CONTAINER_OF(io, struct user, io);

    if ((events & (LOOP_ERR | LOOP_HUP)) == LOOP_HUP && !u->head_done && u->out_at == 0)
        return; /* not connected yet */
    if (events & LOOP_OUT)
        upload(u);
    if (!want.slow && (events & ~LOOP_OUT))
        read_answer(u, SIZE_MAX);
}

static void on_slow(struct loop_timer *t)
{
    struct user *u = CONTAINER_OF(t, struct user, timer);

    read_answer(u, (size_t)(want.slow * SLOW_MS / 1000));
    if (!u->over)
        loop_timer_set(loop, t, SLOW_MS, on_slow);
}

/* ------------------------------------------------------------------ the run */

static void on_time(struct loop_timer *t)
{
    (void)t;
    stopping = true;
    if (want.slow || want.events)
        loop_stop(loop);
}

static void on_patience(struct loop_timer *t)
{
    (void)t;
    failures += (uint64_t)alive;
    loop_stop(loop);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double quantile(double q)
{
    return latency.n ? (double)latency.at[(size_t)(q * (double)(latency.n - 1) + 0.5)] : 0;
}

static void report(double seconds)
{
    qsort(latency.at, latency.n, sizeof(*latency.at), by_size);
    (void)printf("{\"requests\": %llu, \"seconds\": %.4f, \"samples\": %zu, \"p50_us\": %.1f, "
                 "\"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, ",
                 (unsigned long long)done, seconds, latency.n, quantile(0.5), quantile(0.9),
                 quantile(0.99), quantile(1));
    (void)printf("\"failures\": %llu, \"bad_status\": %llu, \"misrouted\": %llu, "
                 "\"bad_body\": %llu, \"connects\": %llu, \"bytes_in\": %llu, \"bytes_out\": %llu, "
                 "\"served\": [",
                 (unsigned long long)failures, (unsigned long long)bad_status,
                 (unsigned long long)misrouted, (unsigned long long)bad_body,
                 (unsigned long long)connects, (unsigned long long)bytes_in,
                 (unsigned long long)bytes_out);
    for (long i = 0; i < want.workers; i++)
        (void)printf("%s%llu", i ? ", " : "", (unsigned long long)served[i]);
    (void)printf("]}\n");
}

static void set(const char *arg)
{
    const char *value = strchr(arg, '=');
    struct str key = str_of(arg, value ? (size_t)(value - arg) : 0);

    CHECK(value++ != NULL);
    if (str_eq_c(key, "query"))
        want.query = value;
    else if (str_eq_c(key, "ids"))
        want.ids = *value == 'b' ? IDS_BAD : *value == 'n' ? IDS_NONE : IDS_GOOD;
    else if (str_eq_c(key, "seconds"))
        want.seconds = strtod(value, NULL);
    else if (str_eq_c(key, "expect"))
        want.expect = strtoull(value, NULL, 10);
    else if (str_eq_c(key, "body")) {
        want.body = strtoull(value, NULL, 10);
        want.has_body = true;
    } else {
        const struct {
            const char *name;
            long *number;
            bool *flag;
        } rows[] = {
            {"connections", &want.connections, NULL}, {"requests", &want.requests, NULL},
            {"workers", &want.workers, NULL},         {"slow", &want.slow, NULL},
            {"chunked", NULL, &want.chunked},         {"fresh", NULL, &want.fresh},
            {"events", NULL, &want.events},
        };

        size_t i = 0;

        while (i < ARRAY_LEN(rows) && !str_eq_c(key, rows[i].name))
            i++;
        CHECK(i < ARRAY_LEN(rows));
        if (rows[i].number)
            *rows[i].number = strtol(value, NULL, 10);
        else
            *rows[i].flag = *value == '1';
    }
}

int main(int argc, char **argv)
{
    static struct loop_timer time_up, patience;
    struct rlimit r;
    uint64_t begin;

    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_load PORT [key=value ...]\n");
        return 2;
    }
    want.port = (int)strtol(argv[1], NULL, 10);
    for (int i = 2; i < argc; i++)
        set(argv[i]);
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    pattern_init();
    loop = loop_new(NULL);
    CHECK(loop != NULL && want.workers <= WORKERS_MAX);
    if (want.seconds > 0) {
        loop_timer_set(loop, &time_up, (uint64_t)(want.seconds * 1e3), on_time);
        loop_timer_set(loop, &patience, (uint64_t)(want.seconds * 1e3) + 15000, on_patience);
    }
    begin = clock_ns(CLOCK_MONOTONIC);
    alive = want.connections;
    for (long i = 0; i < want.connections; i++) {
        struct user *u = mem_zalloc(sizeof(*u));

        u->fd = -1;
        if (want.slow)
            loop_timer_set(loop, &u->timer, SLOW_MS, on_slow);
        loop_task_post(loop, &u->next, finished);
    }
    loop_run(loop);
    report((double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e9);
    return 0;
}
