/* The settings of a fleet (fleet_settings.h). */
#include "supervisor/fleet_settings.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/fleet/store_url.h"
#include "common/net/http1.h"
#include "common/proc/config.h"

/* 1 to 63 of a-z, 0-9 and -, but not the name of `rollgate route` (HTTP1_FORWARDED_BY). */
static bool is_node_name(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n < FLEET_NAME_MAX && strcmp(name, HTTP1_ROUTE) != 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* HOST:PORT or [V6]:PORT that other machines can connect to. */
static bool is_address(struct str text)
{
    size_t colon = text.len;
    struct str host;
    uint64_t port;

    while (colon > 0 && text.p[colon - 1] != ':')
        colon--;
    if (colon < 2 || text.len >= FLEET_ADDRESS_MAX ||
        str_to_u64(str_sub(text, colon, SIZE_MAX), 65535, &port) || port == 0)
        return false;
    host = str_sub(text, 0, colon - 1);
    return !str_eq_c(host, "0.0.0.0") && !str_eq_c(host, "[::]") && !str_eq_c(host, "*") &&
           (str_find(host, STR(":"), 0) == SIZE_MAX || host.p[0] == '[');
}

static void check_without(const struct config *c, struct buf *mistakes)
{
    if (c->fleet_node)
        buf_puts(mistakes, "--fleet-node: needs --fleet\n");
    if (c->fleet_address)
        buf_puts(mistakes, "--fleet-address: needs --fleet\n");
    if (c->fleet_leave)
        buf_puts(mistakes, "--fleet-leave: needs --fleet\n");
}

static void check_inline(const struct config *c, struct buf *mistakes)
{
    if (c->sink_inline_max != CONFIG_FLEET_INLINE)
        buf_printf(
            mistakes,
            "--sink-inline-max: %lld excludes --fleet, which needs 512MiB: another node could "
            "not reach the file\n",
            (long long)c->sink_inline_max);
}

/* Settings that a fleet replaces, or that would void its promise. */
static void check_others(const struct config *c, struct buf *mistakes)
{
    if (c->durability == DURABILITY_NONE)
        buf_puts(mistakes, "--durability: \"none\" excludes --fleet\n");
    if (c->upstream.n > 0)
        buf_puts(mistakes, "--upstream: excludes --fleet\n");
    if (c->peer.n > 0)
        buf_puts(mistakes, "--peer: excludes --fleet, whose nodes find each other by the store\n");
    if (c->session_ids == SESSION_IDS_BARE)
        buf_puts(mistakes, "--session-ids: \"bare\" excludes --fleet\n");
    if (c->listen_tls)
        buf_puts(mistakes, "--listen: `,tls` excludes --fleet: nodes call each other without TLS; "
                           "use --front\n");
    check_inline(c, mistakes);
    if (c->worker_base % FLEET_BLOCK_SIZE != 0)
        buf_puts(mistakes, "--worker-base: excludes --fleet, which gives each node its indexes\n");
}

void fleet_settings_check(const struct config *c, struct buf *mistakes)
{
    struct store_url url;
    struct err e;

    if (!c->fleet) {
        check_without(c, mistakes);
        return;
    }
    if (store_url_parse(str_cstr(c->fleet), &url, &e))
        buf_printf(mistakes, "--fleet: %s\n", e.text);
    else
        store_url_done(&url);
    if (c->fleet_node && !is_node_name(c->fleet_node))
        buf_printf(mistakes,
                   "--fleet-node: \"%.100s\" is `route`, or has not 1 to 63 of a-z, 0-9 and -\n",
                   c->fleet_node);
    if (c->fleet_address && !is_address(str_cstr(c->fleet_address)))
        buf_printf(mistakes,
                   "--fleet-address: \"%.100s\" is no HOST:PORT that other nodes can reach\n",
                   c->fleet_address);
    check_others(c, mistakes);
}

/* Returns the host's name in the form of a node's. */
static char *name_host(void)
{
    char name[FLEET_NAME_MAX] = "";

    (void)gethostname(name, sizeof(name) - 1);
    for (char *p = name; *p; p++)
        *p = isalnum((unsigned char)*p) ? (char)tolower((unsigned char)*p) : '-';
    return mem_strdup(name);
}

int fleet_settings_resolve(struct config *c, const char *listens, struct err *e)
{
    if (!c->fleet_node)
        c->fleet_node = name_host();
    if (!is_node_name(c->fleet_node))
        return err_set(e, ERR_CONFIG, "the host's name cannot be a node's: set --fleet-node");
    if (!c->fleet_address) {
        if (!is_address(str_cstr(listens)))
            return err_set(e, ERR_CONFIG,
                           "--fleet-address: needed, because --listen has no address that other "
                           "nodes could use");
        c->fleet_address = mem_strdup(listens);
    }
    return 0;
}

/* A value that was not set is that of the running gateway. */
static void keep_text(char *const *live, char **fresh)
{
    if (!*fresh && *live)
        *fresh = mem_strdup(*live);
}

void fleet_settings_keep(const struct config *live, struct config *fresh, struct buf *mistakes)
{
    if (!live->fleet)
        return;
    check_inline(fresh, mistakes);
    keep_text(&live->fleet_node, &fresh->fleet_node);
    keep_text(&live->fleet_address, &fresh->fleet_address);
    if (!fresh->worker_base_given)
        fresh->worker_base = live->worker_base;
    fresh->worker_base_given = live->worker_base_given;
}
