/* Hostile servers and name servers of a fetch. The linker replaces getaddrinfo by
 * __wrap_getaddrinfo, which answers the test's names. */
#include "common/net/web_fetch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <resolv.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"
#include "common/net/web_rules.h"
#include "testing.h"

enum { LONG_US = 100 * 1000 * 1000 };

/* --- the name server --- */

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret);

/* The n-th query for a name of ".test" gets the n-th of `answers`, ADDRESS:PORT each (several are
 * separated by blanks). Later queries get the last one. */
static struct {
    const char *answers[3];
    atomic_uint asked;
    atomic_ulong options; /* options of the resolver in the querying thread */
    sem_t *held;          /* answers wait until it is posted; or NULL */
} names;

static struct addrinfo *add_address(struct addrinfo *list, const char *address, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *one = NULL, *last = list;

    cr_assert_eq(__real_getaddrinfo(address, port, &hints, &one), 0);
    while (last && last->ai_next)
        last = last->ai_next;
    if (last)
        last->ai_next = one;
    return list ? list : one;
}

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **ret)
{
    size_t n = host ? strlen(host) : 0;
    char copy[128], *at = copy, *one;

    if (n < 5 || strcmp(host + n - 5, ".test") != 0 || (hints->ai_flags & AI_NUMERICHOST))
        return __real_getaddrinfo(host, service, hints, ret);
    atomic_store(&names.options, _res.options);
    n = atomic_fetch_add(&names.asked, 1);
    n = MIN_OF(n, ARRAY_LEN(names.answers) - 1);
    while (n > 0 && !names.answers[n])
        n--;
    if (names.held)
        (void)sem_wait(names.held);
    if (!names.answers[n])
        return EAI_NONAME;
    (void)snprintf(copy, sizeof(copy), "%s", names.answers[n]);
    *ret = NULL;
    while ((one = strsep(&at, " "))) {
        char *port = strrchr(one, ':');

        *port = 0;
        *ret = add_address(*ret, one, port + 1);
    }
    return 0;
}

/* --- a server --- */

struct server {
    int fd;
    unsigned port;
    struct str first, then; /* sends `first`, then `then` repeatedly */
    unsigned times;         /* most repetitions of `then` */
    struct str last;
    atomic_uint served;
    pthread_t thread;
};

static int listen_at(const char *address, int backlog, unsigned *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(inet_pton(AF_INET, address, &at.sin_addr), 1);
    cr_assert_eq(bind(fd, (struct sockaddr *)(void *)&at, len), 0);
    cr_assert_eq(listen(fd, backlog), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)(void *)&at, &len), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

static bool say(int fd, struct str text)
{
    while (text.len > 0) {
        ssize_t sent = send(fd, text.p, text.len, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        text = str_sub(text, (size_t)sent, text.len);
    }
    return true;
}

static void serve(struct server *s, int fd)
{
    struct buf many = {0};
    char heard[4096];
    unsigned pieces = MIN_OF(s->times, 8000);

    (void)!recv(fd, heard, sizeof(heard), 0); /* the request is one segment over loopback */
    for (unsigned i = 0; i < pieces; i++)
        buf_add_str(&many, s->then);
    if (say(fd, s->first)) {
        for (unsigned i = 0; i < s->times && say(fd, buf_str(&many));)
            i += pieces;
        (void)say(fd, s->last);
    }
    buf_done(&many);
    (void)shutdown(fd, SHUT_WR);
    while (recv(fd, heard, sizeof(heard), 0) > 0)
        ; /* a close with unread bytes would be a reset */
    (void)close(fd);
}

static void *run(void *arg)
{
    struct server *s = arg;
    int fd;

    while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
        atomic_fetch_add(&s->served, 1);
        serve(s, fd);
    }
    return NULL;
}

static void server_open(struct server *s, const char *address)
{
    s->fd = listen_at(address, 16, &s->port);
    cr_assert_eq(pthread_create(&s->thread, NULL, run, s), 0);
}

static void server_close(struct server *s)
{
    (void)shutdown(s->fd, SHUT_RDWR);
    cr_assert_eq(pthread_join(s->thread, NULL), 0);
    (void)close(s->fd);
}

/* --- who fetches --- */

struct fixture {
    struct web_rules *rules;
    struct tls_context *tls;
    struct web_fetch f;
    struct buf out;
    struct err e;
};

static void fixture_open(struct fixture *x, const char *host, uint64_t us)
{
    const char *net = "127.0.0.1";

    *x = (struct fixture){0};
    cr_assert_eq(web_rules_new(&host, 1, &net, 1, &x->rules, &x->e), 0, "%s", x->e.text);
    x->f =
        (struct web_fetch){x->rules, RG_TEST_DATA "/tls/ca.pem", &x->tls, 1 << 30, clock_us() + us};
}

static void fixture_close(struct fixture *x)
{
    web_rules_free(x->rules);
    tls_context_free(x->tls);
    buf_done(&x->out);
}

