/* POST /sessions/{id}/deliver: promises a finalized session to the sinks. */
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/exporting_options.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"
#include "worker/sink/sink.h"

/* Delivers a rollout's session to the sinks. The dispatcher requests this when an attempt counts. A
 * repeated request has no further effect. */
static int send_to_sinks(const struct service *a, struct session *s, const struct export_options *o,
                         struct err *e)
{
    struct str given;

    if (session_phase(s) != SESSION_FINALIZED)
        return err_set(e, ERR_STATE_CONFLICT, "the session %.*s is not finalized",
                       (int)session_id(s).len, session_id(s).p);
    if (!a->sinks || session_sink(s, &given) != SESSION_SINK_NONE)
        return 0;
    if (sinks_promise(a->sinks, s, o, e))
        return -1;
    sinks_take(a->sinks, session_id(s));
    return 0;
}

/* Answers when the promise is durable, without waiting for the sinks. In a fleet `waits` is true
 * while one of them does not have the session. */
MAY_PAUSE static void answer_promised(struct answering *a, void *ctx)
{
    struct json_out o = json_out_to(&a->out);
    struct err e = {0};

    (void)ctx;
    if (control_await_durable(a, &e)) {
        answering_fail(a, "the answer to a delivery broke", &e);
        return;
    }
    json_out_obj(&o);
    json_out_member_cstr(&o, "status", "ok");
    if (a->request.service->calls.ledger->copy)
        json_out_member_bool(&o, "waits", sinks_owe(a->request.service->sinks, a->request.id));
    json_out_end_obj(&o);
    answering_end(a);
}

void control_deliver(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct export_options options;
    const struct json *score;
    struct arena arena = {0};

    if (s && exporting_options(r, EXPORT_NONE, &arena, &options, &score, &e) == 0)
        (void)send_to_sinks(r->service, s, &options, &e);
    arena_done(&arena);
    if (e.kind != ERR_NONE)
        respond_error(r, NULL, &e);
    else
        answering_start(r, answer_promised, NULL);
}
