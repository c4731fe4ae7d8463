/* TLS of the client side by mbedTLS (tls.h): certificates are checked against the given file,
 * SSL_CERT_FILE or the system's, for the name or the address; TLS 1.2 at least. Sessions are kept
 * for resumption, as a handshake costs more than most answers. Errors say which check failed. */

#include "common/net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/x509_crt.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/tls_internal.h"

/* Returns the file of trusted certificates: `given`, else the file that SSL_CERT_FILE names (as in
 * OpenSSL's programs), else Debian's. */
static const char *choose_bundle(const char *given)
{
    const char *named = getenv("SSL_CERT_FILE");

    if (given && *given)
        return given;
    return named && *named ? named : "/etc/ssl/certs/ca-certificates.crt";
}

/* A call that has read so many bytes without one for its caller fails. */
enum { TLS_READ_MAX = 64 * 1024 };

struct tls_context {
    mbedtls_ssl_config config;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_x509_crt roots;
    bool insecure;
    bool pinned; /* only the first certificate of `roots` is accepted */
};

struct tls_session {
    mbedtls_ssl_session mbed;
};

int tls_fail(struct err *e, enum err_kind kind, const char *what, int code)
{
    char why[128];

    mbedtls_strerror(code, why, sizeof(why));
    return err_set(e, kind, "TLS: %s: %s", what, why);
}

const char *const tls_protocols[] = {"http/1.1", NULL};

