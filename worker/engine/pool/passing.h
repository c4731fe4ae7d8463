/*
 * Forwards calls of an engine's own paths unchanged (passing.c). doors.h says which are allowed.
 */
#ifndef RG_ENGINE_PASSING_H
#define RG_ENGINE_PASSING_H

#include <stdbool.h>

#include "common/base/str.h"

struct engine_pool;
struct err;

/* A call of an engine's own path. It is forwarded to the session's replica unchanged, if doors.h
 * allows it for the caller's key. It is not queued, not recorded and not retried. It uses one slot
 * of the replica. */
struct engine_pass {
    struct str session_id; /* absent: any replica may be used */
    const char *method;
    struct str path, query;
    bool admin; /* an admin key was shown */
    /* no keys are configured: handled like an agent, with a different error */
    bool keyless;
    const char *setting;     /* value of --passthrough */
    struct str content_type; /* absent: none */
    struct str accept;
    struct str body; /* copied when the path is allowed; empty: none */
    bool body_stays; /* the body exists until the call has ended, so it need not be copied */
};

struct engine_pass_events {
    void (*head)(void *ctx, int status, struct str content_type);
    void (*body)(void *ctx, struct str bytes);
    void (*done)(void *ctx);
    void (*failed)(void *ctx, const struct err *e);
};

struct engine_pass_call;

/* Starts the call. Returns NULL and e if the path is not allowed, or with ERR_OVERLOADED if no
 * replica has a free slot. Otherwise exactly one of done and failed follows, never from inside this
 * function. The pointer is invalid then, or after cancel. */
struct engine_pass_call *engine_pass(struct engine_pool *p, const struct engine_pass *r,
                                     const struct engine_pass_events *events, void *ctx,
                                     struct err *e);
void engine_pass_cancel(struct engine_pass_call *c);
void engine_pass_pause(struct engine_pass_call *c);
void engine_pass_resume(struct engine_pass_call *c);

#endif
