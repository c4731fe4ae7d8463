/*
 * Counts the users of one reading of the runner file. The last release may come from a callback of
 * an HTTP client that the edition owns. So a task of the loop frees the edition after that callback
 * has returned. After the loop's end no task runs: edition_close frees at once.
 */
#include "runner/edition.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/url.h"

static void edition_free(struct edition *d)
{
    for (size_t i = 0; d->ways && i < d->roster.n; i++) {
        struct service_way *w = &d->ways[i];

        if (w->client)
            http_client_free(w->client);
        if (w->canceller)
            http_client_free(w->canceller);
        free(w->path);
        free(w->cancel_path);
    }
    free(d->ways);
    roster_done(&d->roster);
    free(d);
}

/* Makes a client for scheme and host of the URL. Returns the path. */
static int open_way(struct loop *l, const char *url, const char *ca_file, struct http_client **ret,
                    char **ret_path, struct err *e)
{
    struct http_client_options o = {.ca_file = ca_file, .max_idle = 256};
    struct buf base = {0};
    struct url u;
    int rc;

    if (url_parse(str_cstr(url), &u, e))
        return -1;
    buf_printf(&base, "%s://%.*s%c", u.tls ? "https" : "http", (int)u.authority.len, u.authority.p,
               0);
    rc = http_client_new(l, base.p, &o, ret, e);
    if (rc == 0)
        *ret_path = u.prefix.len > 0 ? mem_strndup(u.prefix.p, u.prefix.len) : mem_strdup("/");
    buf_done(&base);
    return rc;
}

struct edition *edition_new(struct loop *l, struct roster *roster, const char *ca_file,
                            struct err *e)
{
    struct edition *d = mem_zalloc(sizeof(*d));

    d->loop = l;
    d->roster = *roster;
    *roster = (struct roster){0};
    d->users = 1;
    d->ways = mem_calloc(d->roster.n, sizeof(*d->ways));
    for (size_t i = 0; i < d->roster.n; i++) {
        const struct roster_runner *p = &d->roster.at[i];
        struct service_way *w = &d->ways[i];

        if ((p->http && open_way(l, p->http, ca_file, &w->client, &w->path, e)) ||
            (p->cancel && open_way(l, p->cancel, ca_file, &w->canceller, &w->cancel_path, e))) {
            edition_free(d);
            return NULL;
        }
    }
    return d;
}

struct edition *edition_keep(struct edition *d)
{
    d->users++;
    return d;
}

void edition_close(struct edition *d)
{
    if (!d || --d->users > 0)
        return;
    loop_task_cancel(d->loop, &d->unused);
    edition_free(d);
}

static void on_unused(struct loop_task *t)
{
    edition_free(CONTAINER_OF(t, struct edition, unused));
}

void edition_drop(struct edition *d)
{
    if (d && --d->users == 0)
        loop_task_post(d->loop, &d->unused, on_unused);
}
