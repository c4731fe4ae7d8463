/* The data plane: one HTTP request of a dialect becomes a model call, joins one, or gets a recorded
 * answer again; models and token counts are answered at once.
 *
 * The path of one request:
 *
 *   api_call_handle        by path and method: models, stored answers, a dialect, passthrough;
 *                          refused if the agent's session has ended
 *     call_read            (api_call_reading.c) a task: body -> chat_request, session found or made
 *       api_call_begin     several prompts: batch.c; else call_begin
 *         api_call_repeats is it a retry? (api_call_repeat.c) joins the running call, replays, or
 *                          waits to know
 *         model_call_start otherwise: the arena with the request moves into the model call
 *   on_head ... on_finish  (api_call_answer.c) the model call's events, through the dialect's
 *                          writer, to the exchange
 *   on_closed              (api_call_task.c) the exchange is over: the api_call is freed
 *
 * The model call is independent: a client that leaves only removes its listener. With
 * --on-disconnect finish a request becomes a model call even if its client leaves: until then the
 * leaving is not reported (exchange_finish, in dispatch.c; api_call_heed). */
#include <stdlib.h>

#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/writers.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/api/passthrough.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"

/* --- token counts --- */

void api_call_count(struct api_call *c)
{
    struct call_input in = api_call_input(c);
    struct buf body = {0};
    struct err e = {0};
    size_t n;
    int rc = call_count_tokens(&c->service->calls, &c->arena, &in, &n, &e);

    if (c->left || e.kind == ERR_CANCELLED)
        return;
    api_call_free_arena(c);
    if (rc) {
        respond_error(&c->request, c->dialect, &e);
        return;
    }
    anthropic_write_count(n, &body);
    respond_json(&c->request, &body);
    buf_done(&body);
}

/* --- entry --- */

/* Returns the metrics label of the path's dialect, or of none (NULL). */
static unsigned label_of(const struct dialect *d)
{
    static const struct {
        const char *name;
        unsigned label;
    } labels[] = {
        {"chat", METRIC_DIALECT_CHAT},
        {"responses", METRIC_DIALECT_RESPONSES},
        {"messages", METRIC_DIALECT_MESSAGES},
        {"completions", METRIC_DIALECT_COMPLETIONS},
        {"count_tokens", METRIC_DIALECT_COUNT_TOKENS},
    };

    if (!d)
        return METRIC_DIALECT_PASSTHROUGH;
    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        if (strcmp(labels[i].name, d->name) == 0)
            return labels[i].label;
    }
    return METRIC_DIALECT_PASSTHROUGH;
}

bool api_call_is_model(struct str method, struct str rest)
{
    const struct dialect *d = dialect_for_path(dialect_path(rest));

    return str_eq_c(method, "POST") && d && d != &dialect_count_tokens;
}

/* Answers an error with a fixed text, in the dialect's form. */
static void refuse_call(struct service_request *r, const struct dialect *d, enum err_kind kind,
                        const char *text)
{
    struct err e = {0};

    (void)err_set(&e, kind, "%s", text);
    respond_error(r, d, &e);
}

/* Refuses a request before it is read (a wrong key). The path decides the error's form. */
void api_call_refuse(struct service_request *r, const struct err *e)
{
    const struct dialect *d = dialect_for_path(dialect_path(r->rest));

    r->dialect = label_of(d);
    respond_error(r, d, e);
}

/* Reports whether the key's session has ended: all keys but an admin's are for one session, and
 * useless when that has ended. */
static bool names_nothing(const struct service_request *r)
{
    bool ended;

    if (!keys_required(r->service->keys) || r->admin)
        return false;
    return !r->id_valid || !session_find(r->service->calls.store, r->id, &ended);
}

/* A path that no dialect has is forwarded to the engine (passthrough), if that is allowed. */
void api_call_handle(struct service_request *r)
{
    static const struct str all = STR_LIT("/models"), kept = STR_LIT("/responses/");
    struct str path = dialect_path(r->rest);
    bool get = str_eq_c(exchange_method(r->x), "GET");
    const struct dialect *d = dialect_for_path(path);
    bool call = d && str_eq_c(exchange_method(r->x), "POST");
    bool models = (get || str_eq_c(exchange_method(r->x), "HEAD")) &&
                  (str_eq(path, all) || str_starts(path, STR("/models/")));
    bool stored = get && str_starts(path, kept);

    r->dialect = models ? METRIC_DIALECT_MODELS : stored ? METRIC_DIALECT_RESPONSES : label_of(d);
    /* a model call's body must be freed, so call_read refuses it */
    if (!call && names_nothing(r)) {
        refuse_call(r, d, ERR_SESSION_ENDED, "the session has ended");
    } else if (models) {
        models_get(r, str_sub(path, all.len, SIZE_MAX));
    } else if (stored) {
        stored_get(r, str_sub(path, kept.len, SIZE_MAX));
    } else if (call) {
        call_read(r, d, d == &dialect_count_tokens);
    } else if (d && get && exchange_header(r->x, "upgrade").p) {
        refuse_call(r, d, ERR_UPGRADE, "this path does not speak websockets");
    } else if (d) {
        exchange_set_header(r->x, "Allow", STR("POST"));
        refuse_call(r, d, ERR_METHOD, "the path has no such method");
    } else {
        passthrough_serve(r);
    }
}
