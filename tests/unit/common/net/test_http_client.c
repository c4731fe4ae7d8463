/* The client with a scripted server: a thread that answers each request with the next pieces of
 * text, with a short pause between them. */
#include "common/base/buf.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "testing.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_cache.h>

#include "common/base/attrs.h"
#include "common/codec/base64.h"

enum { PIECES = 8, ANSWERS = 4 };

struct server {
    int listener;
    uint16_t port;
    /* Pieces to send for each request. "CLOSE" and "RESET" end the connection; "WAIT" waits until
     * the client has left. */
    const char *script[ANSWERS][PIECES];
    int step_bytes;   /* pieces are sent in steps of this number of bytes */
    int room;         /* size of the socket buffer; 0: default */
    const char *cert; /* TLS: tests/data/tls/NAME.pem and .key */
    int connections, resumed;
    struct buf seen;
    pthread_t thread;
    mbedtls_ssl_context ssl;
    int fd;
    bool tls;
};

static int server_send(void *ctx, const unsigned char *p, size_t n)
{
    return (int)send(((struct server *)ctx)->fd, p, n, MSG_NOSIGNAL);
}

static int server_receive(void *ctx, unsigned char *p, size_t n)
{
    return (int)recv(((struct server *)ctx)->fd, p, n, 0);
}

static ssize_t put(struct server *s, const char *p, size_t n)
{
    if (s->tls)
        return mbedtls_ssl_write(&s->ssl, (const unsigned char *)p, n);
    return send(s->fd, p, n, MSG_NOSIGNAL);
}

static ssize_t get(struct server *s, char *p, size_t n)
{
    return s->tls ? mbedtls_ssl_read(&s->ssl, (unsigned char *)p, n) : recv(s->fd, p, n, 0);
}

static bool read_body(struct server *s, size_t left)
{
    while (left > 0) {
        ssize_t n = get(s, buf_reserve(&s->seen, left), left);

        if (n <= 0)
            return false;
        s->seen.len += (size_t)n;
        left -= (size_t)n;
    }
    return true;
}

/* Reads one request with its body. Returns false at the end of the connection. */
static bool read_request(struct server *s)
{
    size_t start = s->seen.len;

    for (;;) {
        char byte;
        const char *length;

        if (get(s, &byte, 1) != 1)
            return false;
        buf_add_c(&s->seen, byte);
        if (!str_ends(buf_str(&s->seen), STR("\r\n\r\n")))
            continue;
        buf_add_c(&s->seen, 0);
        length = strstr(s->seen.p + start, "content-length: ");
        s->seen.len--;
        return read_body(s, length ? strtoul(length + 16, NULL, 10) : 0);
    }
}

/* Sends the pieces. Returns false if the connection ends. */
static bool play(struct server *s, const char *const *pieces)
{
    for (int i = 0; i < PIECES && pieces[i]; i++) {
        size_t len = strlen(pieces[i]), step = s->step_bytes ? (size_t)s->step_bytes : len;
        char byte;

        if (strcmp(pieces[i], "CLOSE") == 0)
            return false;
        if (strcmp(pieces[i], "RESET") == 0) {
            struct linger hard = {1, 0};

            setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
            return false;
        }
        if (strcmp(pieces[i], "WAIT") == 0) {
            (void)get(s, &byte, 1);
            return false;
        }
        for (size_t at = 0; at < len; at += step) {
            if (put(s, pieces[i] + at, step < len - at ? step : len - at) < 0)
                return false;
            usleep(s->step_bytes ? 200 : 5000);
        }
    }
    return true;
}

static bool server_shake(struct server *s, const mbedtls_ssl_config *config)
{
    mbedtls_ssl_init(&s->ssl);
    cr_assert_eq(mbedtls_ssl_setup(&s->ssl, config), 0);
    mbedtls_ssl_set_bio(&s->ssl, s, server_send, server_receive, NULL);
    return mbedtls_ssl_handshake(&s->ssl) == 0;
}

