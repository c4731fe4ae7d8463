/* GET /sessions/{id}, with ?records=1 also the record of every call. Each call's prompt is written
 * in full, so the records grow with the square of the session's length; without them the state
 * grows with the answers. */
#include "common/codec/query.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/session.h"

MAY_PAUSE static int telling_pause(void *answering, struct err *e)
{
    return answering_flow(answering, e);
}

static void write_session(struct answering *a, void *telling)
{
    struct session_telling t = *(const struct session_telling *)telling;
    struct err e = {0};

    session_pin(t.session);
    t.out = json_out_to(&a->out);
    t.ctx = a;
    if (session_tell(&t, &e) == 0)
        answering_end(a);
    else
        answering_fail(a, "a session's state cannot be told", &e);
    session_unpin(a->request.service->calls.store, t.session);
}

void state_send(struct service_request *r, struct session *s, bool records)
{
    answering_start(
        r, write_session,
        &(struct session_telling){.session = s, .records = records, .flow = telling_pause});
}

/* With ?records=1 also sends each call's record. */
void control_state(struct service_request *r)
{
    struct arena a = {0};
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct str records = query_get(&a, exchange_query(r->x), "records");
    bool with = records.p && !str_eq_c(records, "0") && !str_eq_c(records, "off") &&
                !str_eq_c(records, "false");

    if (s)
        state_send(r, s, with);
    else
        respond_error(r, NULL, &e);
    arena_done(&a);
}
