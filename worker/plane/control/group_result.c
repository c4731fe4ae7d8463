/* Passes the entry of a settled group from the dispatcher to the sinks. */
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/sink/sink.h"

enum { LOOK_MS = 20, LOOK_MAX_MS = 1000 };

/* Answers when every sink has the entry: in a fleet the spool may be lost with its node. */
MAY_PAUSE static void answer_given(struct answering *a, void *ctx)
{
    const struct service *s = a->request.service;
    struct buf name = *(struct buf *)ctx;
    struct err e = {0};
    int rc = 0;

    for (uint64_t ms = LOOK_MS;
         rc == 0 && s->calls.ledger->copy && sinks_owe(s->sinks, buf_str(&name));
         ms = MIN_OF(2 * ms, (uint64_t)LOOK_MAX_MS))
        rc = control_wait_ms(s->calls.loop, ms, &e);
    buf_done(&name);
    if (rc) {
        answering_fail(a, "the answer to a group's entry broke", &e);
        return;
    }
    buf_puts(&a->out, "{\"status\":\"ok\"}");
    answering_end(a);
}

/* Hands the dispatcher's result of a group to the sinks that take whole groups. */
void admin_group_result(struct service_request *r)
{
    struct buf text = {0}, name = {0};
    struct err e = {0};
    const struct json *body = control_body(r), *entry = json_get(body, "entry");
    struct str group = json_string(json_get(body, "group"));

    if (!json_is(entry, JSON_OBJECT) || entry->n == 0) {
        (void)err_field(&e, group.p ? "entry" : "group",
                        "a group's id and its entry, an object with a member, are needed");
    } else {
        json_write(&text, entry);
        (void)sinks_give_group(r->service->sinks, group, buf_str(&text), &name, &e);
    }
    buf_done(&text);
    if (e.kind == ERR_NONE) {
        answering_start(r, answer_given, &name);
        return;
    }
    respond_error(r, NULL, &e);
    buf_done(&name);
}
