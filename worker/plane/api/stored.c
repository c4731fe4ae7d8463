/* GET /v1/responses/{id}: an answer as the session has it, with what its request asked. A long one
 * is written by a helper, which has the session's texts meanwhile: they never change, and the
 * session is pinned. */
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/json_build.h"
#include "common/os/task.h"
#include "common/serve/exchange.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/writers.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/call/told.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"
#include "worker/text/request/answer_sink.h"

/* A response, and the data from which it is written. */
struct stored_answer {
    struct service_request request;
    struct session *session;  /* pinned while a helper writes */
    struct str id;            /* id without its prefix */
    struct answering *answer; /* set while a task writes */
    struct session_past_response past;
    struct told told;
    struct buf body;
};

/* Finds the response in this session. The error distinguishes an ended session from an unknown
 * id. */
static int find_stored(struct stored_answer *v, struct err *e)
{
    const struct service_request *r = &v->request;
    bool ended = false;
    struct session *s = NULL;

    if (r->id_valid)
        s = session_find(r->service->calls.store, r->id, &ended);
    if (ended)
        return err_set(e, ERR_SESSION_ENDED, "the session has ended");
    if (!s || !session_find_response(s, v->id, &v->past) || !v->past.message)
        return err_set(e, ERR_NOT_FOUND, "no such response in this session");
    v->session = s;
    (void)told_read(v->past.told, &v->told);
    return 0;
}

/* Joins the echo texts that responses_asked has kept, as one object. */
static const struct json *asked_of(struct arena *a, const struct session_past_response *past,
                                   struct str own)
{
    const struct str texts[] = {past->asked, own};
    struct json all = json_empty(JSON_OBJECT);
    const struct json *part;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (!texts[i].p || json_parse(a, texts[i], &part, NULL) != 0)
            continue;
        for (uint32_t k = 0; k < part->n; k++)
            json_put(a, &all, arena_cstr(a, json_string(&part->members[k].key)),
                     part->members[k].value);
    }
    if (past->instructions.p)
        json_put(a, &all, "instructions", json_make_string(past->instructions));
    return json_keep(a, all);
}

/* Writes the answer like the dialect's writer did the first time, from the data of the commit
 * (told.h). */
static void write_stored(struct stored_answer *v)
{
    const struct session_past_response *past = &v->past;
    const struct service *service = v->request.service;
    struct arena a = {.sum = &v->request.service->calls.request_bytes};
    struct answer_head head = {.session_id = v->request.id,
                               .response_id = v->id,
                               .created_s = v->told.created_s,
                               .usage = {.prompt_tokens = past->prompt_tokens,
                                         .cached_tokens = v->told.cached_tokens,
                                         .completion_tokens = past->completion_tokens,
                                         .reasoning_tokens = v->told.reasoning_tokens}};
    struct finished_answer answer = {.finish_reason = past->finish_reason,
                                     .message = past->message};
    struct str model = str_cstr(model_info(service->calls.model)->name);
    const struct json *asked = asked_of(&a, past, v->told.asked);

    if (json_string(json_get(asked, "model")).len)
        model = json_string(json_get(asked, "model"));
    responses_write_stored(&a, &head, &answer, asked, model, &v->body);
    arena_done(&a);
}

static int write_run(void *ctx, void *tool, struct err *e)
{
    struct stored_answer *v = ctx;

    if (work_note_bytes(&v->answer->body_hash, tool, v->id, e))
        return -1;
    write_stored(v);
    return 0;
}

static void answer_long(struct answering *a, void *ctx)
{
    struct stored_answer *v = ctx;
    struct task_work w = {.fn = write_run, .ctx = v, .lane = a->request.id};
    struct err e = {0};

    v->request = a->request;
    v->answer = a;
    a->errors = &dialect_responses;
    if (task_offload(&w, &e) || /* further bytes may wait by now */
        service_unread_room(v->request.service, v->request.x, v->request.id, &e)) {
        answering_fail(a, "a stored answer broke", &e);
    } else {
        a->out = v->body;
        v->body = (struct buf){0};
        answering_end(a);
    }
    session_unpin(v->request.service->calls.store, v->session);
    buf_done(&v->body);
    free(v);
}

static void start_long(const struct stored_answer *found)
{
    struct stored_answer *v = mem_zalloc(sizeof(*v) + found->id.len);

    *v = *found;
    v->id = str_of((char *)(v + 1), found->id.len);
    memcpy(v + 1, found->id.p, found->id.len);
    session_pin(v->session);
    answering_start(&found->request, answer_long, v);
}

/* Reports whether parsing and writing are short, with the limits for a body. */
static bool is_short(const struct stored_answer *v)
{
    size_t bytes = v->past.asked.len + v->past.instructions.len + v->told.asked.len;

    return bytes + json_text_bytes(v->past.message, WORK_JSON_MAX) <= WORK_JSON_MAX;
}

/* The session's content is in memory, because dispatch has read it back. */
void stored_get(struct service_request *r, struct str id)
{
    struct stored_answer v = {.request = *r, .id = response_bare_id(id)};
    struct err e = {0};

    if (find_stored(&v, &e) || service_unread_room(r->service, r->x, r->id, &e)) {
        respond_error(r, &dialect_responses, &e);
        return;
    }
    exchange_account(r->x, r->id);
    if (is_short(&v)) {
        write_stored(&v);
        respond_json(r, &v.body);
        buf_done(&v.body);
    } else {
        start_long(&v);
    }
}
