/*
 * struct http_conn: one connection of a struct http_client: opening (with the next address if one
 * fails), TLS, reading and writing bytes. http_client.c interprets the bytes. A closed connection
 * is freed when none of its callbacks runs. Internal to http_client.
 */
#ifndef RG_NET_HTTP_CONN_H
#define RG_NET_HTTP_CONN_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/str.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"
#include "common/net/url.h"
#include "common/os/loop.h"

enum http_conn_state { CONN_CONNECTING, CONN_SHAKING, CONN_OPEN, CONN_CLOSED };

struct http_conn {
    struct http_client *client;
    struct http_call *call; /* NULL: idle */
    struct list_item item;  /* in the list of idle connections */
    struct loop_io io;
    int fd;
    enum http_conn_state state;
    struct tls *tls;
    size_t address;         /* index of the address that is tried */
    int first_error;        /* errno of a first try that failed at once */
    unsigned inside;        /* number of running callbacks that use it */
    bool ended;             /* the peer will send no more and everything was read */
    bool clean_end;         /* the peer ended properly (TLS: close_notify) */
    bool hangup;            /* the peer will send no more; sent bytes may not be read yet */
    struct loop_task again; /* continues to read in the next loop iteration */
    struct loop_timer name; /* connecting: until the name's first addresses are looked for again */
    size_t read_bytes;      /* size of the next read */

    /* the answer being read */
    struct buf in;     /* an unfinished head, or what a paused call has not taken */
    size_t seen_bytes; /* bytes of `in` that the head parser has read */
    bool in_body;
    enum http1_body framing;
    bool keep_alive;
    uint64_t left_bytes;
    struct chunked chunked;
};

struct http_client {
    struct loop *loop;
    char *url_text;
    struct url url;
    bool background; /* calls wait for the name's first addresses */
    struct resolve resolve;
    struct tls_context *tls;
    struct tls_session *session;
    char *host; /* NUL-terminated */
    uint64_t connect_timeout_ms;
    size_t max_idle;
    struct list_head idle; /* connections, newest first */
    size_t n_idle, n_conns;
    int connect_error; /* errno of the last try to connect; 0: it succeeded, or there was none */
    char *scratch;     /* SCRATCH_BYTES, shared: used only within one callback */
    struct http1_head head; /* shared like `scratch` */
};

enum {
    SCRATCH_BYTES = 128 * 1024,
    READ_FIRST = 32 * 1024,
    READ_LEAST = 8 * 1024,
    READ_TURN_US = 1000 /* after this time others are served; handling a piece takes more time */
};

/* Begins to connect. The result is reported by conn_opened or conn_broken. */
struct http_conn *http_conn_open(struct http_client *c, struct http_call *call);

/* Closes the connection. It is freed now, or when the last callback that uses it has returned. */
void http_conn_close(struct http_conn *n);

/* Read and write. Return the number of bytes, 0 if the call would block, -1 if the connection is
 * broken. A read at the end sets `ended`. more: as for tls_or_plain_write. */
ssize_t http_conn_read(struct http_conn *n, char *p, size_t len);
ssize_t http_conn_write(struct http_conn *n, struct str bytes, bool more);

/* Sets the size of later reads by the time that handling the last one took. Handling the same
 * number of bytes may take a hundred times as long in one answer as in another. */
void http_conn_set_pace(struct http_conn *n, size_t got, uint64_t took_us);

/* Called before and after code that calls out, so that the connection is not freed meanwhile. */
void http_conn_enter(struct http_conn *n);
void http_conn_leave(struct http_conn *n);

/* Called when a connection is open. http_client.c implements it and the functions below. */
void http_conn_opened(struct http_conn *n);
void http_conn_ready(struct http_conn *n, unsigned events);
void http_conn_broken(struct http_conn *n, const struct err *e);

#endif
