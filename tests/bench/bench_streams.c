/* bench: rg_common */
/*
 * A stub SGLang and the agents at the other end of a gateway in one process (a thread each), so
 * that both know one clock: when a token was written, and when its text arrived. Driven by
 * tests/bench/engines.py.
 *
 *     bench_streams TOKENS GAP_MS FILLER_BYTES TICK_US
 *
 * Says "port N" for the stub. Then for every line on its input it lets one call per id run at once:
 *     PORT STREAM ID ID ...     PORT of a gateway; 0: the stub itself, asked as the gateway asks
 * and answers with one JSON object. STREAM 1: tokens every GAP_MS; 0: all of them in one body,
 * TOKENS x GAP_MS after the request. FILLER_BYTES pads every token's document; every TICK_US the
 * stub writes what is due.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench_clock.h"
#include "bench_door.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"

enum {
    CALLS_MAX = 8192,
    STOP_ID = 257,
    TEXT_ID = 'x',
    HEAD_MAX = 64 * 1024,
    SCRATCH = 256 * 1024,
    TICK_NS = 250000
};

static struct {
    int tokens, gap_ms, filler, tick_us;
    uint64_t *sent_ns; /* [call][token]; 0: not yet */
    uint32_t *late_us; /* of all tokens that came */
    size_t n_late;
    uint64_t begun_ns[CALLS_MAX]; /* the stub had the whole request */
    /* by call: from the agent's request to the stub, the first token's way, from the stub's last
     * write to the end of the agent's answer */
    uint32_t way_us[CALLS_MAX], first_us[CALLS_MAX], end_us[CALLS_MAX];
    uint32_t whole_us[CALLS_MAX]; /* from the agent's request to its answer's end */
} bench;

/* --- the stub --- */

struct peer {
    struct loop_io io;
    struct loop_timer timer;
    struct loop *loop;
    struct buf in, out;
    int call, sent;
    bool stream;
    struct peer *next, *prev; /* of those that stream */
    uint64_t due_ns;          /* of the next token; 0: does not stream */
};

static struct peer *streaming;

static void stream_begin(struct peer *p, uint64_t due_ns)
{
    p->due_ns = due_ns;
    p->prev = NULL;
    p->next = streaming;
    if (p->next)
        p->next->prev = p;
    streaming = p;
}

static void stream_end(struct peer *p)
{
    if (p->due_ns == 0)
        return;
    p->due_ns = 0;
    if (p->prev)
        p->prev->next = p->next;
    else
        streaming = p->next;
    if (p->next)
        p->next->prev = p->prev;
}

/* What the socket does not take waits for its next turn. */
static void put(struct peer *p, const char *text, size_t n)
{
    ssize_t sent = p->out.len > 0 ? 0 : send(p->io.fd, text, n, MSG_NOSIGNAL);

    if (sent < (ssize_t)n)
        buf_add(&p->out, text + MAX_OF(sent, 0), n - (size_t)MAX_OF(sent, 0));
}

static void add_meta(struct buf *b, const struct peer *p, int from, int to, bool last)
{
    buf_printf(b, "],\"meta_info\":{\"id\":\"call-%d\",\"finish_reason\":%s,", p->call,
               last ? "{\"type\":\"stop\",\"matched\":257}" : "null");
    buf_printf(b,
               "\"weight_version\":\"default\",\"num_retractions\":0,\"reasoning_tokens\":0,"
               "\"completion_tokens\":%d,\"cached_tokens\":0,\"dp_rank\":null,"
               "\"input_token_logprobs\":[],\"output_token_logprobs\":[",
               to);
    for (int i = from; i < to; i++)
        buf_printf(b, "%s[-0.12345678901234567,%d,null]", i > from ? "," : "",
                   i + 1 < bench.tokens ? TEXT_ID : STOP_ID);
    buf_printf(b, "],\"output_token_logprobs_length\":%d}}", to);
}

