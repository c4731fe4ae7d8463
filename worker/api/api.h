/*
 * struct api: what the routes of one worker share, and the entry for every request. Routes stand in
 * one table (routes.def) with method, path, scope and handler; keys are checked there and nowhere
 * else.
 */
#ifndef RG_API_API_H
#define RG_API_API_H

#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "worker/api/server.h"
#include "worker/turn/turn.h"

struct wait_entry;

struct api {
    struct turn_env turns;
    const struct heritage *heritage;
    const struct keys *keys;
    struct wait_entry *waits; /* long polls */
    bool draining;
    uint64_t started_s;
};

/* One request on its way through the routes; lives on the stack of api_handle. */
struct api_request {
    struct api *api;
    struct exchange *x;
    struct str id;        /* session id of the path or of the key; absent when there is none */
    struct str rest;      /* the path below the session, or the whole path */
    bool id_valid;        /* well-formed */
    enum key_scope scope; /* proven by the key; KEY_ADMIN when no keys are needed */
    char request_id[40];
    unsigned dialect; /* metric label */
};

/* Handles one request (server_handler_fn; ctx is the api). */
void api_handle(void *ctx, struct exchange *x);

/* Once in a while: tombstones, TTL, retention. */
void api_sweep(struct api *a);

/* Wakes long polls of a session (its phase changed); all of them when id is absent. */
void api_wake(struct api *a, struct str id);

/* Milliseconds of the wall clock. */
uint64_t api_now_ms(void);

#endif