static void serve(struct server *s, const mbedtls_ssl_config *config)
{
    int answer = 0;

    while ((s->fd = accept(s->listener, NULL, NULL)) >= 0) {
        bool on = true;

        s->connections++;
        if (config)
            on = server_shake(s, config);
        while (on && answer < ANSWERS && read_request(s))
            on = play(s, s->script[answer++]);
        if (config) {
            (void)mbedtls_ssl_close_notify(&s->ssl);
            mbedtls_ssl_free(&s->ssl);
        }
        close(s->fd);
    }
}

static void serve_tls(struct server *s)
{
    mbedtls_ssl_config config;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_ssl_cache_context cache;
    mbedtls_x509_crt cert;
    mbedtls_pk_context key;
    char path[256];

    mbedtls_ssl_config_init(&config);
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_ssl_cache_init(&cache);
    mbedtls_x509_crt_init(&cert);
    mbedtls_pk_init(&key);
    mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0);
    snprintf(path, sizeof(path), RG_TEST_DATA "/tls/%s.pem", s->cert);
    mbedtls_x509_crt_parse_file(&cert, path);
    snprintf(path, sizeof(path), RG_TEST_DATA "/tls/%s.key", s->cert);
    mbedtls_pk_parse_keyfile(&key, path, NULL);
    mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_SERVER, MBEDTLS_SSL_TRANSPORT_STREAM,
                                MBEDTLS_SSL_PRESET_DEFAULT);
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
    mbedtls_ssl_conf_own_cert(&config, &cert, &key);
    mbedtls_ssl_conf_session_cache(&config, &cache, mbedtls_ssl_cache_get, mbedtls_ssl_cache_set);
    serve(s, &config);
    for (const mbedtls_ssl_cache_entry *e = cache.chain; e; e = e->next)
        s->resumed++; /* counts resumed sessions */
    mbedtls_ssl_cache_free(&cache);
    mbedtls_ssl_config_free(&config);
    mbedtls_x509_crt_free(&cert);
    mbedtls_pk_free(&key);
    mbedtls_ctr_drbg_free(&random);
    mbedtls_entropy_free(&entropy);
}

static void *server_thread(void *arg)
{
    struct server *s = arg;

    s->tls = s->cert != NULL;
    if (s->tls)
        serve_tls(s);
    else
        serve(s, NULL);
    return NULL;
}

static void server_start(struct server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);

    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s->room)
        cr_assert_eq(setsockopt(s->listener, SOL_SOCKET, SO_RCVBUF, &s->room, sizeof(s->room)), 0);
    cr_assert_eq(bind(s->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    cr_assert_eq(listen(s->listener, 8), 0);
    getsockname(s->listener, (struct sockaddr *)&a, &len);
    s->port = ntohs(a.sin_port);
    cr_assert_eq(pthread_create(&s->thread, NULL, server_thread, s), 0);
}

static void server_stop(struct server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    buf_done(&s->seen);
}

/* One call and its result. */
struct outcome {
    struct loop *loop;
    struct http_call *call;
    int status;
    struct buf body;
    bool over, done, began;
    struct err e;
    bool pause;  /* pause after each run of bytes */
    bool cancel; /* cancel at the first body bytes */
    struct loop_timer resume;
    int pauses;
};

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct outcome *)ctx)->status = h->status;
}

static void on_resume(struct loop_timer *t)
{
    http_call_resume(CONTAINER_OF(t, struct outcome, resume)->call);
}

static void on_body(void *ctx, struct str bytes)
{
    struct outcome *o = ctx;

    buf_add_str(&o->body, bytes);
    if (o->cancel) {
        http_call_cancel(o->call);
        o->over = true;
        loop_stop(o->loop);
    } else if (o->pause) {
        o->pauses++;
        http_call_pause(o->call);
        loop_timer_set(o->loop, &o->resume, 3, on_resume);
    }
}

static void on_done(void *ctx)
{
    struct outcome *o = ctx;

    cr_assert_not(o->over);
    o->over = o->done = true;
    loop_stop(o->loop);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    struct outcome *o = ctx;

    cr_assert_not(o->over);
    o->over = true;
    o->e = *e;
    o->began = began;
    loop_stop(o->loop);
}

static const struct http_events events = {on_head, on_body, on_done, on_failed};

