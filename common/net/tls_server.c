/* The server's side of TLS (tls_server.h): reads and checks its files, and does handshakes. */

#include "common/net/tls_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/ecp.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl_ciphersuites.h>
#include <mbedtls/x509_crt.h>

#include "common/base/mem.h"
#include "common/net/tls_internal.h"

/* Most bytes that a client may send in one step of its handshake. */
enum { SHAKE_READ_MAX = 64 * 1024 };

struct tls_server {
    mbedtls_ssl_config config;
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_x509_crt chain;
    mbedtls_pk_context key;
    mbedtls_x509_crt client_roots;
    size_t users; /* number of users: the owner, and the connections */
};

static const int suites[] = {MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                             MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                             MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                             MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                             MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                             MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
                             0};

/* Curves of key exchanges and of certificates. */
static const mbedtls_ecp_group_id curves[] = {MBEDTLS_ECP_DP_CURVE25519, MBEDTLS_ECP_DP_SECP256R1,
                                              MBEDTLS_ECP_DP_SECP384R1, MBEDTLS_ECP_DP_SECP521R1,
                                              MBEDTLS_ECP_DP_NONE};

/* Sets *e to "--FLAG: FILE: what mbedTLS says". Returns -1. */
static int fail_file(struct err *e, const char *flag, const char *file, int code)
{
    struct err why;

    (void)tls_fail(&why, ERR_CONFIG, file, code);
    return err_set(e, ERR_CONFIG, "--%s: %s", flag, why.text);
}

/* Opens the file: access(2) does not see what a sandbox denies. */
static int check_readable(const char *flag, const char *file, struct err *e)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_set(e, ERR_CONFIG, "--%s: %s: %s", flag, file, strerror(errno));
    (void)close(fd);
    return 0;
}

static int load_chain(mbedtls_x509_crt *chain, const char *flag, const char *file, struct err *e)
{
    int rc;

    if (check_readable(flag, file, e))
        return -1;
    rc = mbedtls_x509_crt_parse_file(chain, file);
    if (rc > 0)
        return err_set(e, ERR_CONFIG, "--%s: %s: %d of its certificates cannot be read", flag, file,
                       rc);
    return rc == 0 ? 0 : fail_file(e, flag, file, rc);
}

/* Reports whether clients can use the key: RSA, or ECDSA on one of the curves above. */
static bool is_usable(const mbedtls_pk_context *key)
{
    const mbedtls_ecp_keypair *ec;

    if (mbedtls_pk_can_do(key, MBEDTLS_PK_RSA))
        return true;
    ec = mbedtls_pk_can_do(key, MBEDTLS_PK_ECDSA) ? mbedtls_pk_ec(*key) : NULL;
    for (size_t i = 0; ec && curves[i] != MBEDTLS_ECP_DP_NONE; i++) {
        if (ec->grp.id == curves[i])
            return true;
    }
    return false;
}

static int load_key(struct tls_server *s, const struct tls_server_options *o, struct err *e)
{
    int rc;

    if (check_readable("tls-key", o->key_file, e))
        return -1;
    rc = mbedtls_pk_parse_keyfile(&s->key, o->key_file, NULL);
    if (rc != 0)
        return fail_file(e, "tls-key", o->key_file, rc);
    if (!is_usable(&s->key))
        return err_set(e, ERR_CONFIG,
                       "--tls-key: %s: the key must be RSA, or ECDSA on P-256, P-384 or P-521",
                       o->key_file);
    if (mbedtls_pk_check_pair(&s->chain.pk, &s->key) != 0)
        return err_set(e, ERR_CONFIG, "--tls-key: %s is not the key of the certificate in %s",
                       o->key_file, o->certificate_file);
    return 0;
}

