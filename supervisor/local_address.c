/* Replaces 0.0.0.0 and [::], on which a program can listen but to which it cannot connect
 * (local_address.h). */
#include "supervisor/local_address.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/proc/config.h"
#include "common/proc/gateway_client.h"

void local_address_add(const char *listen, struct buf *out)
{
    static const char *const all[][2] = {
        {":", "127.0.0.1:"}, {"0.0.0.0:", "127.0.0.1:"}, {"[::]:", "[::1]:"}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        size_t n = strlen(all[i][0]);

        if (strncmp(listen, all[i][0], n) == 0) {
            buf_printf(out, "%s%s", all[i][1], listen + n);
            return;
        }
    }
    buf_puts(out, listen);
}

void local_address_use(const struct config *c, struct gateway_client_options *o, struct buf *url)
{
    buf_puts(url, c->listen_tls ? "https://" : "http://");
    local_address_add(c->listen_at, url);
    buf_add_c(url, 0);
    o->url = url->p;
    if (!o->ca_file && c->listen_tls) {
        o->ca_file = c->tls_certificate;
        o->pinned = true;
    }
}