struct rig {
    struct loop *loop;
    struct http_client *client;
    struct server server;
};

static void rig_start(struct rig *g, const char *host, const char *ca)
{
    struct http_client_options o = {.ca_file = ca, .connect_timeout_ms = 5000};
    struct err e;
    char url[64];

    server_start(&g->server);
    snprintf(url, sizeof(url), "%s://%s:%u", g->server.cert ? "https" : "http", host,
             g->server.port);
    g->loop = loop_new(&e);
    cr_assert_eq(http_client_new(g->loop, url, &o, &g->client, &e), 0, "%s", e.text);
}

static void rig_stop(struct rig *g)
{
    http_client_free(g->client);
    loop_free(g->loop);
    server_stop(&g->server);
}

static struct outcome call_with_body(struct rig *g, struct outcome o, uint64_t idle_ms,
                                     struct buf *body)
{
    struct http_request r = {.method = "POST",
                             .path = STR("/x"),
                             .headers = STR("x-a: b\r\n"),
                             .idle_timeout_ms = idle_ms,
                             .first_timeout_ms = idle_ms,
                             .body = body};

    o.loop = g->loop;
    o.call = http_client_start(g->client, &r, &events, &o);
    cr_assert_not(o.over);
    while (!o.over)
        loop_run(g->loop);
    return o;
}

static struct outcome call_with(struct rig *g, struct outcome o, uint64_t idle_ms)
{
    struct buf body = {0};

    buf_puts(&body, "hello");
    return call_with_body(g, o, idle_ms, &body);
}

static struct outcome call(struct rig *g)
{
    return call_with(g, (struct outcome){0}, 0);
}

#define HEAD "HTTP/1.1 200 OK\r\n"

static void assert_body(struct outcome *o, const char *want)
{
    cr_assert(o->done, "%s", o->e.text);
    cr_assert_eq(o->status, 200);
    cr_assert(str_eq_c(buf_str(&o->body), want), "%.*s", (int)o->body.len, o->body.p);
    buf_done(&o->body);
}

TEST(http_client, framings_and_keep_alive)
{
    struct rig g = {.server.script = {{HEAD "content-length: 3\r\n\r\nabc"},
                                      {HEAD "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc"
                                            "\r\n0\r\n\r\n"},
                                      {"HTTP/1.1 100 Continue\r\n\r\n" HEAD "\r\nabc", "CLOSE"}}};

    rig_start(&g, "127.0.0.1", NULL);
    for (int i = 0; i < 3; i++) {
        struct outcome o = call(&g);

        assert_body(&o, "abc");
        cr_assert_eq(http_client_connections(g.client), i < 2);
    }
    cr_assert_eq(g.server.connections, 1);
    buf_add_c(&g.server.seen, 0);
    cr_assert_not_null(strstr(g.server.seen.p, "POST /x HTTP/1.1\r\nhost: 127.0.0.1:"));
    cr_assert_not_null(strstr(g.server.seen.p, "\r\nx-a: b\r\ncontent-length: 5\r\n\r\nhello"));
    rig_stop(&g);
}

/* The kernel accepts a part at a time, and each write continues at the end of the last one. */
TEST(http_client, a_body_that_no_socket_takes_at_once)
{
    enum { NUMBERS = 2 << 20 };
    struct rig g = {.server = {.room = 4096, .script = {{HEAD "content-length: 2\r\n\r\nok"}}}};
    struct buf body = {0};
    struct outcome o;
    const char *seen;

    for (uint32_t i = 0; i < NUMBERS; i++)
        buf_add(&body, &i, sizeof(i));
    rig_start(&g, "127.0.0.1", NULL);
    o = call_with_body(&g, (struct outcome){0}, 0, &body);
    assert_body(&o, "ok");
    cr_assert_gt(g.server.seen.len, sizeof(uint32_t) * NUMBERS);
    seen = g.server.seen.p + g.server.seen.len - sizeof(uint32_t) * NUMBERS;
    for (uint32_t i = 0, n; i < NUMBERS; i++) {
        memcpy(&n, seen + i * sizeof(n), sizeof(n));
        cr_assert_eq(n, i);
    }
    rig_stop(&g);
}

