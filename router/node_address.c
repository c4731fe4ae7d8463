/* Addresses of the nodes of a fleet (node_address.h). */
#include "router/node_address.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/net/url.h"

void node_address_done(struct node_address *a)
{
    if (a->text)
        resolve_done(&a->names);
    free(a->text);
    *a = (struct node_address){0};
}

/* Begins to resolve a text. One that is no address leaves no addresses. */
static void begin_text(struct node_address *a, struct loop *l, const char *text)
{
    struct buf all = {0};
    struct url url;
    struct err e;
    char *host;

    node_address_done(a);
    a->text = mem_strdup(text);
    buf_printf(&all, "http://%s", text);
    if (url_parse(buf_str(&all), &url, &e) == 0) {
        host = mem_strndup(url.host.p, url.host.len);
        resolve_begin(&a->names, l, host, url.port);
        free(host);
    }
    buf_done(&all);
}

const struct resolve_address *node_address_find(struct node_address *a, struct loop *l,
                                                const char *text)
{
    if (!a->text || strcmp(a->text, text) != 0)
        begin_text(a, l, text);
    if (a->names.n > 0)
        return &a->names.at[a->turn % a->names.n];
    resolve_again(&a->names);
    return NULL;
}

void node_address_failed(struct node_address *a)
{
    a->turn++;
    resolve_again(&a->names);
}
