/*
 * struct service: what both planes of one worker share (the data plane, worker/plane/api, and the
 * control plane, worker/plane/control), and the checks whether there is space for more sessions.
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
struct watching;
struct heritage;
struct keys;
struct known_bodies;
struct fleet_orders;
struct pause_order;

struct service {
    struct call_env calls;
    const struct heritage *heritage;
    const struct config *config; /* config of the heritage; a reload changes it in place */
    const struct keys *keys;
    struct siblings *siblings;  /* clients of the other workers; made on first use */
    struct sinks *sinks;        /* NULL: no sink is set */
    struct scorers *scorers;    /* engines that score; may have none */
    struct list_head waits;     /* long polls */
    struct watching *watching;  /* viewers of events; made on first use */
    struct known_bodies *known; /* known beginnings of request bodies; made on first use */
    struct pause_order *drain;  /* a pause that waits for running calls, or NULL */
    const struct engine_home
        *engine_home;      /* the --engine settings, and the folder of their changes */
    uint64_t engines_seen; /* stamp of the changes of engines that this worker has applied */
    uint64_t weights_seen; /* stamp of the changes of weights that this worker has applied */
    /* stamps of changes that could not be applied; they are tried again each second */
    uint64_t engines_failed, weights_failed;
    struct fleet_orders *orders;    /* what holds on all nodes; NULL: no fleet */
    bool versions_unknown;          /* the fleet may have newer versions than `weights_seen` */
    struct discovery *discovery;    /* finds engines of --engine-source; made on first use */
    struct list_head engine_orders; /* changes of the engines in progress */
    struct list_head copies;        /* forks and imports in progress */
    struct list_head expiring;      /* sessions that are scored before they expire */
    bool draining;                  /* the worker ends */
    /* the disk has less than --journal-min-free, so no session is made */
    bool disk_low;
    uint64_t started_s;
    int64_t clock_ahead_ms; /* lead of the wall clock over the monotonic clock at the last sweep; 0:
                               not measured yet */
    struct sweep *sweep;    /* the sweep that runs, or NULL (worker/plane/control/sweep.c) */
};

/* One request that is routed to its handler. On the stack of dispatch_request
 * (worker/plane/api). */
struct service_request {
    struct service *service;
    struct exchange *x;
    struct str id;   /* session id from the path or from the key; absent: none */
    struct str rest; /* the path after the session's part, or the whole path */
    bool id_valid;   /* the id has a valid form */
    bool admin;      /* the request has an admin's key, or needs none */
    /* body of a control request whose inputs were checked, until its handler returns; NULL: not
     * checked yet */
    struct body_read *body;
    char request_id[40];
    unsigned dialect; /* dialect as a metric label */
    bool was_held;    /* it has waited for the fleet's store */
};

/* Returns -1 with *e if a different node of the fleet may own the session's place, or the session
 * is lost. A model call (`is_call`) fails also if this worker does not obey the newest orders of
 * the fleet yet, and a request for all sessions while some are being read from the fleet's store.
 */
int service_check_owner(const struct service_request *r, bool is_call, struct err *e);

/* Reports whether sessions of that index live in this worker. */
bool service_serves_index(const struct service *a, uint32_t index);

/* Sets ERR_UNKNOWN_SESSION, with the form of an id and what is wrong with the request's. The text
 * does not contain the id, because a mistyped one may be part of a different session's. Returns
 * -1. */
int service_no_session(const struct service_request *r, struct err *e);

/* Refuses, with e, if there is no capacity for so many more sessions: the service ends, the
 * journal's disk or the sinks' spool is full, or a limit of sessions, tokens or memory is
 * reached. */
int service_room(struct service *a, int64_t count, struct err *e);

/* Refuses, with e, a new session from a request of so many bytes if memory has no space for it. */
int service_body_room(struct service *a, uint64_t own_bytes, struct err *e);

/* Refuses, with e, a further answer of that session if too many bytes wait for its clients to read
 * (--max-session-unread-bytes). An admitted answer must be counted with exchange_account. */
int service_unread_room(struct service *a, const struct exchange *x, struct str session,
                        struct err *e);

#endif
