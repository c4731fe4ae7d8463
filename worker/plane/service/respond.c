/*
 * Sends every answer of the control plane and every error, so that all are counted once, with
 * dialect and status. An error that allows a retry says so in headers (x-should-retry, Retry-After)
 * and by its status, because SDKs read only one of them. For ended sessions and used budgets the
 * status is --ended-status instead of 410, for clients that repeat a call after 410.
 */
#include "worker/plane/service/respond.h"

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "common/codec/surrogates.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/writers.h"
#include "worker/plane/service/service.h"

/* --- errors in the form of miles' session server (--error-body=miles): {"error": TEXT} --- */

/* Returns the text after /sessions/, up to the next slash. */
static struct str id_in(struct str path)
{
    struct str head = STR("/sessions/"), tail = str_sub(path, head.len, SIZE_MAX);

    return str_starts(path, head) ? str_sub(tail, 0, str_find(tail, STR("/"), 0)) : STR("");
}

/* Appends the error body. For a session that is missing or has ended the text is "session not
 * found", with the id in the path. */
static void miles_write_error(const struct err *e, struct str path, struct buf *out)
{
    static const struct str json = STR_LIT("JSON: "), engine = STR_LIT("engine: ");

    struct json_out o = json_out_to(out);
    struct buf text = {0}, whole = {0};

    if (e->kind == ERR_UNKNOWN_SESSION || e->kind == ERR_SESSION_ENDED) {
        struct str id = id_in(path);

        buf_printf(&text, "session not found: session_id=%.*s", (int)id.len, id.p);
    } else if (str_starts(str_cstr(e->text), json)) {
        buf_printf(&text, "invalid JSON body: %s", e->text + json.len);
    } else if (e->kind == ERR_ENGINE_REFUSED && str_starts(str_cstr(e->text), engine)) {
        buf_puts(&text, e->text + engine.len);
    } else {
        buf_puts(&text, e->text);
    }
    surrogates_add_whole(buf_str(&text), &whole);
    json_out_obj(&o);
    json_out_member_str(&o, "error", buf_str(&whole));
    json_out_end_obj(&o);
    buf_done(&text);
    buf_done(&whole);
}

/* --- answers --- */

void respond_count(struct service *a, unsigned dialect, int status)
{
    metrics_count_at(a->calls.page, METRIC_requests, dialect, metrics_status(status), 1);
}

void respond_json(struct service_request *r, const struct buf *body)
{
    respond_count(r->service, r->dialect, 200);
    exchange_reply(r->x, 200, "application/json", buf_str(body));
}

void respond_empty(struct service_request *r, int status)
{
    respond_count(r->service, r->dialect, status);
    exchange_reply(r->x, status, "application/json", STR(""));
}

/* Counts refusals by limits whose checks have no counter of their own. */
static void count_refusal(struct service *a, const struct err *e)
{
    if (e->kind == ERR_MAX_NODES || e->kind == ERR_DRAINING)
        metrics_count_at(a->calls.page, METRIC_refusals,
                         e->kind == ERR_DRAINING ? METRIC_REFUSAL_DRAINING : METRIC_REFUSAL_NODES,
                         0, 1);
}

static const int ended_statuses[] = {
    [ENDED_410] = 410,
    [ENDED_400] = 400,
    [ENDED_404] = 404,
    [ENDED_409] = 409,
};

void respond_error_to(struct service *a, struct exchange *x, const struct dialect *d,
                      unsigned label, const char *request_id, const struct err *e)
{
    struct buf body = {0}, wait = {0};
    struct err shown = *e;
    int status = err_status(e);

    if (e->kind == ERR_SESSION_ENDED || e->kind == ERR_BUDGET)
        status = shown.status = ended_statuses[a->config->ended_status];
    exchange_set_header(x, "x-should-retry", err_retry(e) ? STR("true") : STR("false"));
    buf_add_u64(&wait, e->retry_after_s);
    if (e->retry_after_s > 0)
        exchange_set_header(x, "Retry-After", buf_str(&wait));
    else if (err_retry(e) && (status == 429 || status == 503))
        exchange_set_header(x, "Retry-After", STR("1"));
    if (a->config->error_body == ERROR_BODY_MILES && (!d || d->error == openai_write_error))
        miles_write_error(&shown, exchange_path(x), &body);
    else if (d)
        d->error(&shown, str_cstr(request_id), &body);
    else
        openai_write_error(&shown, str_cstr(request_id), &body);
    respond_count(a, label, status);
    count_refusal(a, e);
    exchange_reply(x, status, "application/json", buf_str(&body));
    buf_done(&body);
    buf_done(&wait);
}

void respond_error(struct service_request *r, const struct dialect *d, const struct err *e)
{
    respond_error_to(r->service, r->x, d, r->dialect, r->request_id, e);
}
