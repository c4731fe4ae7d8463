/* Tests the server side of TLS when mbedTLS sends alerts itself. The linker replaces send by
 * __wrap_send, which can refuse like a full socket. */

#include "common/net/tls.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_internal.h>

#include "common/net/tls_server.h"
#include "testing.h"

ssize_t __real_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags);

static int full_fd = -1; /* sends to it fail with EAGAIN */

ssize_t __wrap_send(int fd, const void *p, size_t n, int flags)
{
    if (fd != full_fd)
        return __real_send(fd, p, n, flags);
    errno = EAGAIN;
    return -1;
}

/* Our server and a client of mbedTLS at the ends of a socket pair. */
struct ends {
    int fds[2];
    struct tls_server *settings;
    struct tls *server;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_ssl_config config;
    mbedtls_ssl_context client;
};

static int send_client(void *ctx, const unsigned char *p, size_t n)
{
    const struct ends *x = ctx;
    ssize_t sent = __real_send(x->fds[1], p, n, 0);

    return sent >= 0 ? (int)sent : MBEDTLS_ERR_SSL_WANT_WRITE;
}

static int receive_client(void *ctx, unsigned char *p, size_t n)
{
    const struct ends *x = ctx;
    ssize_t got = recv(x->fds[1], p, n, 0);

    return got >= 0 ? (int)got : MBEDTLS_ERR_SSL_WANT_READ;
}

static void shake(struct ends *x)
{
    enum tls_shake at = TLS_SHAKE_READS;
    int rc = MBEDTLS_ERR_SSL_WANT_READ;
    struct err e;

    while (at != TLS_SHAKE_DONE || rc != 0) {
        if (rc != 0)
            rc = mbedtls_ssl_handshake(&x->client);
        cr_assert(rc == 0 || rc == MBEDTLS_ERR_SSL_WANT_READ, "%x", (unsigned)-rc);
        if (at != TLS_SHAKE_DONE)
            at = tls_server_shake(x->server, &e);
        cr_assert(at != TLS_SHAKE_FAILED, "%s", e.text);
    }
}

/* Opens both ends. fragment: MBEDTLS_SSL_MAX_FRAG_LEN_* that the client requests. */
static void ends_open_with(struct ends *x, unsigned char fragment)
{
    const struct tls_server_options o = {.certificate_file = RG_TEST_DATA "/tls/good.pem",
                                         .key_file = RG_TEST_DATA "/tls/good.key"};
    struct err e;

    memset(x, 0, sizeof(*x));
    full_fd = -1;
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, x->fds) == 0);
    cr_assert(tls_server_new(&o, &x->settings, &e) == 0, "%s", e.text);
    cr_assert(tls_server_accept(x->settings, x->fds[0], &x->server, &e) == 0, "%s", e.text);
    mbedtls_entropy_init(&x->entropy);
    mbedtls_ctr_drbg_init(&x->random);
    mbedtls_ssl_config_init(&x->config);
    mbedtls_ssl_init(&x->client);
    cr_assert(mbedtls_ctr_drbg_seed(&x->random, mbedtls_entropy_func, &x->entropy, NULL, 0) == 0);
    cr_assert(mbedtls_ssl_config_defaults(&x->config, MBEDTLS_SSL_IS_CLIENT,
                                          MBEDTLS_SSL_TRANSPORT_STREAM,
                                          MBEDTLS_SSL_PRESET_DEFAULT) == 0);
    mbedtls_ssl_conf_authmode(&x->config, MBEDTLS_SSL_VERIFY_NONE);
    mbedtls_ssl_conf_rng(&x->config, mbedtls_ctr_drbg_random, &x->random);
    cr_assert(mbedtls_ssl_conf_max_frag_len(&x->config, fragment) == 0);
    cr_assert(mbedtls_ssl_setup(&x->client, &x->config) == 0);
    mbedtls_ssl_set_bio(&x->client, x, send_client, receive_client, NULL);
    shake(x);
}

static void ends_close(struct ends *x)
{
    tls_free(x->server);
    tls_server_free(x->settings);
    mbedtls_ssl_free(&x->client);
    mbedtls_ssl_config_free(&x->config);
    mbedtls_ctr_drbg_free(&x->random);
    mbedtls_entropy_free(&x->entropy);
    close(x->fds[0]);
    close(x->fds[1]);
}

static void ends_open(struct ends *x)
{
    ends_open_with(x, MBEDTLS_SSL_MAX_FRAG_LEN_NONE);
}

static ssize_t server_write(struct ends *x, const char *text)
{
    return tls_or_plain_write(x->server, x->fds[0], str_cstr(text), false);
}

/* Lets the client request a new handshake, which our server refuses with a warning. */
static void ask_renegotiation(struct ends *x)
{
    static const unsigned char hello[] = {MBEDTLS_SSL_HS_CLIENT_HELLO, 0, 0, 0};

    x->client.out_msgtype = MBEDTLS_SSL_MSG_HANDSHAKE;
    x->client.out_msglen = sizeof(hello);
    memcpy(x->client.out_msg, hello, sizeof(hello));
    cr_assert(mbedtls_ssl_write_record(&x->client, 1) == 0);
}

