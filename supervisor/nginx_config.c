/* `rollgate nginx-config`: writes an nginx site for several nodes (nginx_site.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "supervisor/commands.h"
#include "supervisor/nginx_site.h"

/* Checks the names of a server: one or several, separated by spaces. */
static bool are_names(const char *text)
{
    char *names = mem_strdup(text), *rest = NULL;
    bool good = *text != 0 && *text != ' ';

    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        good = good && nginx_site_is_value(name);
    free(names);
    return good;
}

/* Refuses values that would end a directive. */
static bool check_site(const struct nginx_site *site)
{
    const struct {
        const char *flag, *value;
    } all[] = {{"--certificate", site->certificate},
               {"--certificate-key", site->key},
               {"--site-listen", site->listen}};

    bool good = are_names(site->name);

    if (!good)
        fprintf(stderr, "--server-name: \"%s\" cannot stand in an nginx file\n", site->name);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (nginx_site_is_value(all[i].value))
            continue;
        fprintf(stderr, "%s: \"%s\" cannot stand in an nginx file\n", all[i].flag, all[i].value);
        good = false;
    }
    return good;
}

/* Checks the addresses of a fleet's nodes: HOST:PORT, separated by commas. */
static bool check_nodes(const struct config *c, const struct nginx_site *site)
{
    const char *at = site->nodes, *end;
    bool good = !at || c->fleet;

    if (!good)
        fprintf(stderr, "--site-nodes: needs --fleet\n");
    for (; good && at; at = *end ? end + 1 : NULL) {
        end = strchrnul(at, ',');
        good = memchr(at, ':', (size_t)(end - at)) && nginx_site_is_value(site->nodes);
        if (!good)
            fprintf(stderr, "--site-nodes: \"%s\" is not HOST:PORT,...\n", site->nodes);
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
    site.nodes = command_line_take_value(&argc, argv, "--site-nodes", NULL);
    good = check_site(&site);
    c = commands_load(argc, argv, COMMANDS_SITE);
    if (c) {
        nginx_site_check(c, &out);
        good = check_nodes(c, &site) && good;
    }
    if (!c || !good || out.len) {
        fprintf(stderr, "%.*s", (int)out.len, out.p ? out.p : "");
        buf_done(&out);
        config_free(c);
        return 2;
    }
    if (c->listen_tls) {
        fprintf(stderr, "--listen: nginx reaches the port by plain HTTP: leave out \",tls\"\n");
        config_free(c);
        return 2;
    }
    buf_puts(&out, "# Written by `rollgate nginx-config`: include it inside http { }.\n");
    site.node = c->listen_at;
    nginx_site_add(c, &site, &out);
    (void)fwrite(out.p, 1, out.len, stdout);
    buf_done(&out);
    config_free(c);
    return 0;
}