static void add_doc(struct buf *b, const struct peer *p, int from, int to)
{
    buf_puts(b, "{\"text\":\"");
    for (int i = 0; i < bench.filler; i++)
        buf_add_c(b, 'x');
    buf_puts(b, "\",\"output_ids\":[");
    for (int i = from; i < to; i++)
        buf_printf(b, "%s%d", i > from ? "," : "", i + 1 < bench.tokens ? TEXT_ID : STOP_ID);
    add_meta(b, p, from, to, to == bench.tokens);
}

static void peer_token(struct peer *p)
{
    struct buf doc = {0}, chunk = {0};
    bool last = p->sent + 1 == bench.tokens;

    buf_puts(&doc, "data: ");
    add_doc(&doc, p, p->sent, p->sent + 1);
    buf_puts(&doc, last ? "\n\ndata: [DONE]\n\n" : "\n\n");
    buf_printf(&chunk, "%zx\r\n", doc.len);
    buf_add_str(&chunk, buf_str(&doc));
    buf_puts(&chunk, last ? "\r\n0\r\n\r\n" : "\r\n");
    if (p->call >= 0)
        bench.sent_ns[p->call * bench.tokens + p->sent] = clock_ns(CLOCK_MONOTONIC);
    put(p, chunk.p, chunk.len);
    buf_done(&doc);
    buf_done(&chunk);
    p->due_ns += (uint64_t)bench.gap_ms * 1000000;
    if (++p->sent == bench.tokens)
        stream_end(p);
}

/* Tokens whose time has come; the sessions' are spread evenly, not all at one tick of a timer. */
static void stream_due(void)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC);

    for (struct peer *p = streaming, *next; p; p = next) {
        next = p->next;
        if (p->due_ns <= now)
            peer_token(p);
    }
}

static void peer_whole(struct loop_timer *t)
{
    struct peer *p = CONTAINER_OF(t, struct peer, timer);
    struct buf doc = {0}, head = {0};

    add_doc(&doc, p, 0, bench.tokens);
    buf_printf(&head,
               "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
               doc.len);
    put(p, head.p, head.len);
    put(p, doc.p, doc.len);
    buf_done(&doc);
    buf_done(&head);
}

/* The call's number stands in the prompt, as text: "#7#" in bytes' ids, or plainly. */
static int call_of(struct str body)
{
    size_t at = str_find(body, STR(",35,"), 0);
    int n = 0;

    if (at == SIZE_MAX)
        return -1;
    for (const char *p = body.p + at + 4; *p >= '0' && *p <= '9'; p += 3) {
        int id = atoi(p);

        if (id == '#')
            return n;
        n = n * 10 + id - '0';
    }
    return -1;
}

static void peer_begin(struct peer *p, struct str body)
{
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                               "transfer-encoding: chunked\r\n\r\n";

    p->call = call_of(body);
    if (p->call >= 0)
        bench.begun_ns[p->call] = clock_ns(CLOCK_MONOTONIC);
    p->sent = 0;
    p->stream = str_find(body, STR("\"stream\":true"), 0) != SIZE_MAX;
    if (!p->stream) {
        loop_timer_set(p->loop, &p->timer,
                       MAX_OF((uint64_t)bench.gap_ms * (uint64_t)bench.tokens, 1u), peer_whole);
        return;
    }
    put(p, head, sizeof(head) - 1);
    /* Each call starts at a different part of the gap, so that not all peers send at once. */
    stream_begin(p, clock_ns(CLOCK_MONOTONIC) + (uint64_t)bench.gap_ms * 1000 *
                                                    ((uint64_t)MAX_OF(p->call, 0) * 618 % 1000));
}

/* A whole request in p->in? Answers it. */
static void peer_request(struct peer *p)
{
    static const char nothing[] = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    struct str all = buf_str(&p->in);
    size_t end = str_find(all, STR("\r\n\r\n"), 0), at;

    if (end == SIZE_MAX)
        return;
    if (!str_starts(all, STR("POST /generate"))) {
        put(p, nothing, sizeof(nothing) - 1); /* its body, if any, comes with the head */
        buf_clear(&p->in);
        return;
    }
    at = str_find(all, STR("content-length: "), 0);
    CHECK(at != SIZE_MAX && at < end);
    if (all.len < end + 4 + (size_t)strtoul(all.p + at + 16, NULL, 10))
        return;
    buf_add_c(&p->in, '\0');
    peer_begin(p, str_of(p->in.p + end + 4, p->in.len - end - 5));
    buf_done(&p->in);
}

