/* Passes the entry of a settled group from the dispatcher to the sinks. */
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/sink/sink.h"

/* Hands the dispatcher's result of a group to the sinks that take whole groups. */
void admin_group_result(struct service_request *r)
{
    struct buf text = {0}, answer = {0};
    struct err e = {0};
    const struct json *body = control_body(r), *entry = json_get(body, "entry");
    struct str group = json_string(json_get(body, "group"));

    if (!json_is(entry, JSON_OBJECT) || entry->n == 0) {
        (void)err_field(&e, group.p ? "entry" : "group",
                        "a group's id and its entry, an object with a member, are needed");
        goto out;
    }
    json_write(&text, entry);
    (void)sinks_give_group(r->service->sinks, group, buf_str(&text), &e);
out:
    if (e.kind != ERR_NONE) {
        respond_error(r, NULL, &e);
    } else {
        buf_puts(&answer, "{\"status\":\"ok\"}");
        respond_json(r, &answer);
    }
    buf_done(&text);
    buf_done(&answer);
}
