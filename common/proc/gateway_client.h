/*
 * struct gateway_client: requests of a command (`group`, `top`) to a running gateway, one at a
 * time. A call returns when the answer has arrived.
 */
#ifndef RG_PROC_GATEWAY_CLIENT_H
#define RG_PROC_GATEWAY_CLIENT_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

struct arena;
struct err;
struct gateway_client;

struct gateway_client_options {
    const char *url;      /* address: http://HOST:PORT, https://... or unix:/PATH */
    const char *key_file; /* NULL: no key is sent */
    const char *ca_file;  /* certificates for https; NULL: the system's */
    /* the gateway must show the first certificate of ca_file, whatever name that contains */
    bool pinned;
};

/* Removes --gateway, --key-file and --ca-file from argv. `url` is used if argv names no gateway. */
struct gateway_client_options gateway_client_take_options(int *argc, char **argv, const char *url);

/* Returns the key in the first line of `path` that is not a comment (#), without surrounding
 * blanks; the caller frees it. Returns NULL after appending a line to `mistakes`. */
char *gateway_client_read_key(const char *path, struct buf *mistakes);

/* Makes a client; free it with gateway_client_free. Returns NULL after appending a line to
 * `mistakes`. */
struct gateway_client *gateway_client_new(const struct gateway_client_options *o,
                                          struct buf *mistakes);
void gateway_client_free(struct gateway_client *c); /* NULL is allowed */

/* Gets a stream. Calls on_bytes with each piece until the stream ends, or until on_bytes returns
 * false (*e has the reason). Returns 200, or a different status with the answer's body, or 0 with
 * the reason. */
int gateway_client_stream(struct gateway_client *c, const char *path,
                          bool (*on_bytes)(void *ctx, struct str bytes, struct err *e), void *ctx,
                          struct buf *answer);

/* Sends one request; an empty body is not sent. Returns the status, with the answer's body in
 * `answer`, or 0 with the reason in `answer`. */
int gateway_client_call(struct gateway_client *c, const char *method, const char *path,
                        struct str body, struct buf *answer);

/* Returns the message of an error, copied into the arena; other answers as they are. */
struct str gateway_client_reason(struct arena *a, struct str answer);

/* Reports whether an id can be in a path, as it is. */
bool gateway_client_takes_id(const char *id);

#endif
