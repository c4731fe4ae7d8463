/*
 * Paths of an engine's own, forwarded as they are (passing.c); doors.h says which.
 */
#ifndef RG_ENGINE_PASSING_H
#define RG_ENGINE_PASSING_H

#include <stdbool.h>

#include "common/base/str.h"

struct engine_pool;
struct err;

/* A path of the engine's own, forwarded to the session's replica as it is, if its door is open to
 * the caller (doors.h): not queued, not recorded, not retried. It takes one of the replica's
 * places. */
struct engine_pass {
    struct str session_id; /* absent: any replica */
    const char *method;
    struct str path, query;
    bool admin;              /* an admin key was shown */
    bool keyless;            /* no key is needed here: like an agent, with a different error */
    const char *setting;     /* --passthrough */
    struct str content_type; /* absent: none */
    struct str accept;
    struct str body; /* copied once the door is open; empty: none */
    bool body_stays; /* until the call has ended, so it need not be copied */
};

struct engine_pass_events {
    void (*head)(void *ctx, int status, struct str content_type);
    void (*body)(void *ctx, struct str bytes);
    void (*done)(void *ctx);
    void (*failed)(void *ctx, const struct err *e);
};

struct engine_pass_call;

/* NULL and e when the door is shut, or ERR_OVERLOADED when every replica has all it may run.
 * Exactly one of done / failed follows, never from inside. The call is gone then, or after cancel.
 */
struct engine_pass_call *engine_pass(struct engine_pool *p, const struct engine_pass *r,
                                     const struct engine_pass_events *events, void *ctx,
                                     struct err *e);
void engine_pass_cancel(struct engine_pass_call *c);
void engine_pass_pause(struct engine_pass_call *c);
void engine_pass_resume(struct engine_pass_call *c);

#endif