static void peer_event(struct loop_io *io, unsigned events)
{
    struct peer *p = CONTAINER_OF(io, struct peer, io);
    static __thread char text[SCRATCH];
    ssize_t n;

    if (events & LOOP_OUT && p->out.len > 0) {
        n = send(io->fd, p->out.p, p->out.len, MSG_NOSIGNAL);
        if (n > 0)
            buf_consume(&p->out, (size_t)n);
        if (p->out.len == 0)
            buf_done(&p->out);
    }
    while ((n = read(io->fd, text, sizeof(text))) > 0) {
        buf_add(&p->in, text, (size_t)n);
        peer_request(p);
    }
    if (n == 0) {
        loop_del(p->loop, io);
        loop_timer_stop(p->loop, &p->timer);
        stream_end(p);
        (void)close(io->fd);
        buf_done(&p->in);
        buf_done(&p->out);
        free(p);
    }
}

static void peer_new(struct loop *loop, int fd)
{
    struct peer *p = mem_zalloc(sizeof(*p));
    struct err e;

    p->loop = loop;
    CHECK(loop_add(loop, &p->io, fd, LOOP_IN | LOOP_OUT, peer_event, &e) == 0);
}

static struct door door;
static atomic_bool stub_stop;

static void *stub_run(void *arg)
{
    (void)arg;
    while (!stub_stop) {
        (void)loop_poll(door.loop, streaming ? 0 : 20);
        stream_due();
        if (streaming)
            (void)nanosleep(&(struct timespec){.tv_nsec = bench.tick_us * 1000L}, NULL);
    }
    return NULL;
}

/* --- the agents --- */

struct agent {
    struct loop_io io;
    struct buf out, in;
    struct chunked chunked;
    enum http1_body framing;
    uint64_t left, sent_ns;
    int index, got, matched; /* characters of the marker that were just seen */
    bool in_body, counting, over;
};

static struct {
    struct loop *loop;
    struct agent *agents;
    int n, done, failed, port;
    bool stream;

} run;

static void agent_end(struct agent *a, bool good)
{
    uint64_t last = bench.sent_ns[a->index * bench.tokens + bench.tokens - 1];
    uint64_t now = clock_ns(CLOCK_MONOTONIC);

    if (a->over)
        return;
    a->over = true;
    bench.way_us[a->index] = (uint32_t)((bench.begun_ns[a->index] - a->sent_ns) / 1000);
    bench.end_us[a->index] = last > 0 ? (uint32_t)((now - last) / 1000) : 0;
    bench.whole_us[a->index] = (uint32_t)((now - a->sent_ns) / 1000);
    loop_del(run.loop, &a->io);
    (void)close(a->io.fd);
    buf_done(&a->out);
    buf_done(&a->in);
    if (!good || (run.stream && a->got != bench.tokens - (run.port ? 1 : 0))) {
        if (run.failed++ == 0)
            (void)fprintf(stderr, "call %d failed with %d tokens\n", a->index, a->got);
    }
    if (++run.done == run.n)
        loop_stop(run.loop);
}

static void took(struct agent *a, uint64_t now)
{
    uint64_t sent = a->got < bench.tokens ? bench.sent_ns[a->index * bench.tokens + a->got] : 0;

    if (a->got++ == 0)
        bench.first_us[a->index] = (uint32_t)((now - sent) / 1000);
    if (sent > 0 && run.stream)
        bench.late_us[bench.n_late++] = (uint32_t)((now - sent) / 1000);
}

/* Text of deltas stands behind "content":" and is made of x alone; from the stub itself every
 * document is one token. */
