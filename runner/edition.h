/*
 * struct edition: one reading of the runner file, with the clients of its services. A reload makes
 * a new edition. Attempts keep the one that they began with; the last release frees it.
 */
#ifndef RG_RUNNER_EDITION_H
#define RG_RUNNER_EDITION_H

#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "runner/roster.h"

/* Clients of an http runner; all NULL for a runner of processes. */
struct service_way {
    struct http_client *client, *canceller; /* canceller: may be NULL */
    char *path, *cancel_path;
};

struct edition {
    struct loop *loop;
    struct roster roster;
    struct service_way *ways; /* by the runner's place in the roster */
    unsigned users;
    struct loop_task unused; /* frees it: the last user may be a call of its own clients */
};

/* Takes the roster over; the caller is the first user. ca_file: certificates for https services,
 * NULL for the system's. NULL with ERR_CONFIG: a service cannot be
 * reached as its URL says; the roster is freed then. */
struct edition *edition_new(struct loop *l, struct roster *roster, const char *ca_file,
                            struct err *e);
struct edition *edition_keep(struct edition *d);
void edition_drop(struct edition *d);

/* Releases the last use after the loop has ended, and frees the edition at once. */
void edition_close(struct edition *d);

#endif
