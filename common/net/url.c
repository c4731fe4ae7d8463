/* Parses addresses of upstreams (url.h): http, https, unix sockets. All parts are slices of the
 * text. What could be read in two ways (user names, queries, odd bytes) is refused. */

#include "common/net/url.h"

/* Parses a port from 1 to 65535. */
static int parse_port(struct str text, struct url *ret, struct err *e)
{
    uint64_t port;

    if (str_to_u64(text, 65535, &port) < 0 || port == 0)
        return err_set(e, ERR_CONFIG, "bad port \"%.*s\"", (int)text.len, text.p);
    ret->port = (uint16_t)port;
    return 0;
}

/* Parses host, host:port, [v6] or [v6]:port. */
static int parse_authority(struct str text, struct url *ret, struct err *e)
{
    bool v6 = text.len > 0 && text.p[0] == '[';
    size_t end = v6 ? str_find(text, STR("]"), 0) : str_find(text, STR(":"), 0);

    ret->authority = text;
    if (v6) {
        if (end == SIZE_MAX)
            return err_set(e, ERR_CONFIG, "no \"]\" after the address");
        ret->host = str_sub(text, 1, end - 1);
        end++;
    } else {
        end = end == SIZE_MAX ? text.len : end;
        ret->host = str_sub(text, 0, end);
    }
    if (ret->host.len == 0 || ret->host.len > 253)
        return err_set(e, ERR_CONFIG, "no host");
    if (end == text.len)
        return 0;
    if (text.p[end] != ':')
        return err_set(e, ERR_CONFIG, "text after the address");
    return parse_port(str_sub(text, end + 1, text.len), ret, e);
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
