/* `rollgate nginx-config`: writes an nginx site for several nodes (nginx_site.h). */
#include <stdio.h>

#include "common/base/buf.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "supervisor/commands.h"
#include "supervisor/nginx_site.h"

/* Refuses values that would end a directive. */
static bool check_site(const struct nginx_site *site)
{
    const struct {
        const char *flag, *value;
    } all[] = {{"--server-name", site->name},
               {"--certificate", site->certificate},
               {"--certificate-key", site->key},
               {"--site-listen", site->listen}};

    bool good = true;

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (nginx_site_is_value(all[i].value))
            continue;
        fprintf(stderr, "%s: \"%s\" cannot stand in an nginx file\n", all[i].flag, all[i].value);
        good = false;
    }
    return good;
}

/* Writes the file to standard output. */
int nginx_command(int argc, char **argv)
{
    struct nginx_site site;
    struct buf out = {0};
    struct config *c;
    bool good;

    site.name = command_line_take_value(&argc, argv, "--server-name", "_");
    site.certificate =
        command_line_take_value(&argc, argv, "--certificate", "/etc/rollgate/tls.crt");
    site.key = command_line_take_value(&argc, argv, "--certificate-key", "/etc/rollgate/tls.key");
    site.listen = command_line_take_value(&argc, argv, "--site-listen", "443");
    good = check_site(&site);
    c = commands_load(argc, argv, COMMANDS_SITE);
    if (!c || !good) {
        config_free(c);
        return 2;
    }
    buf_puts(&out, "# Written by `rollgate nginx-config`: include it inside http { }.\n");
    site.node = c->listen;
    nginx_site_add(c, &site, &out);
    (void)fwrite(out.p, 1, out.len, stdout);
    buf_done(&out);
    config_free(c);
    return 0;
}