/* Bytes that are only referenced by the body are sent at their position, even if the socket accepts
 * few bytes at a time. */
TEST(http_client, bytes_that_stand_elsewhere)
{
    enum { LENGTH = 6 << 20 };
    struct rig g = {.server = {.room = 4096, .script = {{HEAD "content-length: 2\r\n\r\nok"}}}};
    struct http_insert *inserts = calloc(3, sizeof(*inserts));
    struct buf body = {0}, want = {0};
    char *large = malloc(LENGTH);
    struct outcome o = {0};
    struct http_request r = {.method = "POST", .path = STR("/x"), .body = &body};

    for (size_t i = 0; i < LENGTH; i++)
        large[i] = (char)('a' + i % 23);
    buf_puts(&body, "[,]");
    inserts[0] = (struct http_insert){.bytes = STR("first"), .at = 1};
    inserts[1] = (struct http_insert){.bytes = str_of(large, LENGTH), .at = 2};
    inserts[2] = (struct http_insert){.bytes = str_of(large, LENGTH), .at = 2};
    r.inserts = inserts;
    r.n_inserts = 3;
    buf_puts(&want, "[first,");
    for (int i = 0; i < 2; i++)
        buf_add(&want, large, LENGTH);
    buf_puts(&want, "]");
    rig_start(&g, "127.0.0.1", NULL);
    o.loop = g.loop;
    o.call = http_client_start(g.client, &r, &events, &o);
    while (!o.over)
        loop_run(g.loop);
    assert_body(&o, "ok");
    cr_assert(str_ends(buf_str(&g.server.seen), buf_str(&want)));
    buf_done(&want);
    free(large);
    rig_stop(&g);
}

/* Makes a file of n bytes, byte i being i % 251. */
static void make_file(char path[32], size_t n)
{
    struct buf bytes = {0};
    int fd;

    (void)snprintf(path, 32, "/tmp/rg-insert-XXXXXX");
    fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    for (size_t i = 0; i < n; i++)
        buf_add_c(&bytes, (char)(i % 251));
    cr_assert_eq(write(fd, bytes.p ? bytes.p : "", n), (ssize_t)n);
    (void)close(fd);
    buf_done(&bytes);
}

/* Sends a request with that file between two brackets. */
static struct outcome send_file(struct rig *g, const char *path, size_t n, bool zero)
{
    struct http_insert *insert = calloc(1, sizeof(*insert));
    struct buf body = {0};
    struct outcome o = {.loop = g->loop};
    struct http_request r = {
        .method = "POST", .path = STR("/x"), .body = &body, .inserts = insert, .n_inserts = 1};

    buf_puts(&body, "[]");
    *insert = (struct http_insert){.at = 1, .file = path, .file_bytes = n, .zero = zero};
    o.call = http_client_start(g->client, &r, &events, &o);
    while (!o.over)
        loop_run(g->loop);
    return o;
}

/* Files of any length are sent as base64, a share in each turn. */
TEST(http_client, files_go_out_as_base64)
{
    static const size_t lengths[] = {0, 1, 2, 3, 49151, 49152, 49153, 100000, 3 << 20};

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        for (int zero = 0; zero < 2; zero++) {
            struct rig g = {
                .server = {.room = 4096, .script = {{HEAD "content-length: 2\r\n\r\nok"}}}};
            size_t n = lengths[i] + (size_t)zero;
            struct buf want = {0};
            char path[32], *bytes = calloc(n + 1, 1);
            struct outcome o;

            for (size_t k = 0; k < lengths[i]; k++)
                bytes[k] = (char)(k % 251);
            buf_puts(&want, "[");
            base64_encode(bytes, n, buf_reserve(&want, base64_encoded_len(n)));
            want.len += base64_encoded_len(n);
            buf_puts(&want, "]");
            make_file(path, lengths[i]);
            rig_start(&g, "127.0.0.1", NULL);
            o = send_file(&g, path, lengths[i], zero);
            assert_body(&o, "ok");
            cr_expect(str_ends(buf_str(&g.server.seen), buf_str(&want)), "%zu bytes", n);
            rig_stop(&g);
            (void)unlink(path);
            buf_done(&want);
            free(bytes);
        }
    }
}

