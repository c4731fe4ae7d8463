/* Parses addresses of upstreams (url.h): http, https, unix sockets. All parts are slices of the
 * text. What could be read in two ways (user names, queries, odd bytes) is refused. */

#include "common/net/url.h"

enum { HOST_MAX = 253 };

/* Cuts the host off the text. The rest begins with the colon. */
static const char *cut_host(struct str *text, struct str *ret_host)
{
    bool v6 = str_starts(*text, STR("["));
    size_t end = str_find(*text, v6 ? STR("]") : STR(":"), 0);

    if (v6 && end == SIZE_MAX)
        return "the address has no closing ]";
    *ret_host = str_sub(*text, v6, end == SIZE_MAX ? end : end - v6);
    *text = str_sub(*text, end == SIZE_MAX ? end : end + v6, text->len);
    if (text->len > 0 && text->p[0] != ':')
        return "the address has text after its closing ]";
    return ret_host->len > 0 && ret_host->len <= HOST_MAX ? NULL
                                                          : "the host has not 1 to 253 bytes";
}

const char *url_read_host(struct str text, struct str *ret_host, uint16_t *ret_port)
{
    const char *fault = cut_host(&text, ret_host);
    uint64_t port;

    if (fault || text.len == 0)
        return fault;
    if (str_to_u64(str_sub(text, 1, text.len), UINT16_MAX, &port) != 0 || port == 0)
        return "the port is not 1 to 65535";
    *ret_port = (uint16_t)port;
    return NULL;
}

static int parse_authority(struct str text, struct url *ret, struct err *e)
{
    const char *fault = url_read_host(text, &ret->host, &ret->port);

    ret->authority = text;
    return fault ? err_set(e, ERR_CONFIG, "%s: \"%.*s\"", fault, (int)text.len, text.p) : 0;
}

/* Reports whether s is printable ASCII, without characters that delimit parts which are not
 * accepted. */
static bool is_clean(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 0x7f || s.p[i] == '@' ||
            s.p[i] == '?' || s.p[i] == '#' || s.p[i] == '\\')
            return false;
    }
    return true;
}

int url_parse(struct str text, struct url *ret, struct err *e)
{
    struct str rest;
    size_t slash;

    *ret = (struct url){.port = 80};
    if (str_starts(text, STR("unix:/"))) {
        *ret = (struct url){.local = true, .host = str_sub(text, 5, text.len)};
        ret->authority = STR("localhost");
        return ret->host.len < 108 ? 0 : err_set(e, ERR_CONFIG, "the socket's path is too long");
    }
    if (str_starts(text, STR("https://"))) {
        ret->tls = true;
        ret->port = 443;
        rest = str_sub(text, 8, text.len);
    } else if (str_starts(text, STR("http://"))) {
        rest = str_sub(text, 7, text.len);
    } else {
        if (is_clean(text)) /* no user name, whose password would be shown */
            return err_set(e, ERR_CONFIG, "\"%.*s\" is not an http://, https:// or unix:/ address",
                           (int)text.len, text.p);
        return err_set(e, ERR_CONFIG, "not an http://, https:// or unix:/ address");
    }
    if (!is_clean(rest))
        return err_set(e, ERR_CONFIG, "user name, query or unusual bytes in the address");
    slash = str_find(rest, STR("/"), 0);
    if (slash != SIZE_MAX) {
        ret->prefix = str_sub(rest, slash, rest.len);
        rest = str_sub(rest, 0, slash);
        while (str_ends(ret->prefix, STR("/")))
            ret->prefix.len--;
    }
    return parse_authority(rest, ret, e);
}
