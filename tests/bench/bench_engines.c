/* bench: rg_worker */
/*
 * The engine pool against a stub SGLang in a thread of its own: latency that the pool adds to a
 * token (from the stub's write to the delta), CPU of the pool's thread per token, memory per call.
 *
 *     bench_engines [SESSIONS [TOKENS [GAP_MS]]]      400 sessions, 250 tokens, one every 20 ms
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench_clock.h"
#include "bench_door.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"

static struct {
    int sessions, tokens, gap_ms;
    uint64_t *sent_ns; /* [session][token], by the stub */
    uint32_t *late_us; /* by the pool */
    size_t n_late;
    int done;
    struct loop *loop;
    long rss_kb;
} bench;

static long resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f && fscanf(f, "%*d %ld", &pages) == 1);
    (void)fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* --- the stub --- */

struct peer {
    struct loop_io io;
    struct loop_timer timer;
    struct loop *loop;
    struct buf in;
    int session, sent;
};

static void put(struct peer *p, const char *text, size_t n)
{
    CHECK(write(p->io.fd, text, n) == (ssize_t)n);
}

static void peer_token(struct loop_timer *t)
{
    struct peer *p = CONTAINER_OF(t, struct peer, timer);
    bool last = p->sent + 1 == bench.tokens;
    char doc[700], chunk[800];
    int n, m;

    n = snprintf(
        doc, sizeof(doc),
        "data: {\"text\":\" word\",\"output_ids\":[%d],\"meta_info\":{\"id\":\"session-%d:1.0.0."
        "\",\"finish_reason\":%s,\"prompt_tokens\":1,\"weight_version\":\"default\","
        "\"num_retractions\":0,\"reasoning_tokens\":0,\"completion_tokens\":%d,"
        "\"cached_tokens\":0,\"dp_rank\":null,\"input_token_logprobs\":[],"
        "\"output_token_logprobs\":[[-0.12345678901234567,%d,null]],"
        "\"output_token_logprobs_length\":%d}}\n\n%s",
        p->sent, p->session, last ? "{\"type\":\"stop\",\"matched\":2}" : "null", p->sent + 1,
        p->sent, p->sent + 1, last ? "data: [DONE]\n\n" : "");
    m = snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n%s", n, doc, last ? "0\r\n\r\n" : "");
    bench.sent_ns[p->session * bench.tokens + p->sent] = clock_ns(CLOCK_MONOTONIC);
    put(p, chunk, (size_t)m);
    if (++p->sent < bench.tokens)
        loop_timer_set(p->loop, &p->timer, (uint64_t)bench.gap_ms, peer_token);
    else
        buf_clear(&p->in);
}

static void peer_begin(struct peer *p)
{
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    const char *ids = strstr(p->in.p, "\"input_ids\":[");

    CHECK(ids);
    p->session = atoi(ids + 13);
    p->sent = 0;
    put(p, head, sizeof(head) - 1);
    loop_timer_set(p->loop, &p->timer, 1 + (uint64_t)(p->session % bench.gap_ms), peer_token);
}

static void peer_read(struct loop_io *io, unsigned events)
{
    struct peer *p = CONTAINER_OF(io, struct peer, io);
    char text[4096];
    ssize_t n;

    (void)events;
    while ((n = read(io->fd, text, sizeof(text))) > 0)
        buf_add(&p->in, text, (size_t)n);
    if (n == 0) {
        loop_del(p->loop, io);
        loop_timer_stop(p->loop, &p->timer);
        (void)close(io->fd);
        buf_done(&p->in);
        free(p);
        return;
    }
    buf_add_c(&p->in, 0);
    p->in.len--;
    if (strncmp(p->in.p, "GET", 3) == 0) {
        put(p, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 38);
        buf_clear(&p->in);
    } else if (strstr(p->in.p, "\r\n\r\n") && p->in.p[p->in.len - 1] == '}') {
        peer_begin(p);
    }
}

static void peer_new(struct loop *loop, int fd)
{
    struct peer *p = mem_zalloc(sizeof(*p));
    struct err e;

    p->loop = loop;
    CHECK(loop_add(loop, &p->io, fd, LOOP_IN, peer_read, &e) == 0);
}

static struct door door;
static atomic_bool stub_stop;

static void *stub_run(void *arg)
{
    (void)arg;
    while (!stub_stop)
        (void)loop_poll(door.loop, 100);
    return NULL;
}

/* --- the pool --- */

struct session {
    int index, got;
};

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct session *s = ctx;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);

    for (size_t i = 0; i < d->ids.n; i++) {
        uint64_t sent = bench.sent_ns[s->index * bench.tokens + s->got++];

        bench.late_us[bench.n_late++] = (uint32_t)((now - sent) / 1000);
    }
}

