/* The data plane: one HTTP request of a dialect becomes a model call, joins one, or gets a
 * recorded answer again; models and token counts are answered at once.
 *
 * The way of one request:
 *
 *   api_call_handle        by path and method: models, stored answers, a dialect, passthrough
 *     call_read            (api_call_reading.c) body -> chat_request, session found or made
 *       api_call_begin     several prompts: batch.c; else call_begin
 *         api_call_repeats is it a retry? (api_call_repeat.c) joins the running call, replays, or
 *                          waits to know
 *         model_call_start otherwise: the arena with the request moves into the model call
 *   on_head ... on_finish  (api_call_answer.c) the model call's events, through the dialect's
 *                          writer, to the exchange
 *   on_closed              the exchange is over: the api_call is freed
 *
 * The model call lives on its own: a client that leaves only takes its listener off. */
#include <stdlib.h>

#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/dispatch.h"
#include "worker/api/passthrough.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/writers.h"
#include "worker/service/respond.h"

/* The dialect's label in metrics. */
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
    };

    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        if (strcmp(labels[i].name, d->name) == 0)
            return labels[i].label;
    }
    return METRIC_DIALECT_PASSTHROUGH;
}

/* An error with a fixed text, in the dialect's shape. */
static void refuse(struct service_request *r, const struct dialect *d, enum err_kind kind,
                   const char *text)
{
    struct err e = {0};

    (void)err_set(&e, kind, "%s", text);
    respond_error(r, d, &e);
}

/* For requests that are refused before they are read (a wrong key): the path tells the shape. */
void api_call_refuse(struct service_request *r, const struct err *e)
{
    const struct dialect *d = dialect_for_path(dialect_path(r->rest));

    r->dialect = d == &dialect_count_tokens ? METRIC_DIALECT_COUNT_TOKENS
                 : d                        ? label_of(d)
                                            : METRIC_DIALECT_PASSTHROUGH;
    respond_error(r, d, e);
}

/* A path that no dialect has goes to the engine as it is (passthrough), if that is allowed. */
void api_call_handle(struct service_request *r)
{
    struct str path = dialect_path(r->rest);
    bool get = str_eq_c(exchange_method(r->x), "GET");
    bool post = str_eq_c(exchange_method(r->x), "POST");
    struct str stored = STR("/responses/");
    const struct dialect *d = dialect_for_path(path);
    bool count = d == &dialect_count_tokens;

    if (get && (str_eq_c(path, "/models") || str_starts(path, STR("/models/")))) {
        r->dialect = METRIC_DIALECT_MODELS;
        models_get(r, str_sub(path, strlen("/models"), SIZE_MAX));
    } else if (get && str_starts(path, stored)) {
        r->dialect = METRIC_DIALECT_RESPONSES;
        stored_get(r, str_sub(path, stored.len, SIZE_MAX));
    } else if (d && post) {
        r->dialect = count ? METRIC_DIALECT_COUNT_TOKENS : label_of(d);
        call_read(r, d, count ? api_call_count : api_call_begin);
    } else if (d && get && exchange_header(r->x, "upgrade").p) {
        refuse(r, d, ERR_UPGRADE, "this path does not speak websockets");
    } else if (d) {
        exchange_set_header(r->x, "Allow", STR("POST"));
        refuse(r, d, ERR_METHOD, "the path has no such method");
    } else {
        r->dialect = METRIC_DIALECT_PASSTHROUGH;
        passthrough_serve(r);
    }
}
