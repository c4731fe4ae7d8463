/* fuzz: rg_common */
/* A URL, and where it redirects to: what is taken has one plain host, and is taken again when it is
 * written anew from its parts. */
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/net/web_url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct web_url *u)
{
    struct web_url again;
    struct buf text = {0};

    CHECK(u->host[0] && strlen(u->host) < WEB_HOST_MAX && !strpbrk(u->host, "/?#@\\% "));
    buf_printf(&text, u->bracketed ? "%s://[%s]:%u" : "%s://%s:%u", u->tls ? "https" : "http",
               u->host, web_url_port(u));
    CHECK(!web_url_parse(buf_str(&text), &again));
    CHECK(strcmp(again.host, u->host) == 0 && again.port == web_url_port(u) && again.tls == u->tls);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_of((const char *)data, size);
    size_t cut = MIN_OF(str_find(all, STR("\n"), 0), size);
    struct buf next = {0};
    struct web_url u, to;

    if (web_url_parse(str_sub(all, 0, cut), &u))
        return 0;
    check(&u);
    web_url_join(&u, str_sub(all, cut + 1, size), &next);
    if (!web_url_parse(buf_str(&next), &to))
        check(&to);
    buf_done(&next);
    return 0;
}