static void on_done(void *ctx, const struct engine_result *r)
{
    struct session *s = ctx;

    CHECK((int)r->ids.n == bench.tokens && s->got == bench.tokens);
    if (bench.rss_kb == 0)
        bench.rss_kb = resident_kb();
    if (++bench.done == bench.sessions)
        loop_stop(bench.loop);
}

static void on_failed(void *ctx, const struct err *e)
{
    (void)ctx;
    (void)fprintf(stderr, "%s\n", e->text);
    CHECK(!"a call failed");
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void run_sessions(struct engine_pool *pool)
{
    static const struct engine_events events = {
        .delta = on_delta, .done = on_done, .failed = on_failed};
    struct session *sessions = mem_calloc((size_t)bench.sessions, sizeof(*sessions));
    struct sampling sampling = SAMPLING_DEFAULTS;
    int32_t *ids = mem_calloc((size_t)bench.sessions, sizeof(*ids));
    struct token_span *parts = mem_calloc((size_t)bench.sessions, sizeof(*parts));

    sampling.max_tokens = bench.tokens;
    for (int i = 0; i < bench.sessions; i++) {
        char name[32];
        struct engine_request r = {.session_id = {name, 0},
                                   .call = 1,
                                   .prompt = token_parts_of(&parts[i]),
                                   .sampling = &sampling,
                                   .stream = true};

        ids[i] = i;
        parts[i] = (struct token_span){&ids[i], 1};
        r.session_id.len = (size_t)snprintf(name, sizeof(name), "session-%d", i);
        sessions[i].index = i;
        (void)engine_start(pool, &r, &events, &sessions[i]);
    }
    loop_run(bench.loop);
    free(parts);
    free(ids);
    free(sessions);
}

static void report(uint64_t cpu_ns, uint64_t wall_ns, long before_kb)
{
    qsort(bench.late_us, bench.n_late, sizeof(*bench.late_us), by_value);
    printf("%d sessions, %zu tokens in %.1f s (%.0f tokens/s)\n", bench.sessions, bench.n_late,
           (double)wall_ns / 1e9, (double)bench.n_late / ((double)wall_ns / 1e9));
    printf("added latency per token: p50 %u us, p99 %u us, max %u us\n",
           bench.late_us[bench.n_late / 2], bench.late_us[bench.n_late * 99 / 100],
           bench.late_us[bench.n_late - 1]);
    printf("CPU of the pool per token: %.2f us\n", (double)cpu_ns / 1e3 / (double)bench.n_late);
    printf("memory per call, stub included: %.1f KB\n",
           (double)(bench.rss_kb - before_kb) / bench.sessions);
}

int main(int argc, char **argv)
{
    char engine[64];
    const char *engines[] = {engine};
    struct engine_options o = {
        .engines = engines, .n_engines = 1, .max_inflight = 100000, .retries = 2};
    struct engine_pool *pool;
    struct rlimit files = {65536, 65536};
    uint64_t cpu, wall;
    long before;
    pthread_t stub;
    struct err e;
    size_t tokens;

    bench.sessions = argc > 1 ? atoi(argv[1]) : 400;
    bench.tokens = argc > 2 ? atoi(argv[2]) : 250;
    bench.gap_ms = argc > 3 ? atoi(argv[3]) : 20;
    CHECK(bench.sessions > 0 && bench.tokens > 0 && bench.gap_ms > 0);
    tokens = (size_t)bench.sessions * (size_t)bench.tokens;
    bench.sent_ns = mem_calloc(tokens, sizeof(*bench.sent_ns));
    bench.late_us = mem_calloc(tokens, sizeof(*bench.late_us));
    (void)setrlimit(RLIMIT_NOFILE, &files);
    memset(bench.sent_ns, 1, tokens * sizeof(*bench.sent_ns));
    memset(bench.late_us, 1, tokens * sizeof(*bench.late_us));
    door_open(&door, peer_new);
    CHECK(pthread_create(&stub, NULL, stub_run, NULL) == 0);
    (void)snprintf(engine, sizeof(engine), "sglang:http://127.0.0.1:%u", door.port);
    bench.loop = loop_new(&e);
    CHECK(engine_pool_new(bench.loop, &o, &pool, &e) == 0);
    before = resident_kb();
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    wall = clock_ns(CLOCK_MONOTONIC);
    run_sessions(pool);
    report(clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu, clock_ns(CLOCK_MONOTONIC) - wall, before);
    engine_pool_free(pool);
    stub_stop = true;
    (void)pthread_join(stub, NULL);
    door_close(&door);
    loop_free(bench.loop);
    free(bench.sent_ns);
    free(bench.late_us);
    return 0;
}