static int fetch(struct fixture *x, const char *scheme, const char *host, unsigned port)
{
    char url[128];

    x->e = (struct err){0};
    buf_clear(&x->out);
    (void)snprintf(url, sizeof(url), "%s://%s:%u/a", scheme, host, port);
    return web_fetch(&x->f, str_cstr(url), &x->out, &x->e);
}

/* Fetches by http from this machine. Checks the error's text, or the file. */
static void expect(struct server *s, uint64_t us, enum err_kind kind, const char *text)
{
    struct fixture x;
    char rule[64];
    int rc;

    server_open(s, "127.0.0.1");
    (void)snprintf(rule, sizeof(rule), "http://*:%u", s->port);
    fixture_open(&x, rule, us);
    rc = fetch(&x, "http", "127.0.0.1", s->port);
    cr_assert_eq(rc, kind == ERR_NONE ? 0 : -1);
    cr_assert_eq(x.e.kind, kind, "%s", x.e.text);
    if (rc == 0)
        cr_assert(str_eq_c(buf_str(&x.out), text));
    else
        cr_assert_not_null(strstr(x.e.text, text), "%s", x.e.text);
    fixture_close(&x);
    server_close(s);
}

#define OK_4 "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfile"

TEST(web_fetch, some_interim_answers_are_passed_over)
{
    struct server s = {.then = STR("HTTP/1.1 103 Hints\r\n\r\n"), .times = 8, .last = STR(OK_4)};

    expect(&s, LONG_US, ERR_NONE, "file");
}

TEST(web_fetch, a_flood_of_interim_answers_ends_it)
{
    struct server s = {.then = STR("HTTP/1.1 100 C\r\n\r\n"), .times = 16000, .last = STR(OK_4)};

    expect(&s, LONG_US, ERR_INVALID, "interim answers");
}

TEST(web_fetch, all_heads_together_have_a_limit)
{
    static char head[20000];
    struct server s = {.then = str_of(head, sizeof(head)), .times = 7, .last = STR(OK_4)};
    int n = snprintf(head, sizeof(head), "HTTP/1.1 100 C\r\nx: ");

    memset(head + n, 'x', sizeof(head) - (size_t)n - 5);
    memcpy(head + sizeof(head) - 5, "\r\n\r\n", 5);
    expect(&s, LONG_US, ERR_INVALID, "");
}

/* Faster than it is read, so there are always bytes. */
TEST(web_fetch, a_server_that_never_pauses_outlasts_no_limit)
{
    struct server s = {.first = STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                       .then = STR("1\r\nx\r\n"),
                       .times = 1U << 30};

    expect(&s, 1000 * 1000, ERR_IO, "takes too long");
}

TEST(web_fetch, nor_cancelling)
{
    struct server s = {.last = STR(OK_4)};
    atomic_bool wanted = true;

    cancel_flag = &wanted;
    expect(&s, LONG_US, ERR_CANCELLED, "");
    cancel_flag = NULL;
}

/* mbedTLS skips such alerts (a warning: the user cancelled) in an internal loop. */
TEST(web_fetch, alerts_of_tls_outlast_no_limit)
{
    struct server s = {.then = STR("\x15\x03\x03\x00\x02\x01\x5a"), .times = 1U << 30};
    const struct tls_context *context;
    struct fixture x;
    char rule[64];

    server_open(&s, "127.0.0.1");
    (void)snprintf(rule, sizeof(rule), "127.0.0.1:%u", s.port);
    fixture_open(&x, rule, 0);
    for (uint64_t us = 500 * 1000; !x.tls; us *= 2) { /* increases the limit until TLS begins */
        x.f.until_us = clock_us() + us;
        cr_assert_eq(fetch(&x, "https", "127.0.0.1", s.port), -1);
        cr_assert_not_null(strstr(x.e.text, "takes too long"), "%s", x.e.text);
    }
    context = x.tls;
    x.f.until_us = clock_us() + 100 * 1000;
    cr_assert_eq(fetch(&x, "https", "127.0.0.1", s.port), -1);
    cr_assert_eq(x.tls, context, "the certificates are read once");
    fixture_close(&x);
    server_close(&s);
}

TEST(web_fetch, certificates_that_cannot_be_read_are_told_without_their_path)
{
    struct server s = {0};
    struct fixture x;
    char rule[64];

    server_open(&s, "127.0.0.1");
    (void)snprintf(rule, sizeof(rule), "127.0.0.1:%u", s.port);
    fixture_open(&x, rule, LONG_US);
    x.f.ca_file = "/no/such/ca.pem";
    cr_assert_eq(fetch(&x, "https", "127.0.0.1", s.port), -1);
    cr_assert_eq(x.e.kind, ERR_WORKER_UNAVAILABLE, "%s", x.e.text);
    cr_assert_null(strstr(x.e.text, "/no"), "%s", x.e.text);
    fixture_close(&x);
    server_close(&s);
}

/* --- names --- */

/* A listener whose backlog is full: the kernel accepts one connection and no more. */
struct black_hole {
    int fd, full;
    unsigned port;
};

