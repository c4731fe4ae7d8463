#include "worker/service/respond.h"

#include "worker/dialect/dialect.h"

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

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 409:
        return "conflict_error";
    case 429:
        return "rate_limit_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static void openai_error(const struct err *e, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_key(&o, "error");
    json_out_obj(&o);
    json_out_key(&o, "message");
    json_out_cstr(&o, e->text);
    json_out_key(&o, "type");
    json_out_cstr(&o, error_type(err_status(e)));
    json_out_key(&o, "code");
    json_out_cstr(&o, err_code(e));
    json_out_key(&o, "param");
    json_out_cstr(&o, e->param[0] ? e->param : NULL);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

/* Limits that are refused in places without counters. */
static void count_refusal(struct service *a, const struct err *e)
{
    if (e->kind == ERR_MAX_NODES || e->kind == ERR_DRAINING)
        metrics_count_at(a->calls.page, METRIC_refusals,
                         e->kind == ERR_DRAINING ? METRIC_REFUSAL_DRAINING : METRIC_REFUSAL_NODES,
                         0, 1);
}

void respond_error_to(struct service *a, struct exchange *x, const struct dialect *d,
                      unsigned label, const char *request_id, const struct err *e)
{
    struct buf body = {0};
    struct err shown = *e;
    int status = err_status(e);

    if (e->kind == ERR_SESSION_ENDED && a->heritage->config->ended_status == ENDED_400) {
        status = 400;
        shown.status = 400;
    }
    exchange_set_header(x, "x-should-retry", err_retry(e) ? STR("true") : STR("false"));
    if (err_retry(e) && (status == 429 || status == 503))
        exchange_set_header(x, "Retry-After", STR("1"));
    if (d)
        d->error(&shown, str_cstr(request_id), &body);
    else
        openai_error(&shown, &body);
    respond_count(a, label, status);
    count_refusal(a, e);
    exchange_reply(x, status, "application/json", buf_str(&body));
    buf_done(&body);
}

void respond_error(struct service_request *r, const struct dialect *d, const struct err *e)
{
    respond_error_to(r->service, r->x, d, r->dialect, r->request_id, e);
}
