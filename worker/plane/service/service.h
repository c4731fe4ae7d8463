/*
 * struct service: what both planes of one worker share (the data plane, worker/plane/api, and the
 * control plane, worker/plane/control), and whether it has room for more sessions.
 */
#ifndef RG_SERVICE_SERVICE_H
#define RG_SERVICE_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/str.h"
#include "worker/plane/call/call_env.h"

struct body_read;
struct config;
struct engine_home;
struct exchange;
struct siblings;
struct scorers;
struct sinks;
struct wait_entry;
struct watching;
struct heritage;
struct keys;
struct known_bodies;
struct pause_order;

struct service {
    struct call_env calls;
    const struct heritage *heritage;
    const struct config *config; /* the heritage's: what a reload changes is changed in place */
    const struct keys *keys;
    struct siblings *siblings;  /* the other workers; made on first use */
    struct sinks *sinks;        /* NULL: none is set */
    struct scorers *scorers;    /* engines that score, maybe none */
    struct list_head waits;     /* long polls */
    struct watching *watching;  /* followers of events; made on first use */
    struct known_bodies *known; /* beginnings of requests; made on first use */
    struct pause_order *drain;  /* a pause that waits for running calls, or NULL */
    const struct engine_home
        *engine_home;            /* the --engine settings, and where their changes are kept */
    uint64_t engines_seen;       /* stamp of those changes as this worker obeys them */
    uint64_t weights_seen;       /* stamp of the changes of weights that this worker has applied */
    struct discovery *discovery; /* searches for engines; made on first use */
    struct list_head engine_orders; /* changes under way */
    struct list_head copies;        /* forks and imports under way */
    struct list_head expiring;      /* sessions that are scored before they expire */
    bool draining;                  /* the worker ends */
    bool disk_low;                  /* less than --journal-min-free is left: no new sessions */
    uint64_t started_s;
    int64_t
        clock_ahead_ms;  /* lead over the monotonic clock at the last sweep; 0: not measured yet */
    struct sweep *sweep; /* the one that runs, or NULL (worker/plane/control/sweep.c) */
};

/* Whether the whole service stops, so that nothing new may begin. A worker that is only retired or
 * replaced still takes what reaches it: its sessions go on elsewhere through the journal. So does
 * one whose port is kept for the next instance, which replays that journal. */
bool service_ends(const struct service *a);

/* One request on its way through the routes; lives on the stack of dispatch_request
 * (worker/plane/api).
 */
struct service_request {
    struct service *service;
    struct exchange *x;
    struct str id;          /* session id of the path or of the key; absent when there is none */
    struct str rest;        /* the path below the session, or the whole path */
    bool id_valid;          /* well-formed */
    bool admin;             /* the key shown is an admin's, or none is needed */
    struct body_read *body; /* a control request's whose inputs have passed, until its handler
                               returns; NULL: they were not looked at yet */
    char request_id[40];
    unsigned dialect; /* metric label */
};

/* Sets ERR_UNKNOWN_SESSION, with the form of an id and what is wrong with the request's. No id is
 * in the text: a mistyped one may hold another session's. Returns -1. */
int service_no_session(const struct service_request *r, struct err *e);

/* Refuses, with e, if there is no capacity for so many more sessions: the service ends, the
 * journal's disk or the sinks' spool is full, or a limit of sessions, tokens or memory is reached.
 */
int service_room(struct service *a, int64_t count, struct err *e);

/* Refuses, with e, a new session that a request of so many bytes brings along, when memory has no
 * room for it. */
int service_body_room(struct service *a, uint64_t own_bytes, struct err *e);

/* Refuses, with e, one more answer to clients of that session, if too many bytes wait for them to
 * read (--max-session-unread-bytes). An admitted answer must be counted: exchange_account. */
int service_unread_room(struct service *a, const struct exchange *x, struct str session,
                        struct err *e);

#endif
