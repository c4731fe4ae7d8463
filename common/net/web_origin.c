#include "common/net/web_origin.h"

#include <arpa/inet.h>
#include <string.h>

const char *web_host_parse(struct str text, struct web_url *ret)
{
    char plain[WEB_HOST_MAX + 8]; /* the host, a colon, a port */
    bool bracketed = text.len > 0 && text.p[0] == '[';
    size_t colon = bracketed ? SIZE_MAX : str_find(text, STR(":"), 0);
    size_t host_len = colon == SIZE_MAX ? text.len : colon, n = 0;

    ret->tls = false;
    if (text.len > 1 && text.p[text.len - 1] == ':')
        text.len--;
    if (bracketed || host_len < 2 || text.p[host_len - 1] != '.')
        return web_authority_parse(text, ret);
    if (text.len >= sizeof(plain))
        return "it is too long";
    for (size_t i = 0; i < text.len; i++) {
        if (i != host_len - 1)
            plain[n++] = text.p[i];
    }
    return web_authority_parse(str_of(plain, n), ret);
}

bool web_host_is_local(const struct web_url *u)
{
    struct str name = str_cstr(u->host);
    uint8_t address[4];

    return u->bracketed || inet_pton(AF_INET, u->host, address) == 1 ||
           str_eq_c(name, "localhost") || str_ends(name, STR(".localhost"));
}

/* Takes the next entry off a comma list, without blanks around it. Returns false at the end. */
static bool next_entry(struct str *list, struct str *ret)
{
    *ret = str_trim(str_cut(list, ','));
    return ret->p != NULL;
}

/* Returns NULL, or what is wrong with the entry. */
static const char *parse_entry(struct str entry, struct web_url *ret, bool *ret_below)
{
    *ret_below = str_starts(entry, STR("*."));
    return web_host_parse(str_sub(entry, *ret_below ? 2 : 0, SIZE_MAX), ret);
}

int web_hosts_check(struct str list, struct err *e)
{
    struct str entry;

    while (next_entry(&list, &entry)) {
        struct web_url u;
        bool below;
        const char *why = parse_entry(entry, &u, &below);

        if (why)
            return err_set(e, ERR_CONFIG, "\"%.*s\" is not HOST, HOST:PORT or *.HOST: %s",
                           (int)MIN_OF(entry.len, 100), entry.p, why);
    }
    return 0;
}

bool web_hosts_has(struct str list, const struct web_url *u)
{
    struct str entry, host = str_cstr(u->host);

    while (next_entry(&list, &entry)) {
        struct web_url want;
        struct str name;
        bool below;

        if (parse_entry(entry, &want, &below) || (want.port && want.port != web_url_port(u)))
            continue;
        name = str_cstr(want.host);
        if (!below && str_eq(host, name) && want.bracketed == u->bracketed)
            return true;
        if (below && host.len > name.len && str_ends(host, name) &&
            host.p[host.len - name.len - 1] == '.')
            return true;
    }
    return false;
}

bool web_origin_parse(struct str text, struct web_url *ret)
{
    bool tls = str_starts(text, STR("https://"));

    if ((!tls && !str_starts(text, STR("http://"))) ||
        web_host_parse(str_sub(text, tls ? 8 : 7, SIZE_MAX), ret))
        return false;
    ret->tls = tls;
    ret->port = web_url_port(ret);
    return true;
}

/* A Host without a port has the port of the origin's scheme. */
bool web_origin_is(const struct web_url *origin, struct str hosts)
{
    struct str entry;

    while (next_entry(&hosts, &entry)) {
        struct web_url host;

        if (web_host_parse(entry, &host))
            continue;
        host.tls = origin->tls;
        if (web_url_port(&host) == origin->port && host.bracketed == origin->bracketed &&
            strcmp(host.host, origin->host) == 0)
            return true;
    }
    return false;
}