/* Sets what all connections of a context share. */
static int configure(struct tls_context *c, struct err *e)
{
    int rc = mbedtls_ssl_config_defaults(&c->config, MBEDTLS_SSL_IS_CLIENT,
                                         MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);

    if (rc == 0)
        rc = mbedtls_ssl_conf_alpn_protocols(&c->config, (const char **)(uintptr_t)tls_protocols);
    if (rc != 0)
        return tls_fail(e, ERR_CONFIG, "set-up", rc);
    mbedtls_ssl_conf_authmode(&c->config,
                              c->insecure ? MBEDTLS_SSL_VERIFY_NONE : MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_ssl_conf_ca_chain(&c->config, &c->roots, NULL);
    mbedtls_ssl_conf_rng(&c->config, mbedtls_ctr_drbg_random, &c->random);
    mbedtls_ssl_conf_min_version(&c->config, MBEDTLS_SSL_MAJOR_VERSION_3,
                                 MBEDTLS_SSL_MINOR_VERSION_3); /* TLS 1.2 */
    mbedtls_ssl_conf_renegotiation(&c->config, MBEDTLS_SSL_RENEGOTIATION_DISABLED);
    return 0;
}

/* Logs a warning for an insecure context. */
int tls_context_new(const char *ca_file, bool insecure, struct tls_context **ret, struct err *e)
{
    struct tls_context *c = mem_zalloc(sizeof(*c));
    const char *bundle = choose_bundle(ca_file);
    int rc;

    c->insecure = insecure;
    mbedtls_ssl_config_init(&c->config);
    mbedtls_entropy_init(&c->entropy);
    mbedtls_ctr_drbg_init(&c->random);
    mbedtls_x509_crt_init(&c->roots);
    rc = mbedtls_ctr_drbg_seed(&c->random, mbedtls_entropy_func, &c->entropy, NULL, 0);
    if (rc != 0) {
        (void)tls_fail(e, ERR_CONFIG, "random numbers", rc);
        goto out;
    }
    /* A positive rc is the number of certificates of a kind that mbedTLS does not know. */
    rc = insecure ? 0 : mbedtls_x509_crt_parse_file(&c->roots, bundle);
    if (rc < 0) {
        (void)tls_fail(e, ERR_CONFIG, bundle, rc);
        goto out;
    }
    if (configure(c, e) < 0)
        goto out;
    if (insecure)
        log_warn(NULL, "certificates of engines are NOT checked (--engine-insecure-tls)");
    *ret = c;
    return 0;
out:
    tls_context_free(c);
    return -1;
}

/* Accepts the pinned certificate whatever is wrong with it or its chain, and no other. */
static int check_pinned(void *ctx, mbedtls_x509_crt *shown, int depth, uint32_t *flags)
{
    const struct tls_context *c = ctx;
    const mbedtls_x509_buf *pinned = &c->roots.raw;
    bool same = shown->raw.len == pinned->len && memcmp(shown->raw.p, pinned->p, pinned->len) == 0;

    *flags = depth > 0 || same ? 0 : MBEDTLS_X509_BADCERT_OTHER;
    return 0;
}

void tls_context_pin(struct tls_context *c)
{
    c->pinned = true;
    mbedtls_ssl_conf_verify(&c->config, check_pinned, c);
}

/* Accepts NULL. */
void tls_context_free(struct tls_context *c)
{
    if (!c)
        return;
    mbedtls_ssl_config_free(&c->config);
    mbedtls_ctr_drbg_free(&c->random);
    mbedtls_entropy_free(&c->entropy);
    mbedtls_x509_crt_free(&c->roots);
    free(c);
}

void tls_session_free(struct tls_session *s)
{
    if (!s)
        return;
    mbedtls_ssl_session_free(&s->mbed);
    free(s);
}

/* Writes to the socket for mbedTLS. */
static int on_send(void *ctx, const unsigned char *p, size_t n)
{
    const struct tls *t = ctx;
    ssize_t sent = send(t->fd, p, n, MSG_NOSIGNAL);

    if (sent >= 0)
        return (int)sent;
    return errno == EAGAIN || errno == EINTR ? MBEDTLS_ERR_SSL_WANT_WRITE : -1;
}

/* Reads from the socket for mbedTLS. Checks the limit here, because mbedTLS skips some alerts
 * without returning. */
static int on_receive(void *ctx, unsigned char *p, size_t n)
{
    struct tls *t = ctx;
    ssize_t got;

    t->drained = t->until_us && (cancel_wanted() || clock_us() >= t->until_us);
    if (t->drained)
        return MBEDTLS_ERR_SSL_WANT_READ;
    if (t->may_read < n)
        return MBEDTLS_ERR_SSL_INVALID_RECORD; /* an endless sequence of records without data */
    do {
        got = recv(t->fd, p, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got >= 0) {
        t->may_read -= (size_t)got;
        return (int)got;
    }
    t->drained = errno == EAGAIN;
    return t->drained ? MBEDTLS_ERR_SSL_WANT_READ : -1;
}

void tls_attach(struct tls *t)
{
    mbedtls_ssl_set_bio(&t->ssl, t, on_send, on_receive, NULL);
}

/* Returns the bytes of the address in network order, or 0 if host is a name. */
static size_t address_bytes(const char *host, unsigned char out[static 16])
{
    if (inet_pton(AF_INET, host, out) == 1)
        return 4;
    return inet_pton(AF_INET6, host, out) == 1 ? 16 : 0;
}

int tls_new(struct tls_context *c, const char *host, int fd, struct tls **ret, struct err *e)
{
    struct tls *t = mem_zalloc(sizeof(*t));
    unsigned char address[16];
    int rc;

    t->context = c;
    t->fd = fd;
    t->host = mem_strdup(host);
    t->by_address = !c->pinned && address_bytes(host, address) > 0;
    mbedtls_ssl_init(&t->ssl);
    rc = mbedtls_ssl_setup(&t->ssl, &c->config);
    if (rc == 0)
        rc = mbedtls_ssl_set_hostname(&t->ssl, t->by_address || c->pinned ? NULL : host);
    if (rc != 0) {
        tls_free(t);
        return tls_fail(e, ERR_ENGINE_UNAVAILABLE, "set-up", rc);
    }
    tls_attach(t);
    *ret = t;
    return 0;
}

void tls_limit(struct tls *t, uint64_t until_us)
{
    t->until_us = until_us;
}

bool tls_refused(const struct tls *t)
{
    return t->refused;
}

/* Accepts NULL. Sends nothing to the peer. */
void tls_free(struct tls *t)
{
    if (!t)
        return;
    mbedtls_ssl_free(&t->ssl);
    if (t->server)
        tls_server_release(t->server);
    free(t->host);
    free(t);
}

/* Reports whether the certificate contains the address (subjectAltName, iPAddress: context tag
 * 7). */
static bool address_named(const mbedtls_x509_crt *cert, const char *host)
{
    unsigned char address[16];
    size_t n = address_bytes(host, address);

    for (const mbedtls_x509_sequence *s = &cert->subject_alt_names; s; s = s->next) {
        if ((s->buf.tag & 0x1f) == 7 && s->buf.len == n && memcmp(s->buf.p, address, n) == 0)
            return true;
    }
    return false;
}

/* Sets the error of a failed handshake in plain words: which check of the certificate failed, if
 * one did. */
static int handshake_failed(struct tls *t, int code, struct err *e)
{
    uint32_t flags = mbedtls_ssl_get_verify_result(&t->ssl);
    char why[256];

    if (code != MBEDTLS_ERR_X509_CERT_VERIFY_FAILED || flags == 0 || flags == UINT32_MAX)
        return tls_fail(e, ERR_ENGINE_UNAVAILABLE, t->host, code);
    if (mbedtls_x509_crt_verify_info(why, sizeof(why), "", flags) > 0)
        why[strcspn(why, "\n")] = 0;
    t->refused = true;
    return err_set(e, ERR_ENGINE_UNAVAILABLE, "TLS: %s: certificate refused: %s", t->host,
                   t->context->pinned ? "it is not the one in the given file" : why);
}

/* Keeps the session of this handshake for the next handshake. */
static void renew_session(struct tls *t, struct tls_session **session)
{
    struct tls_session *s = mem_zalloc(sizeof(*s));

    mbedtls_ssl_session_init(&s->mbed);
    if (mbedtls_ssl_get_session(&t->ssl, &s->mbed) != 0) {
        tls_session_free(s);
        return;
    }
    tls_session_free(*session);
    *session = s;
}

int tls_handshake(struct tls *t, struct tls_session **session, struct err *e)
{
    const mbedtls_x509_crt *cert;
    int rc;

    if (!t->offered && *session)
        /* if this fails, a full handshake follows */
        (void)mbedtls_ssl_set_session(&t->ssl, &(*session)->mbed);
    t->offered = true;
    t->may_read = SIZE_MAX;
    rc = mbedtls_ssl_handshake(&t->ssl);
    if (rc == MBEDTLS_ERR_SSL_WANT_READ || rc == MBEDTLS_ERR_SSL_WANT_WRITE)
        return 0;
    if (rc != 0) {
        tls_session_free(*session);
        *session = NULL;
        return handshake_failed(t, rc, e);
    }
    cert = mbedtls_ssl_get_peer_cert(&t->ssl);
    if (t->by_address && !t->context->insecure && !(cert && address_named(cert, t->host))) {
        t->refused = true;
        return err_set(e, ERR_ENGINE_UNAVAILABLE,
                       "TLS: %s: certificate refused: it does not name this address", t->host);
    }
    renew_session(t, session);
    return 1;
}

/* Returns 0 if no byte is available, TLS_CLOSED after a proper end, -1 after an error. Reads in a
 * loop, because mbedTLS returns after a warning, and after a refused renegotiation, while the
 * socket still has bytes, for which no event would follow. */
ssize_t tls_read(struct tls *t, void *p, size_t n)
{
    bool wants;
    int rc;

    t->may_read = TLS_READ_MAX;
    do {
        t->drained = false;
        rc = mbedtls_ssl_read(&t->ssl, p, n);
        wants = rc == MBEDTLS_ERR_SSL_WANT_READ || rc == MBEDTLS_ERR_SSL_WANT_WRITE;
    } while (wants && !t->drained);
    if (rc > 0 || wants)
        return wants ? 0 : rc;
    return rc == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY ? TLS_CLOSED : -1;
}

/* Sends the bytes that mbedTLS holds: a record of written bytes, or an alert of its own. Returns 1
 * when it holds none, 0 if the socket must become writable first, -1 after an error. */
static int flush_record(struct tls *t)
{
    const unsigned char ignored = 0;
    int rc;

    if (t->ssl.out_left == 0)
        return 1;
    /* mbedTLS takes no new byte while it holds others */
    rc = mbedtls_ssl_write(&t->ssl, &ignored, 1);
    if (rc > 0)
        return 1;
    return rc == MBEDTLS_ERR_SSL_WANT_WRITE ? 0 : -1;
}

/* Counts the staged bytes here, because a read may send the staged record, and what mbedTLS holds
 * may be an alert: mbedTLS would then send the record twice, or report bytes as written that it
 * never got. */
static ssize_t tls_write(struct tls *t, struct str bytes)
{
    size_t n = t->staged_bytes > 0 ? t->staged_bytes : MIN_OF(bytes.len, (size_t)TLS_RECORD);
    int rc = flush_record(t), most;

    CHECK(n <= bytes.len);
    if (rc <= 0)
        return rc;
    if (t->staged_bytes > 0) {
        t->staged_bytes = 0;
        return (ssize_t)n;
    }
    most = mbedtls_ssl_get_max_out_record_payload(&t->ssl); /* the peer may want short records */
    if (most > 0)
        n = MIN_OF(n, (size_t)most);
    rc = mbedtls_ssl_write(&t->ssl, (const unsigned char *)bytes.p, n);
    t->staged_bytes = rc == MBEDTLS_ERR_SSL_WANT_WRITE ? n : 0;
    if (rc > 0)
        return rc;
    return rc == MBEDTLS_ERR_SSL_WANT_READ || rc == MBEDTLS_ERR_SSL_WANT_WRITE ? 0 : -1;
}

void tls_abandon(struct tls *t)
{
    t->staged_bytes = 0;
}

ssize_t tls_or_plain_write(struct tls *t, int fd, struct str bytes, bool more)
{
    ssize_t sent;

    if (t)
        return tls_write(t, bytes);
    do {
        sent = send(fd, bytes.p, bytes.len, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    } while (sent < 0 && errno == EINTR);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

/* While mbedTLS holds a record it sends no end, but returns as if it had. */
bool tls_close(struct tls *t)
{
    int rc = flush_record(t);

    if (rc == 1 && !t->closed) {
        t->closed = true;
        rc = mbedtls_ssl_close_notify(&t->ssl) == MBEDTLS_ERR_SSL_WANT_WRITE ? 0 : 1;
    }
    return rc != 0;
}
