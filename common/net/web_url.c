/*
 * Parses URLs strictly (web_url.h). The host has only one spelling, because it is compared with the
 * operator's list and looked up at the name server. A name whose last label looks like a number is
 * read by some programs as an address in octal, in hexadecimal or with parts left out; here it must
 * be four decimal numbers.
 */
#include "common/net/web_url.h"

#include <arpa/inet.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/net/url.h"

enum { LABEL_MAX = 63 };

static bool starts_nocase(struct str text, struct str head)
{
    return str_eq_nocase(str_sub(text, 0, head.len), head);
}

/* Whether it says that it is one. */
static bool web_url_is(struct str text)
{
    return starts_nocase(text, STR("http://")) || starts_nocase(text, STR("https://"));
}

/* --- the host --- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_byte(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

/* Reports whether the host consists of non-empty labels of plain bytes. *ret_last becomes the begin
 * of the last label. */
static bool is_name(const char *host, const char **ret_last)
{
    size_t n = 0;

    *ret_last = host;
    for (const char *p = host; *p; p++) {
        if (*p == '.') {
            if (n == 0)
                return false;
            *ret_last = p + 1;
            n = 0;
        } else if (!is_name_byte(*p) || ++n > LABEL_MAX) {
            return false;
        }
    }
    return n > 0;
}

static bool looks_numeric(const char *label)
{
    if (label[0] == '0' && label[1] == 'x')
        return true;
    while (is_digit(*label))
        label++;
    return *label == 0;
}

static const char *check_host(const struct web_url *u)
{
    uint8_t address[16];
    const char *last;

    if (u->bracketed)
        return inet_pton(AF_INET6, u->host, address) == 1 ? NULL : "its host is no IPv6 address";
    if (!is_name(u->host, &last))
        return "its host is no name";
    if (looks_numeric(last) && inet_pton(AF_INET, u->host, address) != 1)
        return "its host is a number that is no plain IPv4 address";
    return NULL;
}

static bool copy_host(struct str host, struct web_url *u)
{
    if (host.len == 0 || host.len >= sizeof(u->host) || memchr(host.p, 0, host.len))
        return false;
    for (size_t i = 0; i < host.len; i++)
        u->host[i] = (char)(host.p[i] >= 'A' && host.p[i] <= 'Z' ? host.p[i] + 32 : host.p[i]);
    u->host[host.len] = 0;
    return true;
}

const char *web_authority_parse(struct str text, struct web_url *u)
{
    struct str host;
    const char *fault;

    u->authority = text;
    u->bracketed = str_starts(text, STR("["));
    u->port = 0;
    fault = url_read_host(text, &host, &u->port);
    if (fault)
        return fault;
    if (!copy_host(host, u))
        return "it has no host, or one that is too long";
    return check_host(u);
}

/* --- whole URLs --- */

static bool is_printable(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.p[i] <= ' ' || (unsigned char)text.p[i] >= 0x7f ||
            text.p[i] == '\\')
            return false;
    return true;
}

static size_t first_of(struct str text, const char *set)
{
    size_t i = 0;

    while (i < text.len && !strchr(set, text.p[i]))
        i++;
    return i;
}

const char *web_url_parse(struct str text, struct web_url *ret)
{
    struct str rest;
    size_t end;

    *ret = (struct web_url){0};
    if (!web_url_is(text))
        return "it is no http or https address";
    if (text.len > WEB_URL_MAX)
        return "it is too long";
    if (!is_printable(text))
        return "it has blanks, backslashes or bytes that are not ASCII";
    ret->tls = starts_nocase(text, STR("https:"));
    rest = str_sub(text, ret->tls ? 8 : 7, text.len);
    rest = str_sub(rest, 0, first_of(rest, "#"));
    end = first_of(rest, "/?");
    ret->target = str_sub(rest, end, rest.len);
    if (str_find(str_sub(rest, 0, end), STR("@"), 0) != SIZE_MAX)
        return "it has a user name";
    return web_authority_parse(str_sub(rest, 0, end), ret);
}

void web_url_show(struct str url, struct buf *ret)
{
    struct str bare = str_sub(url, 0, first_of(url, "?#"));
    size_t slashes = str_find(bare, STR("//"), 0), from = ret->len, most;
    size_t host = slashes == SIZE_MAX ? 0 : slashes + 2;
    size_t name = host + first_of(str_sub(bare, host, bare.len), "/");

    while (name > host && bare.p[name - 1] != '@')
        name--;
    buf_add_str(ret, str_sub(bare, 0, host));
    buf_add_str(ret, str_sub(bare, name, bare.len));
    most = utf8_valid_len(str_sub(buf_str(ret), from, WEB_SHOWN_MAX));
    if (ret->len - from > most) {
        ret->len = from + most;
        buf_puts(ret, "...");
    }
}

uint16_t web_url_port(const struct web_url *u)
{
    if (u->port)
        return u->port;
    return u->tls ? 443 : 80;
}

/* --- redirections --- */

/* Returns the folder of the path or, for a location that is only a query, the path. */
static struct str base_of(const struct web_url *u, struct str location)
{
    struct str path = str_sub(u->target, 0, first_of(u->target, "?"));

    if (location.len == 0 || location.p[0] == '?' || location.p[0] == '#')
        return path;
    while (path.len > 0 && path.p[path.len - 1] != '/')
        path.len--;
    return path.len > 0 ? path : STR("/");
}

void web_url_join(const struct web_url *u, struct str location, struct buf *ret)
{
    size_t scheme = first_of(location, ":/?#");

    if (scheme < location.len && location.p[scheme] == ':') {
        buf_add_str(ret, location);
        return;
    }
    buf_puts(ret, u->tls ? "https:" : "http:");
    if (!str_starts(location, STR("//"))) {
        buf_puts(ret, "//");
        buf_add_str(ret, u->authority);
        if (!str_starts(location, STR("/")))
            buf_add_str(ret, base_of(u, location));
    }
    buf_add_str(ret, location);
}