TEST(http_client, a_file_that_is_gone_or_short_ends_the_call)
{
    char path[32];

    make_file(path, 100000);
    for (int gone = 0; gone < 2; gone++) {
        struct rig g = {.server = {.script = {{HEAD "content-length: 2\r\n\r\nok"}}}};
        struct outcome o;

        if (gone)
            (void)unlink(path);
        rig_start(&g, "127.0.0.1", NULL);
        o = send_file(&g, path, 100001, false);
        cr_expect_eq(o.e.kind, ERR_STORAGE_FAILED);
        rig_stop(&g);
    }
}

TEST(http_client, every_byte_by_itself)
{
    struct rig g = {.server = {.step_bytes = 1,
                               .script = {{HEAD "content-length: 3\r\nx-long: yes\r\n\r\nabc"},
                                          {HEAD "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\n"
                                                "c\r\n0\r\n\r\n"}}}};

    rig_start(&g, "127.0.0.1", NULL);
    for (int i = 0; i < 2; i++) {
        struct outcome o = call(&g);

        assert_body(&o, "abc");
    }
    rig_stop(&g);
}

TEST(http_client, pauses_lose_nothing)
{
    struct rig g = {.server = {.script = {{HEAD "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\n"
                                                "c\r\n3\r\ndef\r\n",
                                           "2\r\ngh\r\n1\r\ni\r\n", "0\r\n\r\n"}}}};
    struct outcome o;

    rig_start(&g, "127.0.0.1", NULL);
    o = call_with(&g, (struct outcome){.pause = true}, 1000);
    cr_assert_eq(o.pauses, 5);
    assert_body(&o, "abcdefghi");
    rig_stop(&g);
}

static void assert_fails(const char *const *pieces, enum err_kind kind, bool began)
{
    struct rig g = {0};
    struct outcome o;

    memcpy(g.server.script[0], pieces, sizeof(g.server.script[0]));
    rig_start(&g, "127.0.0.1", NULL);
    o = call_with(&g, (struct outcome){0}, 300);
    cr_assert_not(o.done);
    cr_assert_eq(o.e.kind, kind, "%s: %s", pieces[0], o.e.text);
    cr_assert_eq(o.began, began, "%s", pieces[0]);
    cr_assert_eq(http_client_connections(g.client), 0);
    buf_done(&o.body);
    rig_stop(&g);
}

