#include "router/browser_gate.h"

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/net/http1.h"
#include "common/net/own_names.h"
#include "common/net/web_origin.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/gate.h"
#include "router/hub.h"

enum { LOGGED_PER_SECOND = 1 };

static bool is_allowed(const struct config *c, const struct web_url *u)
{
    for (size_t i = 0; i < c->allowed_hosts.n; i++) {
        if (web_hosts_has(str_cstr(c->allowed_hosts.at[i]), u))
            return true;
    }
    return false;
}

/* Reports whether --listen names this host. */
static bool is_listened(const struct config *c, const struct web_url *u)
{
    struct web_url listen;

    return !web_host_parse(str_cstr(c->listen_at), &listen) && strcmp(listen.host, u->host) == 0;
}

static int refuse_host(const char *host, struct err *e)
{
    return err_set(
        e, ERR_HOST,
        "without keys (--admin-key-file) the Host header must be an IP address, localhost, a "
        "name of this machine or one of --allowed-hosts, not %s%.100s",
        host ? "" : "this", host ? host : "");
}

static int check_host(const struct hub *h, struct str host, struct err *e)
{
    struct web_url u;

    if (web_host_parse(host, &u))
        return refuse_host(NULL, e);
    if (web_host_is_local(&u) || is_allowed(h->config, &u) || is_listened(h->config, &u) ||
        own_names_has(h->own_names, u.host))
        return 0;
    return refuse_host(u.host, e);
}

static int refuse_origin(const char *what, struct err *e)
{
    return err_set(e, ERR_ORIGIN,
                   "without keys (--admin-key-file) pages of other sites may send no requests: %s. "
                   "Name this site in --allowed-hosts if it is yours",
                   what);
}

static int check_origin(const struct hub *h, const struct http1_head *head, struct str origin,
                        struct err *e)
{
    struct web_url u;

    if (web_origin_parse(origin, &u) &&
        (web_origin_is(&u, http1_known(head, HTTP1_HOST)) ||
         web_origin_is(&u, http1_known(head, HTTP1_X_FORWARDED_HOST)) || is_allowed(h->config, &u)))
        return 0;
    return refuse_origin("the Origin header names one", e);
}

static int check_site(const struct hub *h, const struct http1_head *head, struct err *e)
{
    if (head->at[HTTP1_HOST] && check_host(h, http1_known(head, HTTP1_HOST), e))
        return -1;
    if (!head->at[HTTP1_ORIGIN] && !head->at[HTTP1_SEC_FETCH_SITE])
        return 0;
    for (size_t i = 0; i < head->n; i++) {
        struct str value = head->headers[i].value;

        if (head->headers[i].known == HTTP1_ORIGIN && check_origin(h, head, value, e))
            return -1;
        if (head->headers[i].known == HTTP1_SEC_FETCH_SITE &&
            str_eq_nocase(value, STR("cross-site")))
            return refuse_origin("Sec-Fetch-Site is cross-site", e);
    }
    return 0;
}

int browser_gate_check(const struct hub *h, const struct http1_head *head, struct err *e)
{
    static struct log_limit limit;
    unsigned dropped;

    if (h->config->admin_key_file || check_site(h, head, e) == 0)
        return 0;
    metrics_count_at(h->page, METRIC_refusals,
                     e->kind == ERR_HOST ? METRIC_REFUSAL_HOST : METRIC_REFUSAL_ORIGIN, 0, 1);
    metrics_count_at(h->page, METRIC_requests, gate_dialect(head->target),
                     metrics_status(err_status(e)), 1);
    if (log_limit_pass(&limit, LOGGED_PER_SECOND, &dropped))
        log_warn(NULL, "refused a request of another site", LOG_T("reason", e->text),
                 LOG_U("suppressed", dropped));
    return -1;
}

void browser_gate_check_hosts(const struct config *c, struct buf *mistakes)
{
    struct err e;

    for (size_t i = 0; i < c->allowed_hosts.n; i++) {
        if (web_hosts_check(str_cstr(c->allowed_hosts.at[i]), &e) != 0)
            buf_printf(mistakes, "--allowed-hosts: %s\n", e.text);
    }
}