/* Checks that the client reads exactly this text, in records of any length. Skips alerts of the
 * server between them. Returns the final result of mbedTLS. */
static int expect_text(struct ends *x, const char *text)
{
    char got[4096] = "";
    size_t n = 0;
    int rc, quiet = 0;

    while (quiet < 3) { /* mbedTLS returns after an alert, even if more bytes have arrived */
        rc = mbedtls_ssl_read(&x->client, (unsigned char *)got + n, sizeof(got) - 1 - n);
        if (rc > 0)
            n += (size_t)rc;
        else if (rc == MBEDTLS_ERR_SSL_WANT_READ)
            quiet++;
        else
            break;
    }
    cr_assert(strlen(text) == n && memcmp(got, text, n) == 0, "%zu bytes: \"%.60s\"", n, got);
    return rc;
}

TEST_WITH(tls, a_read_goes_on_after_a_warning, ends)
{
    char got[16];

    cr_assert(mbedtls_ssl_send_alert_message(&f->client, MBEDTLS_SSL_ALERT_LEVEL_WARNING,
                                             MBEDTLS_SSL_ALERT_MSG_NO_RENEGOTIATION) == 0);
    ask_renegotiation(f);
    cr_assert(mbedtls_ssl_write(&f->client, (const unsigned char *)"request", 7) == 7);
    cr_assert_eq(tls_read(f->server, got, sizeof(got)), 7, "no event would follow");
    cr_assert_eq(tls_read(f->server, got, sizeof(got)), 0);
    cr_assert(mbedtls_ssl_close_notify(&f->client) == 0);
    cr_assert_eq(tls_read(f->server, got, sizeof(got)), TLS_CLOSED);
}

TEST_WITH(tls, a_record_that_an_alert_has_pushed_out_is_sent_once, ends)
{
    char got[16];

    full_fd = f->fds[0];
    cr_assert_eq(server_write(f, "first"), 0);
    ask_renegotiation(f);
    full_fd = -1;
    cr_assert_eq(tls_read(f->server, got, sizeof(got)), 0);
    cr_assert_eq(server_write(f, "first and more"), 5, "it is out");
    cr_assert_eq(server_write(f, " second"), 7);
    cr_assert_eq(expect_text(f, "first second"), MBEDTLS_ERR_SSL_WANT_READ);
}

TEST_WITH(tls, an_alert_that_waits_takes_no_bytes_of_the_answer, ends)
{
    char got[16];

    ask_renegotiation(f);
    full_fd = f->fds[0];
    cr_assert_eq(tls_read(f->server, got, sizeof(got)), 0);
    cr_assert_eq(server_write(f, "answer"), 0);
    full_fd = -1;
    cr_assert_eq(server_write(f, "answer"), 6);
    cr_assert_eq(expect_text(f, "answer"), MBEDTLS_ERR_SSL_WANT_READ);
}

TEST_WITH(tls, the_end_follows_a_record_that_waits, ends)
{
    full_fd = f->fds[0];
    cr_assert_eq(server_write(f, "abandoned"), 0);
    tls_abandon(f->server);
    cr_assert_eq(server_write(f, "other"), 0);
    cr_assert(!tls_close(f->server));
    full_fd = -1;
    cr_assert_eq(server_write(f, "other"), 5);
    full_fd = f->fds[0];
    cr_assert_eq(server_write(f, "last"), 0);
    full_fd = -1;
    cr_assert(tls_close(f->server));
    cr_assert_eq(expect_text(f, "abandonedotherlast"), MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY);
}

TEST_WITH(tls, the_end_is_sent_once, ends)
{
    full_fd = f->fds[0];
    cr_assert(!tls_close(f->server));
    full_fd = -1;
    cr_assert(tls_close(f->server));
    cr_assert_eq(expect_text(f, ""), MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY);
    cr_assert_eq(recv(f->fds[1], &(char){0}, 1, 0), -1, "nothing follows");
}

TEST(tls, records_are_as_short_as_the_client_wants)
{
    struct ends x;
    char text[1301];
    size_t at = 512;

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    memset(text + 512, 'b', 512);
    ends_open_with(&x, MBEDTLS_SSL_MAX_FRAG_LEN_512);
    full_fd = x.fds[0];
    cr_assert_eq(server_write(&x, text), 0);
    full_fd = -1;
    cr_assert_eq(server_write(&x, text), 512);
    while (at < strlen(text)) {
        ssize_t n = server_write(&x, text + at);

        cr_assert(n > 0 && n <= 512);
        at += (size_t)n;
    }
    cr_assert_eq(expect_text(&x, text), MBEDTLS_ERR_SSL_WANT_READ);
    ends_close(&x);
}
