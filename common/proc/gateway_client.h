/*
 * struct gateway_client: requests of a command (`group`, `top`) to a running gateway, one at a
 * time. A call returns when its answer is there.
 */
#ifndef RG_PROC_GATEWAY_CLIENT_H
#define RG_PROC_GATEWAY_CLIENT_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

struct err;
struct gateway_client;

struct gateway_client_options {
    const char *url;      /* http://HOST:PORT, https://... or unix:/PATH */
    const char *key_file; /* NULL: no key is sent */
    const char *ca_file;  /* certificates for https; NULL: the system's */
    bool pinned;          /* the gateway must show the first one of ca_file, whatever it names */
};

/* Removes --gateway, --key-file and --ca-file from argv. `url`: the gateway if argv names none. */
struct gateway_client_options gateway_client_take_options(int *argc, char **argv, const char *url);

/* The key in the first line of `path` that is no comment (#), without the blanks around it; the
 * caller frees it. NULL after appending a line to `mistakes`. */
char *gateway_client_read_key(const char *path, struct buf *mistakes);

/* NULL after appending a line to `mistakes`. Free it with gateway_client_free. */
struct gateway_client *gateway_client_new(const struct gateway_client_options *o,
                                          struct buf *mistakes);
void gateway_client_free(struct gateway_client *c); /* NULL is allowed */

/* Gets a stream, and calls on_bytes with what comes until it ends, or until that returns false (*e
 * says why). Returns 200, or another status with the answer's body, or 0 with the reason. */
int gateway_client_stream(struct gateway_client *c, const char *path,
                          bool (*on_bytes)(void *ctx, struct str bytes, struct err *e), void *ctx,
                          struct buf *answer);

/* Sends one request; body empty: none. Returns the status, with the answer's body in `answer`, or
 * 0 with the reason there. */
int gateway_client_call(struct gateway_client *c, const char *method, const char *path,
                        struct str body, struct buf *answer);

#endif
