/* Parses the operator's lists once (web_rules.h), and checks every URL and address. */

#include "common/net/web_rules.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/net/public_address.h"
#include "common/net/web_url.h"

struct web_host {
    char name[WEB_HOST_MAX];
    bool any, below; /* every host; the names below `name` */
    bool plain;      /* http is allowed, too */
    uint16_t port;   /* 0: the scheme's */
};

struct web_rules {
    VEC(struct web_host) hosts;
    VEC(struct address_net) nets;
};

/* --- parsing the lists --- */

static int bad_host(struct str text, const char *why, struct err *e)
{
    return err_set(e, ERR_CONFIG, "media-fetch \"%.*s\": %s", (int)text.len, text.p, why);
}

static int add_host(struct web_rules *r, struct str text, struct err *e)
{
    struct web_host h = {0};
    struct str rest = text;
    struct web_url u;
    const char *why;

    h.plain = str_starts(text, STR("http://"));
    if (h.plain)
        rest = str_sub(text, 7, text.len);
    else if (str_starts(text, STR("https://")))
        rest = str_sub(text, 8, text.len);
    h.any = str_eq_c(rest, "*") || str_starts(rest, STR("*:"));
    h.below = str_starts(rest, STR("*."));
    if (h.any) /* a name in place of *, so that the port after it can be parsed */
        rest = str_sub(rest, 1, rest.len);
    else if (h.below)
        rest = str_sub(rest, 2, rest.len);
    if (!h.any || rest.len > 0) {
        struct buf full = {0};

        buf_puts(&full, h.any ? "any" : "");
        buf_add_str(&full, rest);
        why = web_authority_parse(buf_str(&full), &u);
        buf_done(&full);
        if (why)
            return bad_host(text, why, e);
        h.port = u.port;
        memcpy(h.name, u.host, sizeof(h.name));
    }
    *vec_push(&r->hosts) = h;
    return 0;
}

static int add_hosts(struct web_rules *r, struct str list, struct err *e)
{
    do {
        if (add_host(r, str_trim(str_cut(&list, ',')), e))
            return -1;
    } while (list.p);
    return 0;
}

static int add_net(struct web_rules *r, const char *text, struct err *e)
{
    struct address_net net;

    if (address_net_parse(str_cstr(text), &net))
        return err_set(e, ERR_CONFIG, "media-fetch-address \"%s\" is not ADDRESS or ADDRESS/BITS",
                       text);
    *vec_push(&r->nets) = net;
    return 0;
}

int web_rules_new(const char *const *hosts, size_t n_hosts, const char *const *nets, size_t n_nets,
                  struct web_rules **ret, struct err *e)
{
    struct web_rules *r = mem_zalloc(sizeof(*r));
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n_hosts; i++)
        rc = add_hosts(r, str_cstr(hosts[i]), e);
    for (size_t i = 0; rc == 0 && i < n_nets; i++)
        rc = add_net(r, nets[i], e);
    if (rc != 0) {
        web_rules_free(r);
        return -1;
    }
    *ret = r;
    return 0;
}

void web_rules_free(struct web_rules *r)
{
    if (!r)
        return;
    vec_done(&r->hosts);
    vec_done(&r->nets);
    free(r);
}

/* --- checks --- */

static bool is_host(const struct web_host *h, struct str host)
{
    struct str name = str_cstr(h->name);

    if (h->any)
        return true;
    if (!h->below)
        return str_eq(host, name);
    return host.len > name.len && str_ends(host, name) && host.p[host.len - name.len - 1] == '.';
}

const char *web_rules_refuse(const struct web_rules *r, const struct web_url *u)
{
    bool known = false;

    for (size_t i = 0; i < r->hosts.n; i++) {
        const struct web_host *h = &r->hosts.at[i];
        uint16_t port = h->port ? h->port : (u->tls ? 443 : 80);

        if (!is_host(h, str_cstr(u->host)))
            continue;
        if ((u->tls || h->plain) && web_url_port(u) == port)
            return NULL;
        known = true;
    }
    return known ? "its host is fetched from by another scheme or port only (--media-fetch)"
                 : "its host is not one that images are fetched from (--media-fetch)";
}

bool web_rules_let(const struct web_rules *r, const struct sockaddr *a)
{
    for (size_t i = 0; i < r->nets.n; i++)
        if (address_net_has(&r->nets.at[i], a))
            return true;
    return address_is_public(a);
}