static void count(struct agent *a, const char *p, size_t n, uint64_t now)
{
    const char *marker = run.port ? "\"content\":\"" : "\"output_ids\":[";
    int len = (int)strlen(marker);

    for (size_t i = 0; i < n; i++) {
        if (a->counting && p[i] == 'x') {
            took(a, now);
            continue;
        }
        a->counting = false;
        a->matched = p[i] == marker[a->matched] ? a->matched + 1 : p[i] == marker[0];
        if (a->matched < len)
            continue;
        a->matched = 0;
        if (run.port)
            a->counting = true;
        else
            took(a, now);
    }
}

/* True when the answer is complete. */
static bool take_body(struct agent *a, const char *p, size_t n, uint64_t now)
{
    while (n > 0) {
        struct chunked_run r;
        struct err e;
        int rc;

        if (a->framing == HTTP1_LENGTH) {
            count(a, p, n, now);
            a->left -= MIN_OF(a->left, n);
            return a->left == 0;
        }
        rc = chunked_next(&a->chunked, str_of(p, n), &r, &e);
        CHECK(rc >= 0);
        if (r.kind == CHUNKED_DATA)
            count(a, p, r.len_bytes, now);
        if (rc > 0)
            return true;
        p += r.len_bytes;
        n -= r.len_bytes;
    }
    return false;
}

static bool take(struct agent *a, const char *p, size_t n)
{
    static struct http1_head h;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    struct err e;
    int rc;

    if (a->in_body)
        return take_body(a, p, n, now);
    buf_add(&a->in, p, n);
    rc = http1_response(&h, buf_str(&a->in), 0, HEAD_MAX, false, &e);
    CHECK(rc >= 0);
    if (rc == 0)
        return false;
    if (h.status != 200) {
        (void)fprintf(stderr, "status %d: %.*s\n", h.status, (int)MIN_OF(a->in.len, (size_t)800),
                      a->in.p);
        agent_end(a, false);
        return false;
    }
    a->in_body = true;
    a->framing = h.body;
    a->left = h.length;
    return take_body(a, a->in.p + h.len_bytes, a->in.len - h.len_bytes, now);
}

static void agent_event(struct loop_io *io, unsigned events)
{
    struct agent *a = CONTAINER_OF(io, struct agent, io);
    static char text[SCRATCH];
    ssize_t n = -1;

    if (events & LOOP_OUT && a->out.len > 0) {
        n = send(io->fd, a->out.p, a->out.len, MSG_NOSIGNAL);
        if (n > 0)
            buf_consume(&a->out, (size_t)n);
        if (a->out.len == 0)
            buf_done(&a->out);
    }
    while (!a->over && (n = recv(io->fd, text, sizeof(text), 0)) > 0) {
        if (take(a, text, (size_t)n))
            agent_end(a, true);
    }
    if (!a->over && n == 0)
        agent_end(a, false);
}

static void write_request(struct agent *a, const char *id)
{
    struct buf body = {0};
    const char *stream = run.stream ? "true" : "false";

    if (run.port) {
        buf_printf(
            &body,
            "{\"model\":\"m\",\"stream\":%s,\"max_tokens\":%d,\"messages\":[{\"role\":\"user\","
            "\"content\":\"Please tell me a story about #%d#.\"}]}",
            stream, bench.tokens, a->index);
    } else {
        buf_printf(&body, "{\"stream\":%s,\"input_ids\":[1,35", stream);
        for (char digits[16], *d = (snprintf(digits, sizeof(digits), "%d", a->index), digits); *d;
             d++)
            buf_printf(&body, ",%d", *d);
        buf_puts(&body, ",35,1]}");
    }
    if (run.port)
        buf_printf(&a->out, "POST /sessions/%s/v1/chat/completions HTTP/1.1\r\n", id);
    else
        buf_puts(&a->out, "POST /generate HTTP/1.1\r\n");
    buf_printf(&a->out, "host: x\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n",
               body.len);
    buf_add_str(&a->out, buf_str(&body));
    buf_done(&body);
}

