/* fuzz: rg_common */
/* Lines: Host, Origin, a list of allowed hosts. A host that is read is read alike in another case
 * and with a dot after a name; an origin is at home only at a host of its name. */
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/net/web_origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes the host again, in capitals, and reads it. */
static void check_again(const struct web_url *u)
{
    struct buf text = {0};
    struct web_url again;

    buf_printf(&text, u->bracketed ? "[%s]" : "%s.", u->host);
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] >= 'a' && text.p[i] <= 'z')
            text.p[i] = (char)(text.p[i] - 32);
    }
    CHECK(!web_host_parse(buf_str(&text), &again) && strcmp(again.host, u->host) == 0);
    CHECK(web_host_is_local(&again) == web_host_is_local(u));
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_of((const char *)data, size);
    struct str host = str_cut(&rest, '\n'), origin = str_cut(&rest, '\n');
    struct web_url at, from;
    bool is_host = !web_host_parse(host, &at), is_origin = web_origin_parse(origin, &from);

    if (is_host)
        check_again(&at);
    if (is_host && web_hosts_check(rest, NULL) == 0)
        (void)web_hosts_has(rest, &at);
    if (is_origin && web_origin_is(&from, host) && is_host)
        CHECK(strcmp(from.host, at.host) == 0);
    return 0;
}
