/*
 * struct http_client: HTTP/1.1 calls to one server over pooled keep-alive connections (TCP, unix,
 * TLS) on the process's loop. Answers are streamed: head, runs of body bytes, end. One call per
 * connection at a time, no pipelining; framing is strict (http1.h, chunked.h). Nothing is retried
 * here. Memory per call is bounded: one scratch buffer per client, the bytes that a paused call has
 * left of it, and the request until it is sent (of files that are sent with it, a piece). A long
 * request is sent in shares, one in each loop iteration.
 *
 * Callbacks may cancel, pause or resume their call and start others. After done or failed the call
 * is freed. No callback is made from inside http_client_start.
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
    bool background; /* the name is resolved in the background; calls wait for it to connect */
};

/* A part of a body that is not copied into it: it is sent before the body's byte `at`. The caller's
 * until the call has ended. */
struct http_insert {
    struct str bytes;
    size_t at;
    /* path of a file whose base64 is sent instead of the bytes, read as it is sent; or NULL */
    const char *file;
    uint64_t file_bytes; /* size of the file */
    bool zero;           /* a zero byte follows the file's bytes */
};

/* A request. Timeouts in ms, 0: none. */
struct http_request {
    const char *method;
    struct str path;             /* appended to the URL's prefix; starts with '/' */
    struct str headers;          /* whole lines, each with CRLF; Host and framing are added */
    struct buf *body;            /* taken over; NULL: none */
    struct http_insert *inserts; /* in ascending order of `at`, malloced, taken over; NULL: none */
    size_t n_inserts;
    uint64_t first_timeout_ms; /* from the connection to the answer's head */
    uint64_t idle_timeout_ms;  /* between bytes of the answer; not while paused */
    uint64_t total_timeout_ms; /* from the start of the call */
};

struct http1_head;

struct http_events {
    void (*head)(void *ctx, const struct http1_head *h); /* borrowed for the callback */
    void (*body)(void *ctx, struct str bytes);
    void (*done)(void *ctx);
    /* The call failed with ERR_ENGINE_UNAVAILABLE (no answer; e->sys is set if there was no
     * connection), ERR_ENGINE_TIMEOUT, ERR_ENGINE_INVALID (bad framing, cut off), or
     * ERR_STORAGE_FAILED (a file of the request cannot be read). `began`: bytes of the answer had
     * arrived. */
    void (*failed)(void *ctx, const struct err *e, bool began);
};

/* Makes a client for a URL (url.h). Resolves names now, blocking, unless `background`. Returns -1
 * with ERR_CONFIG for a bad address or CA file. */
int http_client_new(struct loop *loop, const char *url, const struct http_client_options *o,
                    struct http_client **ret, struct err *e);

/* Changes connect_timeout_ms and max_idle for later calls and connections. */
void http_client_limits(struct http_client *c, uint64_t connect_timeout_ms, size_t max_idle);

/* No call may be in progress. */
void http_client_free(struct http_client *c);

/* Copies the request, and moves its body. events and ctx must outlive the call. */
struct http_call *http_client_start(struct http_client *c, const struct http_request *r,
                                    const struct http_events *events, void *ctx);

/* Ends the call without a callback and closes its connection. */
void http_call_cancel(struct http_call *call);

/* Stop and continue reading the answer. */
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

/* Returns the errno of the last try to connect; 0: it succeeded, or none was made. */
int http_client_connect_error(const struct http_client *c);

/* For metrics: return the number of open connections, and of idle ones. */
size_t http_client_connections(const struct http_client *c);
size_t http_client_idle(const struct http_client *c);

/* Closes all idle connections, because answers on them cannot be trusted. */
void http_client_close_idle(struct http_client *c);

#endif