static void agent_start(struct agent *a, const char *id)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)(run.port ? run.port : door.port))};
    struct err e;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    write_request(a, id);
    CHECK(fd >= 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)connect(fd, (const struct sockaddr *)&to, sizeof(to));
    a->sent_ns = clock_ns(CLOCK_MONOTONIC);
    CHECK(loop_add(run.loop, &a->io, fd, LOOP_IN | LOOP_OUT, agent_event, &e) == 0);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t quantile(double q)
{
    return bench.n_late == 0 ? 0 : bench.late_us[(size_t)(q * (double)(bench.n_late - 1))];
}

static void report_calls(const char *name, uint32_t *us)
{
    size_t n = (size_t)run.n;

    qsort(us, n, sizeof(*us), by_value);
    printf(",\"%s_p50_us\":%u,\"%s_p99_us\":%u", name, us[n / 2], name, us[n * 99 / 100]);
}

static void report(double seconds, double client_cpu, double all_cpu)
{
    qsort(bench.late_us, bench.n_late, sizeof(*bench.late_us), by_value);
    printf(
        "{\"calls\":%d,\"failed\":%d,\"tokens\":%zu,\"seconds\":%.3f,\"p50_us\":%u,\"p90_us\":%u,"
        "\"p99_us\":%u,\"max_us\":%u,\"client_cpu_s\":%.3f,\"both_cpu_s\":%.3f",
        run.n, run.failed, bench.n_late, seconds, quantile(0.5), quantile(0.9), quantile(0.99),
        quantile(1), client_cpu, all_cpu);
    report_calls("request", bench.way_us);
    report_calls("first_token", bench.first_us);
    report_calls("end", bench.end_us);
    report_calls("whole", bench.whole_us);
    puts("}");
    (void)fflush(stdout);
}

static void one_run(char *line)
{
    char *at = line, *save = NULL, *word = strtok_r(at, " \n", &save);
    double start = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_THREAD_CPUTIME_ID),
           both = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    struct err e;

    run.port = word ? atoi(word) : 0;
    word = strtok_r(NULL, " \n", &save);
    run.stream = word && word[0] == '1';
    run.n = run.done = run.failed = 0;
    run.agents = mem_calloc(CALLS_MAX, sizeof(*run.agents));
    run.loop = loop_new(&e);
    bench.n_late = 0;
    memset(bench.sent_ns, 0, (size_t)CALLS_MAX * (size_t)bench.tokens * sizeof(*bench.sent_ns));
    while ((word = strtok_r(NULL, " \n", &save)) && run.n < CALLS_MAX) {
        run.agents[run.n].index = run.n;
        agent_start(&run.agents[run.n++], word);
    }
    loop_run(run.loop);
    report(clock_s(CLOCK_MONOTONIC) - start, clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu,
           clock_s(CLOCK_PROCESS_CPUTIME_ID) - both);
    loop_free(run.loop);
    free(run.agents);
}

int main(int argc, char **argv)
{
    struct rlimit files = {65536, 65536};
    pthread_t stub;
    char *line = NULL;
    size_t room = 0;

    bench.tokens = argc > 1 ? atoi(argv[1]) : 100;
    bench.gap_ms = argc > 2 ? atoi(argv[2]) : 20;
    bench.filler = argc > 3 ? atoi(argv[3]) : 4;
    bench.tick_us = argc > 4 ? atoi(argv[4]) : 250;
    CHECK(bench.tokens > 0 && bench.gap_ms >= 0 && bench.tick_us > 0);
    bench.sent_ns = mem_calloc((size_t)CALLS_MAX * (size_t)bench.tokens, sizeof(*bench.sent_ns));
    bench.late_us = mem_calloc((size_t)CALLS_MAX * (size_t)bench.tokens, sizeof(*bench.late_us));
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)signal(SIGPIPE, SIG_IGN);
    door_open(&door, peer_new);
    CHECK(pthread_create(&stub, NULL, stub_run, NULL) == 0);
    printf("port %u\n", door.port);
    (void)fflush(stdout);
    while (getline(&line, &room, stdin) > 0)
        one_run(line);
    free(line);
    stub_stop = true;
    (void)pthread_join(stub, NULL);
    door_close(&door);
    return 0;
}
