/* Reads the files, runs the handshake, and gives TLS connections the interface of a socket. A
 * pending job owns its struct client_tls. If the connection closes meanwhile, struct and descriptor
 * are freed at the job's end. */

#include "router/client_tls.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"
#include "common/net/tls_server.h"
#include "common/os/helpers.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/callers.h"
#include "router/conn.h"
#include "router/hub.h"

enum {
    LOGGED_PER_SECOND = 1,
    NICE = 5, /* priority of the helper thread, below the loops */
};

struct client_tls {
    struct helper_job job; /* one flight of the handshake */
    struct list_item item; /* in hub->shakes while the job is pending */
    struct conn *conn;     /* NULL: closed while the job was pending; the struct owns fd then */
    struct tls *stream;
    int fd;
    bool begun;            /* the first byte of a handshake has arrived */
    bool has_signed;       /* our signature is made: the remaining flights are cheap */
    bool ready;            /* the handshake is over */
    enum tls_shake result; /* result of the job */
    struct err reason;     /* reason if the job failed */
};

/* ------------------------------------------------------------------ files */

static int load_files(const struct config *c, struct tls_server **ret, struct err *e)
{
    const struct tls_server_options o = {.certificate_file = c->tls_certificate,
                                         .key_file = c->tls_key,
                                         .client_ca_file = c->tls_client_ca};

    return tls_server_new(&o, ret, e);
}

/* The supervisor reports missing settings. */
void client_tls_check(const struct config *c, struct buf *mistakes)
{
    struct tls_server *s;
    struct err e;

    if (!c->listen_tls || !c->tls_certificate || !c->tls_key)
        return;
    if (load_files(c, &s, &e))
        buf_printf(mistakes, "%s\n", e.text);
    else
        tls_server_free(s);
}

int client_tls_load(struct hub *h, struct err *e)
{
    static const struct helpers_options helpers = {.threads = 1, .nice = NICE};
    struct tls_server *fresh;

    if (!h->config->listen_tls)
        return 0;
    if (load_files(h->config, &fresh, e))
        return -1;
    if (!h->shakers && helpers_new(h->loop, &helpers, &h->shakers, e)) {
        tls_server_free(fresh);
        return -1;
    }
    tls_server_free(h->tls);
    h->tls = fresh;
    return 0;
}

/* ------------------------------------------------------------------ life */

static void free_shake(struct client_tls *t)
{
    tls_free(t->stream);
    free(t);
}

bool client_tls_stop(struct hub *h)
{
    struct client_tls *t, *next;

    if (helpers_free(h->shakers) > 0)
        return false;
    h->shakers = NULL;
    LIST_EACH_SAFE(&h->shakes, t, next, struct client_tls, item) {
        close(t->fd);
        free_shake(t);
    }
    return true;
}

int client_tls_open(struct conn *c)
{
    struct client_tls *t;
    struct tls *stream;
    struct err e;

    if (tls_server_accept(c->hub->tls, c->fd, &stream, &e)) {
        log_error(NULL, "a TLS connection cannot begin", LOG_T("reason", e.text));
        conn_close(c);
        return -1;
    }
    t = mem_zalloc(sizeof(*t));
    t->conn = c;
    t->stream = stream;
    t->fd = c->fd;
    c->tls = t;
    c->down.tls = stream;
    return 0;
}

bool client_tls_free(struct conn *c)
{
    struct client_tls *t = c->tls;

    if (!t)
        return false;
    c->tls = NULL;
    c->down.tls = NULL;
    if (!list_holds(&t->item)) {
        free_shake(t);
        return false;
    }
    t->conn = NULL;
    helpers_cancel(c->hub->shakers, &t->job);
    return true;
}

/* ------------------------------------------------------------------ the handshake */

static void report_bad_end(struct conn *c, enum metric_label_HANDSHAKE outcome, const char *why)
{
    static struct log_limit limit;
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    char address[RESOLVE_TEXT] = "";
    unsigned dropped;

    metrics_count_at(c->hub->page, METRIC_tls_handshakes, outcome, 0, 1);
    if (!log_limit_pass(&limit, LOGGED_PER_SECOND, &dropped))
        return;
    if (getpeername(c->fd, (struct sockaddr *)&from, &len) == 0)
        resolve_text((struct sockaddr *)&from, len, address);
    log_warn(NULL, "a TLS handshake failed", LOG_T("client", address), LOG_T("reason", why),
             LOG_U("suppressed", dropped));
}

static void report_failure(struct conn *c, const char *why)
{
    report_bad_end(c, METRIC_HANDSHAKE_FAILED, why);
}

/* A drain expires connections early, which is not the client's failure. */
void client_tls_expire(struct conn *c)
{
    if (!c->hub->draining && list_holds(&c->tls->item))
        report_bad_end(c, METRIC_HANDSHAKE_REFUSED,
                       "refused: it waited for other handshakes for --header-timeout");
    else if (!c->hub->draining)
        report_failure(c, "it did not end within --header-timeout");
    conn_close(c);
}