/* Sets what all connections share. */
static int configure(struct tls_server *s, bool asks_clients, struct err *e)
{
    int rc = mbedtls_ctr_drbg_seed(&s->random, mbedtls_entropy_func, &s->entropy, NULL, 0);

    if (rc == 0)
        rc = mbedtls_ssl_config_defaults(&s->config, MBEDTLS_SSL_IS_SERVER,
                                         MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
    if (rc == 0)
        rc = mbedtls_ssl_conf_alpn_protocols(&s->config, (const char **)(uintptr_t)tls_protocols);
    if (rc == 0)
        rc = mbedtls_ssl_conf_own_cert(&s->config, &s->chain, &s->key);
    if (rc != 0)
        return tls_fail(e, ERR_CONFIG, "set-up", rc);
    mbedtls_ssl_conf_rng(&s->config, mbedtls_ctr_drbg_random, &s->random);
    mbedtls_ssl_conf_min_version(&s->config, MBEDTLS_SSL_MAJOR_VERSION_3,
                                 MBEDTLS_SSL_MINOR_VERSION_3); /* TLS 1.2 */
    mbedtls_ssl_conf_renegotiation(&s->config, MBEDTLS_SSL_RENEGOTIATION_DISABLED);
    mbedtls_ssl_conf_ciphersuites(&s->config, suites);
    mbedtls_ssl_conf_curves(&s->config, curves);
    if (asks_clients) {
        mbedtls_ssl_conf_ca_chain(&s->config, &s->client_roots, NULL);
        mbedtls_ssl_conf_authmode(&s->config, MBEDTLS_SSL_VERIFY_REQUIRED);
    }
    return 0;
}

int tls_server_new(const struct tls_server_options *o, struct tls_server **ret, struct err *e)
{
    struct tls_server *s = mem_zalloc(sizeof(*s));
    bool asks_clients = o->client_ca_file && *o->client_ca_file;

    s->users = 1;
    mbedtls_ssl_config_init(&s->config);
    mbedtls_entropy_init(&s->entropy);
    mbedtls_ctr_drbg_init(&s->random);
    mbedtls_x509_crt_init(&s->chain);
    mbedtls_pk_init(&s->key);
    mbedtls_x509_crt_init(&s->client_roots);
    if (load_chain(&s->chain, "tls-certificate", o->certificate_file, e) || load_key(s, o, e) ||
        (asks_clients && load_chain(&s->client_roots, "tls-client-ca", o->client_ca_file, e)) ||
        configure(s, asks_clients, e)) {
        tls_server_free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void tls_server_release(struct tls_server *s)
{
    if (--s->users > 0)
        return;
    mbedtls_ssl_config_free(&s->config);
    mbedtls_pk_free(&s->key);
    mbedtls_x509_crt_free(&s->chain);
    mbedtls_x509_crt_free(&s->client_roots);
    mbedtls_ctr_drbg_free(&s->random);
    mbedtls_entropy_free(&s->entropy);
    free(s);
}

void tls_server_free(struct tls_server *s)
{
    if (s)
        tls_server_release(s);
}

int tls_server_accept(struct tls_server *s, int fd, struct tls **ret, struct err *e)
{
    struct tls *t = mem_zalloc(sizeof(*t));
    int rc;

    t->server = s;
    s->users++;
    t->fd = fd;
    mbedtls_ssl_init(&t->ssl);
    rc = mbedtls_ssl_setup(&t->ssl, &s->config);
    if (rc != 0) {
        tls_free(t);
        return tls_fail(e, ERR_INTERNAL, "set-up", rc);
    }
    tls_attach(t);
    *ret = t;
    return 0;
}

/* Sets *e to the reason of a failed handshake, with the check of a client's certificate if one
 * failed. */
static void explain_failure(struct tls *t, int code, struct err *e)
{
    uint32_t flags = mbedtls_ssl_get_verify_result(&t->ssl);
    char why[256];

    if (code == MBEDTLS_ERR_SSL_CONN_EOF) {
        (void)err_set(e, ERR_INVALID, "TLS: the client closed the connection");
    } else if (code == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED && flags != 0 && flags != UINT32_MAX &&
               mbedtls_x509_crt_verify_info(why, sizeof(why), "", flags) > 0) {
        why[strcspn(why, "\n")] = 0;
        (void)err_set(e, ERR_INVALID, "TLS: the client's certificate is refused: %s", why);
    } else {
        (void)tls_fail(e, ERR_INVALID, "handshake", code);
    }
}

enum tls_shake tls_server_shake(struct tls *t, struct err *e)
{
    int rc;

    t->may_read = SHAKE_READ_MAX;
    rc = mbedtls_ssl_handshake(&t->ssl);
    if (rc == 0)
        return TLS_SHAKE_DONE;
    if (rc == MBEDTLS_ERR_SSL_WANT_READ)
        return TLS_SHAKE_READS;
    if (rc == MBEDTLS_ERR_SSL_WANT_WRITE)
        return TLS_SHAKE_WRITES;
    explain_failure(t, rc, e);
    return TLS_SHAKE_FAILED;
}

bool tls_server_has_signed(const struct tls *t)
{
    return t->ssl.state > MBEDTLS_SSL_SERVER_KEY_EXCHANGE;
}
