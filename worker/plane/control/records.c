/* GET /sessions/{id}, with ?records=1 also the record of every call. Each call's prompt is written
 * in full, so the records grow with the square of the session's length; without them the state
 * grows with the answers. */
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/session/record/telling.h"
#include "worker/session/store/session.h"

MAY_PAUSE static int telling_pause(void *answering, struct err *e)
{
    return answering_flow(answering, e);
}

MAY_PAUSE static void write_session(struct answering *a, struct session *s, bool records)
{
    struct session_telling t = {.session = s,
                                .records = records,
                                .out = json_out_to(&a->out),
                                .flow = telling_pause,
                                .ctx = a};
    struct err e = {0};

    if (session_tell(&t, &e) == 0)
        answering_end(a);
    else
        answering_fail(a, "a session's state cannot be told", &e);
    session_unpin(a->request.service->calls.store, s);
}

static void write_state(struct answering *a, void *session)
{
    write_session(a, session, false);
}

static void write_records(struct answering *a, void *session)
{
    write_session(a, session, true);
}

void state_send(struct service_request *r, struct session *s, bool records)
{
    session_pin(s);
    answering_start(r, records ? write_records : write_state, s);
}