/* Reports whether the byte is a letter. HTTP's methods begin with a letter, TLS records do not. */
static bool is_letter(char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

/* Answers a client that speaks plain HTTP with an error, without TLS. */
static void answer_plain(struct conn *c)
{
    struct err e;

    report_failure(c, "the client speaks plain HTTP");
    (void)client_tls_free(c);
    (void)err_set(&e, ERR_INVALID, "this port speaks TLS: use https://");
    conn_fail(c, &e);
}

/* Peeks at the first byte. Returns true if it begins a handshake. */
static bool peek_first(struct conn *c)
{
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        c->readable = errno == EINTR;
        return false;
    }
    if (n <= 0) {
        conn_close(c); /* the client only tested whether the port is open: no failure */
        return false;
    }
    if (is_letter(byte)) {
        answer_plain(c);
        return false;
    }
    c->tls->begun = true;
    return true;
}

bool client_tls_ready(const struct conn *c)
{
    return c->tls->ready;
}

static void run_shake(struct helper_job *j, void *tool)
{
    struct client_tls *t = CONTAINER_OF(j, struct client_tls, job);

    (void)tool;
    t->result = tls_server_shake(t->stream, &t->reason);
}

static void finish_handshake(struct conn *c)
{
    c->tls->ready = true;
    c->readable = true; /* mbedTLS may have read bytes of the first request */
    metrics_count_at(c->hub->page, METRIC_tls_handshakes, METRIC_HANDSHAKE_DONE, 0, 1);
    if (!c->hub->draining)
        conn_set_deadline(c, (uint64_t)c->hub->config->idle_timeout_ms);
}

/* Restarts the deadline once, when our signature is made: the client is not responsible for the
 * wait for the helper thread. */
static void renew_deadline(struct conn *c)
{
    if (c->tls->has_signed || !tls_server_has_signed(c->tls->stream))
        return;
    c->tls->has_signed = true;
    if (!c->hub->draining)
        conn_set_deadline(c, (uint64_t)c->hub->config->header_timeout_ms);
}

static bool is_writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return poll(&p, 1, 0) > 0;
}

/* Continues the connection after a flight. Frees the struct if the connection was closed meanwhile.
 */
static void on_shaken(struct helper_job *j, enum helper_end end)
{
    struct client_tls *t = CONTAINER_OF(j, struct client_tls, job);
    struct conn *c = t->conn;

    list_remove(&t->item);
    if (!c) {
        close(t->fd);
        free_shake(t);
        return;
    }
    CHECK(end == HELPER_DONE); /* no time limit; no cancel with a connection */
    if (t->result == TLS_SHAKE_DONE) {
        finish_handshake(c);
    } else if (t->result == TLS_SHAKE_FAILED) {
        report_failure(c, t->reason.text);
        conn_linger(c); /* the client may still send, and must see the alert */
    } else {
        renew_deadline(c);
        if (t->result == TLS_SHAKE_WRITES)
            conn_want_out(c);
        /* The loop ignored events during the job, and does not repeat them. */
        if (t->result == TLS_SHAKE_WRITES ? !is_writable(t->fd) : !c->readable)
            return;
    }
    c->hub->run(c);
}

/* Closes a connection whose client has left before our signature is made: the signature would delay
 * others for nothing. */
static void drop_abandoned(struct conn *c)
{
    report_failure(c, "the client closed the connection");
    conn_close(c);
}

bool client_tls_shake(struct conn *c)
{
    struct client_tls *t = c->tls;

    if (list_holds(&t->item)) {
        if (c->hup && !t->has_signed)
            drop_abandoned(c);
        return false;
    }
    if (!t->begun && !peek_first(c))
        return c->state == CONN_RELAY;
    if (c->hup && !t->has_signed) { /* the client left after its first bytes: no event follows */
        drop_abandoned(c);
        return false;
    }
    t->job = (struct helper_job){.run = run_shake, .done = on_shaken, .is_first = t->has_signed};
    list_append(&c->hub->shakes, &t->item);
    c->readable = false; /* the job may miss bytes that arrive from now on */
    helpers_push(c->hub->shakers, &t->job, str_of(c->address->name, c->address->name_len));
    return false;
}

/* ------------------------------------------------------------------ bytes */

ssize_t client_tls_read(struct conn *c, void *to, size_t size)
{
    ssize_t n = tls_read(c->tls->stream, to, size);

    if (n > 0)
        return n;
    if (n == TLS_CLOSED)
        return 0;
    errno = n == 0 ? EAGAIN : ECONNABORTED;
    return -1;
}

bool client_tls_end(struct conn *c)
{
    return tls_close(c->tls->stream);
}
