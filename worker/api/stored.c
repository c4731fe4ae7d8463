/* GET /v1/responses/{id}: an answer as the session has it, with what its request asked. */
#include "common/base/attrs.h"
#include "common/codec/json_build.h"
#include "worker/api/dispatch.h"
#include "worker/call/told.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/writers.h"
#include "worker/model/model.h"
#include "worker/request/answer_sink.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

/* The response in this session; the error tells an ended session from an unknown id. */
static int find(struct service_request *r, struct str id, struct session_past_response *ret,
                struct err *e)
{
    bool ended = false;
    struct session *s = NULL;

    if (r->id_valid)
        s = session_find(r->service->calls.store, r->id, &ended);
    if (ended)
        return err_set(e, ERR_SESSION_ENDED, "the session has ended");
    if (!s || !session_find_response(s, id, ret) || !ret->message)
        return err_set(e, ERR_NOT_FOUND, "no such response in this session");
    return 0;
}

/* The two texts of responses_asked as one object. */
static const struct json *asked_of(struct arena *a, struct str shared, struct str own)
{
    const struct str texts[] = {shared, own};
    struct json all = json_empty(JSON_OBJECT);
    const struct json *part;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!texts[i].p || json_parse(a, texts[i], &part, NULL) != 0)
            continue;
        for (uint32_t k = 0; k < part->n; k++)
            json_put(a, &all, arena_cstr(a, json_string(&part->members[k].key)),
                     part->members[k].value);
    }
    return json_keep(a, all);
}

/* The answer as the dialect's writer made it the first time, from what the commit kept (told.h). */
static void write(struct arena *a, const struct service_request *r, struct str id,
                  const struct session_past_response *past, struct buf *out)
{
    const struct json *asked;
    struct told told;
    struct answer_head head = {.session_id = r->id, .response_id = id};
    struct finished_answer answer = {.finish_reason = past->finish_reason,
                                     .message = past->message};
    struct str model = str_cstr(model_info(r->service->calls.model)->name);

    (void)told_read(past->told, &told);
    head.created_s = told.created_s;
    head.usage = (struct call_usage){
        .prompt_tokens = past->prompt_tokens,
        .cached_tokens = told.cached_tokens,
        .completion_tokens = past->completion_tokens,
        .reasoning_tokens = told.reasoning_tokens,
    };
    asked = asked_of(a, past->asked, told.asked);
    if (json_string(json_get(asked, "model")).len)
        model = json_string(json_get(asked, "model"));
    responses_write_stored(a, &head, &answer, asked, model, out);
}

/* The session's content is in memory: dispatch has seen to that. */
void stored_get(struct service_request *r, struct str id)
{
    struct arena a = {0};
    struct buf body = {0};
    struct err e = {0};
    struct session_past_response past = {0};
    struct str bare = response_bare_id(id);

    if (find(r, bare, &past, &e)) {
        respond_error(r, &dialect_responses, &e);
    } else {
        write(&a, r, bare, &past, &body);
        respond_json(r, &body);
    }
    buf_done(&body);
    arena_done(&a);
}