static void black_hole_open(struct black_hole *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct pollfd p;

    b->fd = listen_at("127.0.0.1", 0, &b->port);
    at.sin_port = htons((uint16_t)b->port);
    b->full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(b->full, (struct sockaddr *)(void *)&at, sizeof(at)), 0);
    p = (struct pollfd){.fd = b->fd, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, -1), 1);
}

static void black_hole_close(const struct black_hole *b)
{
    (void)close(b->full);
    (void)close(b->fd);
}

TEST(web_fetch, an_address_that_says_nothing_does_not_eat_all_the_time)
{
    struct server s = {.last = STR(OK_4)};
    struct black_hole hole;
    struct fixture x;
    char answer[64], rule[64];

    server_open(&s, "127.0.0.1");
    black_hole_open(&hole);
    (void)snprintf(answer, sizeof(answer), "127.0.0.1:%u 127.0.0.1:%u", hole.port, s.port);
    (void)snprintf(rule, sizeof(rule), "http://two.test:%u", s.port);
    names.answers[0] = answer;
    fixture_open(&x, rule, LONG_US);
    cr_assert_eq(fetch(&x, "http", "two.test", s.port), 0, "%s", x.e.text);
    cr_assert_lt(clock_us(), x.f.until_us - LONG_US / 4);
    fixture_close(&x);
    black_hole_close(&hole);
    server_close(&s);
}

/* Check and connection use the same answer of the name server. */
TEST(web_fetch, a_name_that_changes_leads_nowhere_else)
{
    struct server good = {.last =
                              STR("HTTP/1.1 302 F\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n")};
    struct server bad = {.last = STR(OK_4)};
    struct fixture x;
    char first[64], then[64], rule[64];

    server_open(&good, "127.0.0.1");
    server_open(&bad, "127.0.0.2"); /* an address that the rules refuse */
    (void)snprintf(first, sizeof(first), "127.0.0.1:%u", good.port);
    (void)snprintf(then, sizeof(then), "127.0.0.2:%u", bad.port);
    (void)snprintf(rule, sizeof(rule), "http://turns.test:%u", good.port);
    names.answers[0] = first;
    names.answers[1] = then;
    fixture_open(&x, rule, LONG_US);
    cr_assert_eq(fetch(&x, "http", "turns.test", good.port), -1);
    cr_assert_not_null(strstr(x.e.text, "not public"), "%s", x.e.text);
    cr_assert_eq(atomic_load(&names.asked), 2, "once a hop");
    cr_assert_eq(atomic_load(&good.served), 1);
    cr_assert_eq(atomic_load(&bad.served), 0);
    fixture_close(&x);
    server_close(&good);
    server_close(&bad);
}

/* An error does not reveal which names exist. */
TEST(web_fetch, no_address_and_a_forbidden_one_are_told_alike)
{
    char text[sizeof(((struct err *)NULL)->text)];
    struct fixture x;

    fixture_open(&x, "*", LONG_US);
    cr_assert_eq(fetch(&x, "https", "none.test", 443), -1);
    memcpy(text, x.e.text, sizeof(text));
    names.answers[0] = "10.0.0.1:443";
    cr_assert_eq(fetch(&x, "https", "some.test", 443), -1);
    cr_assert_str_eq(x.e.text, text);
    fixture_close(&x);
}

TEST(resolve_wait, asks_for_a_name_as_it_is)
{
    struct addrinfo *list = NULL;

    names.answers[0] = "127.0.0.1:80";
    atomic_store(&names.options, ~0UL);
    cr_assert_eq(resolve_wait("a.test", 80, clock_us() + LONG_US, &list), 0);
    cr_assert_not_null(list);
    cr_assert_eq(atomic_load(&names.options) & (RES_DEFNAMES | RES_DNSRCH), 0);
    freeaddrinfo(list);
}

/* Repeated abandoned queries do not use an unlimited number of threads. */
TEST(resolve_wait, names_under_way_are_limited)
{
    struct addrinfo *list = NULL;
    static sem_t held; /* static, because threads may use it after the end of the test */
    int rc;

    cr_assert_eq(sem_init(&held, 0, 0), 0);
    names.held = &held;
    for (int i = 0; i < RESOLVE_WAITS_MAX; i++)
        cr_assert_eq(resolve_wait("a.test", 80, clock_us(), &list), -1);
    cr_assert_eq(resolve_wait("a.test", 80, clock_us() + LONG_US, &list), RESOLVE_BUSY);
    cr_assert_eq(resolve_wait("127.0.0.1", 80, clock_us(), &list), 0, "no name");
    freeaddrinfo(list);
    for (int i = 0; i < 2 * RESOLVE_WAITS_MAX; i++)
        cr_assert_eq(sem_post(&held), 0);
    while ((rc = resolve_wait("a.test", 80, clock_us() + LONG_US, &list)) == RESOLVE_BUSY)
        (void)usleep(1000); /* until a thread has released it */
    cr_assert_eq(rc, 0);
}