TEST(http_client, failures)
{
    static const struct {
        const char *pieces[PIECES];
        enum err_kind kind;
        bool began;
    } cases[] = {
        {{"CLOSE"}, ERR_ENGINE_UNAVAILABLE, false},
        {{"RESET"}, ERR_ENGINE_UNAVAILABLE, false},
        {{"WAIT"}, ERR_ENGINE_TIMEOUT, false},
        {{"HTTP/1.1 2", "CLOSE"}, ERR_ENGINE_INVALID, true},
        {{"SMTP ready\r\n\r\n"}, ERR_ENGINE_INVALID, true},
        {{HEAD "content-length: 3\r\ncontent-length: 3\r\n\r\nabc"}, ERR_ENGINE_INVALID, true},
        {{HEAD "content-length: 5\r\n\r\nabc", "CLOSE"}, ERR_ENGINE_INVALID, true},
        {{HEAD "content-length: 5\r\n\r\nabc", "RESET"}, ERR_ENGINE_INVALID, true},
        {{HEAD "content-length: 5\r\n\r\nabc", "WAIT"}, ERR_ENGINE_TIMEOUT, true},
        {{HEAD "transfer-encoding: chunked\r\n\r\n0x2\r\nab\r\n"}, ERR_ENGINE_INVALID, true},
        {{HEAD "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "CLOSE"}, ERR_ENGINE_INVALID, true},
        {{"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n"}, ERR_ENGINE_INVALID, true},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_fails(cases[i].pieces, cases[i].kind, cases[i].began);
}

TEST(http_client, nobody_listens)
{
    struct http_client_options o = {0};
    struct rig g = {0};
    struct outcome r;
    struct err e;

    g.loop = loop_new(&e);
    cr_assert_eq(http_client_new(g.loop, "http://127.0.0.1:1", &o, &g.client, &e), 0);
    r = call(&g);
    cr_assert_eq(r.e.kind, ERR_ENGINE_UNAVAILABLE);
    cr_assert_not_null(strstr(r.e.text, "cannot connect"), "%s", r.e.text);
    http_client_free(g.client);
    cr_assert_eq(http_client_new(g.loop, "unix:/nowhere.sock", &o, &g.client, &e), 0);
    r = call(&g);
    cr_assert_eq(r.e.kind, ERR_ENGINE_UNAVAILABLE);
    http_client_free(g.client);
    loop_free(g.loop);
}

TEST(http_client, cancel_from_inside)
{
    struct rig g = {.server.script = {{HEAD "content-length: 6\r\n\r\nabc", "def"},
                                      {HEAD "content-length: 2\r\n\r\nok"}}};
    struct outcome o;

    rig_start(&g, "127.0.0.1", NULL);
    o = call_with(&g, (struct outcome){.cancel = true}, 0);
    cr_assert(str_starts(STR("abc"), buf_str(&o.body)));
    buf_done(&o.body);
    cr_assert_eq(http_client_connections(g.client), 0);
    o = call(&g);
    assert_body(&o, "ok");
    rig_stop(&g);
}

TEST(http_client, a_closed_idle_connection_is_not_used)
{
    struct rig g = {.server.script = {{HEAD "content-length: 2\r\n\r\nok", "CLOSE"},
                                      {HEAD "content-length: 2\r\n\r\nok"}}};
    struct outcome o;

    rig_start(&g, "127.0.0.1", NULL);
    o = call(&g);
    assert_body(&o, "ok");
    while (http_client_idle(g.client) > 0)
        (void)loop_poll(g.loop, 100);
    o = call(&g);
    assert_body(&o, "ok");
    cr_assert_eq(g.server.connections, 2);
    rig_stop(&g);
}

/* --- TLS --- */

#define CA RG_TEST_DATA "/tls/ca.pem"

static void assert_refused(const char *cert, const char *host, const char *ca, const char *why)
{
    struct rig g = {.server.cert = cert};
    struct outcome o;

    rig_start(&g, host, ca);
    o = call(&g);
    cr_assert_eq(o.e.kind, ERR_ENGINE_UNAVAILABLE);
    cr_assert_not_null(strstr(o.e.text, why), "%s", o.e.text);
    cr_assert_eq(g.server.seen.len, 0);
    rig_stop(&g);
}

TEST(tls, good_certificate_by_name_and_address)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1"};

    for (int i = 0; i < 2; i++) {
        struct rig g = {.server = {.cert = "good",
                                   .script = {{HEAD "content-length: 2\r\n\r\nok"},
                                              {HEAD "connection: close\r\n\r\nok", "CLOSE"},
                                              {HEAD "content-length: 2\r\n\r\nok"}}}};

        rig_start(&g, hosts[i], CA);
        for (int n = 0; n < 3; n++) {
            struct outcome o = call(&g);

            assert_body(&o, "ok");
            if (n == 1) {
                /* The server closes the second connection. The third one resumes the session. */
                cr_assert_eq(http_client_connections(g.client), 0);
            }
        }
        http_client_free(g.client);
        loop_free(g.loop);
        shutdown(g.server.listener, SHUT_RDWR);
        pthread_join(g.server.thread, NULL);
        close(g.server.listener);
        buf_done(&g.server.seen);
        cr_assert_eq(g.server.connections, 2);
        cr_assert_eq(g.server.resumed, 1, "one full handshake");
    }
}

TEST(tls, bad_certificates_are_refused)
{
    assert_refused("expired", "localhost", CA, "expired");
    assert_refused("other", "localhost", CA, "does not match");
    assert_refused("other", "127.0.0.1", CA, "does not name this address");
    assert_refused("good", "localhost", RG_TEST_DATA "/tls/other.pem", "not correctly signed");
}
