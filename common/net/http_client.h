/*
 * struct http_client: HTTP/1.1 calls to one server over pooled keep-alive connections (TCP, unix,
 * TLS) on the process's loop. Answers are streamed: head, runs of body bytes, end. One call per
 * connection at a time, no pipelining; framing is strict (http1.h, chunked.h). Nothing is retried
 * here. Memory per call is bounded: one scratch buffer per client, what a paused call leaves of it,
 * and the request until it is sent (of files that go with it, a piece). Long requests go out a
 * share in each turn of the loop.
 *
 * Callbacks may cancel, pause or resume their call and start others. After done or failed the call
 * is gone. No callback is made from inside http_client_start.
 */
#ifndef RG_NET_HTTP_CLIENT_H
#define RG_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct http_client;
struct http_call;
struct loop;

struct http_client_options {
    const char *ca_file; /* for https: NULL or "": the system's */
    bool insecure_tls;
    bool pinned; /* the server must show the first certificate of ca_file (tls_context_pin) */
    uint64_t connect_timeout_ms; /* 0: 5 s; covers the TLS handshake */
    size_t max_idle;             /* connections kept for later calls; 0: 64 */
};

/* What of a body is not copied into it: it stands before what is at `at` of it. The caller's until
 * the call has ended. */
struct http_insert {
    struct str bytes;
    size_t at;
    const char *file; /* its path: base64 of it instead of the bytes, read as it is sent; or NULL */
    uint64_t file_bytes; /* that it has */
    bool zero;           /* one byte of zero goes behind them */
};

/* Timeouts in ms, 0 none. */
struct http_request {
    const char *method;
    struct str path;             /* behind the URL's prefix; starts with '/' */
    struct str headers;          /* whole lines, each with CRLF; Host and framing are added */
    struct buf *body;            /* taken over; NULL: none */
    struct http_insert *inserts; /* by place, malloced, taken over; NULL: none */
    size_t n_inserts;
    uint64_t first_timeout_ms; /* until the answer's head, from the connection on */
    uint64_t idle_timeout_ms;  /* between bytes of the answer; not while paused */
    uint64_t total_timeout_ms; /* from the start of the call */
};

struct http1_head;

struct http_events {
    void (*head)(void *ctx, const struct http1_head *h); /* borrowed for the callback */
    void (*body)(void *ctx, struct str bytes);
    void (*done)(void *ctx);
    /* ERR_ENGINE_UNAVAILABLE (no answer; e->sys is set when there was no connection),
     * ERR_ENGINE_TIMEOUT, ERR_ENGINE_INVALID (bad framing, cut off), ERR_STORAGE_FAILED (a file of
     * the request cannot be read). `began`: bytes of the answer had come. */
    void (*failed)(void *ctx, const struct err *e, bool began);
};

/* url: see url.h. ERR_CONFIG for a bad address or CA file. Names are resolved now. */
int http_client_new(struct loop *loop, const char *url, const struct http_client_options *o,
                    struct http_client **ret, struct err *e);

/* Changes connect_timeout_ms and max_idle of the options, for what begins from now on. */
void http_client_limits(struct http_client *c, uint64_t connect_timeout_ms, size_t max_idle);

/* No call may be left. */
void http_client_free(struct http_client *c);

/* The request is copied, its body moved. events and ctx outlive the call. */
struct http_call *http_client_start(struct http_client *c, const struct http_request *r,
                                    const struct http_events *events, void *ctx);

/* Ends the call without a callback and closes its connection. */
void http_call_cancel(struct http_call *call);

/* Stops and goes on reading the answer. */
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

/* errno of the last try to connect; 0: it succeeded, or none was made. */
int http_client_connect_error(const struct http_client *c);

/* For metrics: connections open, and those idle. */
size_t http_client_connections(const struct http_client *c);
size_t http_client_idle(const struct http_client *c);

/* Closes all idle connections: what comes on them cannot be trusted. */
void http_client_close_idle(struct http_client *c);

#endif
