/*
 * struct edition: the content of the runner file at one reading, with the clients of its services.
 * A reload makes a new edition. An attempt keeps the edition with which it began. The last release
 * frees an edition.
 */
#ifndef RG_RUNNER_EDITION_H
#define RG_RUNNER_EDITION_H

#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "runner/roster.h"

/* Clients of an http runner. All are NULL for a runner of processes. */
struct service_way {
    struct http_client *client, *canceller; /* canceller may be NULL */
    char *path, *cancel_path;
};

struct edition {
    struct loop *loop;
    struct roster roster;
    struct service_way *ways; /* by the runner's index in the roster */
    unsigned users;
    /* frees the edition later, because its last user may be a call of its own clients */
    struct loop_task unused;
};

/* Makes an edition, with the caller as first user. Takes ownership of the roster. ca_file:
 * certificates for https services, NULL for the system's. Returns NULL with ERR_CONFIG, and frees
 * the roster, if the URL of a service cannot be used. */
struct edition *edition_new(struct loop *l, struct roster *roster, const char *ca_file,
                            struct err *e);
struct edition *edition_keep(struct edition *d);
void edition_drop(struct edition *d);

/* Releases the last use after the loop has ended, and frees the edition at once. */
void edition_close(struct edition *d);

#endif
