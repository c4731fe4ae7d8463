/* The site (nginx_site.h). It sends
 *
 *     a worker index in the path or in a session key        to the node that owns the index
 *     groups, queues, attempts, /admin, lists, bulk orders  to the first node, always
 *     all others, including new sessions                    to any node
 *
 * In a fleet any node gets any request. If nginx cannot connect to it, the next node gets the
 * request. An idempotent request also moves on after an error or a timeout.
 *
 * Each node gets its own address as Host, so that it accepts the request without keys. The client's
 * Host becomes X-Forwarded-Host.
 *
 * tests/blackbox/deploy/test_deploy.py tries every line below with a running gateway. SSE and
 * uploads are not buffered. A request that may have changed a session is not sent again.
 * Connections to session upstreams are not pooled: a request on a pooled connection to a node that
 * lost its network would hang, and a new connection costs 0.1 ms. */
#include "supervisor/nginx_site.h"

#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/proc/config.h"
#include "supervisor/local_address.h"

/* Splits "4-7=host:port" into range and address. Returns -1 if the text has a different form. */
static int split_peer(const char *peer, unsigned *first, unsigned *last, const char **address)
{
    char end;

    *address = strchr(peer, '=');
    if (!*address || sscanf(peer, "%u-%u%c", first, last, &end) != 3 || end != '=' || /* NOLINT */
        *last < *first || *last - *first >= 4096)
        return -1;
    (*address)++;
    return 0;
}

/* Returns the address of peer p, or NULL if the setting is malformed. */
static const char *peer_address(const struct config *c, size_t p)
{
    unsigned first, last;
    const char *address;

    return split_peer(c->peer.at[p], &first, &last, &address) ? NULL : address;
}

/* Maps worker indexes to nodes, from --peer and our own range. */
static void add_map(const struct config *c, struct buf *out)
{
    buf_puts(out, "# worker index of the session id in the path or in a session key -> node\n"
                  "map \"$uri $http_authorization $http_x_api_key\" $rollgate_worker {\n"
                  "    default \"\";\n"
                  "    \"~^/sessions/(?<rg_path>w[0-9]+)-[0-9a-f]+\" $rg_path;\n"
                  "    \"~ (Bearer )?rg[ar]-(?<rg_key>w[0-9]+)-[0-9a-f]+-\" $rg_key;\n"
                  "}\n"
                  "map $rollgate_worker $rollgate_owner {\n"
                  "    default rollgate_any;\n");
    for (int64_t i = 0; i < c->workers; i++)
        buf_printf(out, "    w%lld rollgate_node_0;\n", (long long)c->worker_base + i);
    for (size_t p = 0; p < c->peer.n; p++) {
        unsigned first = 0, last = 0;
        const char *address;

        if (split_peer(c->peer.at[p], &first, &last, &address))
            continue;
        for (unsigned i = first; i <= last; i++)
            buf_printf(out, "    w%u rollgate_node_%zu;\n", i, p + 1);
    }
    buf_puts(out,
             "}\n"
             "# what one node keeps for all, or does for itself alone -> the first node\n"
             "map \"$request_method $uri\" $rollgate_node {\n"
             "    default $rollgate_owner;\n"
             "    \"~^[A-Z]+ /(groups|queues|attempts|admin)(/|$)\" rollgate_node_0;\n"
             "    \"~^[A-Z]+ /(events|stats|sessions/abort|sessions/finalize)$\" rollgate_node_0;\n"
             "    \"~^(GET|HEAD) /sessions$\" rollgate_node_0;\n"
             "}\n");
}

/* Maps each upstream to the Host that its node accepts: its own address. An upstream of several
 * nodes has a name that all of them accept. */
static void add_hosts(const struct config *c, const struct nginx_site *site, struct buf *out)
{
    buf_puts(out, "map $rollgate_node $rollgate_host {\n    default ");
    if (c->peer.n > 0)
        buf_puts(out, "localhost");
    else
        local_address_add(site->node, out);
    buf_puts(out, ";\n    rollgate_node_0 ");
    local_address_add(site->node, out);
    buf_puts(out, ";\n");
    for (size_t p = 0; p < c->peer.n; p++) {
        unsigned first, last;
        const char *address;

        if (!split_peer(c->peer.at[p], &first, &last, &address) &&
            strncmp(address, "unix:", 5) != 0)
            buf_printf(out, "    rollgate_node_%zu %s;\n", p + 1, address);
    }
    buf_puts(out, "}\n");
}

/* Writes one upstream for each node, and one for all of them. */
static void add_upstreams(const struct config *c, const struct nginx_site *site, struct buf *out)
{
    buf_puts(out, "upstream rollgate_node_0 { server ");
    local_address_add(site->node, out);
    buf_puts(out, " max_fails=0; }\n");
    for (size_t p = 0; p < c->peer.n; p++) {
        const char *address = peer_address(c, p);

        if (address)
            buf_printf(out, "upstream rollgate_node_%zu { server %s max_fails=0; }\n", p + 1,
                       address);
    }
    buf_puts(out, "upstream rollgate_any {\n    zone rollgate_any 256k;\n    least_conn;\n"
                  "    server ");
    local_address_add(site->node, out);
    buf_puts(out, " max_fails=1 fail_timeout=5s;\n");
    for (size_t p = 0; p < c->peer.n; p++) {
        const char *address = peer_address(c, p);

        if (address)
            buf_printf(out, "    server %s max_fails=1 fail_timeout=5s;\n", address);
    }
    buf_puts(out, "}\n");
}

/* Writes the one upstream of a fleet: the nodes that the command names, else this one. */
static void add_fleet(const struct nginx_site *site, struct buf *out)
{
    const char *end;

    buf_puts(out, "upstream rollgate_fleet {\n    zone rollgate_fleet 256k;\n    least_conn;\n");
    for (const char *at = site->nodes; at; at = *end ? end + 1 : NULL) {
        end = strchrnul(at, ',');
        buf_printf(out, "    server %.*s max_fails=1 fail_timeout=5s;\n", (int)(end - at), at);
    }
    if (!site->nodes) {
        buf_puts(out, "    server ");
        local_address_add(site->node, out);
        buf_puts(out, " max_fails=0;\n");
    }
    buf_puts(out, "}\n");
}

/* Writes the locations of a fleet. Requests that a node has received are sent again only if they
 * are idempotent. */
static void add_fleet_locations(struct buf *out)
{
    buf_puts(out, "    location / {                  # every node answers for every session\n"
                  "        proxy_next_upstream error timeout;\n"
                  "        proxy_pass http://rollgate_fleet;\n"
                  "    }\n");
}

static void add_locations(struct buf *out)
{
    buf_puts(out,
             "    location / {\n"
             "        proxy_next_upstream off;  # a session lives on one node: never resend\n"
             "        proxy_pass http://$rollgate_node;\n"
             "    }\n"
             "    location = /sessions {        # any node may make one; only a failed connect "
             "moves on\n"
             "        proxy_next_upstream error timeout;\n"
             "        proxy_next_upstream_tries 3;\n"
             "        proxy_pass http://$rollgate_node;\n"
             "    }\n");
}

/* Writes the server block; see the head of this file. */
static void add_server(const struct config *c, const struct nginx_site *site, struct buf *out)
{
    /* A silent stream sends a comment every --keepalive. A non-stream answer may take as long as
     * the engine does. */
    long long read_s = (c->engine_timeout_ms + c->queue_timeout_ms) / 1000 + 60;

    buf_printf(out,
               "server {\n"
               "    listen %s ssl http2 backlog=4096 so_keepalive=30s:10s:3;\n"
               "    server_name %s;\n"
               "    ssl_certificate %s;\n"
               "    ssl_certificate_key %s;\n"
               "    ssl_protocols TLSv1.2 TLSv1.3;\n"
               "    ssl_session_cache shared:rollgate:20m;\n"
               "    ssl_buffer_size 4k;\n"
               "\n"
               "    client_max_body_size %lld;\n"
               "    client_body_timeout %llds;\n"
               "    large_client_header_buffers 8 %lld;\n"
               "    keepalive_timeout 300s;\n"
               "    tcp_nodelay on;\n"
               "    gzip off;\n"
               "\n",
               site->listen, site->name, site->certificate, site->key, (long long)c->max_body_bytes,
               (long long)c->body_timeout_ms / 1000, (long long)c->max_header_bytes);
    buf_printf(out,
               "    proxy_http_version 1.1;\n"
               "    proxy_set_header Host %s;  # without keys a node checks it\n"
               "    proxy_set_header X-Forwarded-Host $http_host;\n"
               "    proxy_set_header Origin $http_origin;\n"
               "    proxy_set_header Connection \"\";\n"
               "    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
               "    proxy_set_header X-Forwarded-Proto $scheme;\n"
               "    proxy_buffering off;          # each SSE event goes out as it comes\n"
               "    proxy_request_buffering off;  # large prompts stream through\n"
               "    proxy_max_temp_file_size 0;\n"
               "    proxy_connect_timeout 2s;\n"
               "    proxy_read_timeout %llds;\n"
               "    proxy_send_timeout %llds;\n"
               "    proxy_socket_keepalive on;\n"
               "\n",
               c->fleet ? "localhost" : "$rollgate_host", read_s,
               (long long)c->send_timeout_ms / 1000);
    if (c->fleet)
        add_fleet_locations(out);
    else
        add_locations(out);
    buf_puts(out, "    location = /metrics { deny all; }  # scraped from the nodes themselves\n"
                  "}\n");
}

/* A value has no character that is syntax for nginx. */
bool nginx_site_is_value(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (strchr(";{}\"'\\$#", *p) || (unsigned char)*p <= ' ')
            return false;
    }
    return *text != 0;
}

void nginx_site_check(const struct config *c, struct buf *mistakes)
{
    for (size_t i = 0; i < c->peer.n; i++) {
        if (!nginx_site_is_value(c->peer.at[i]))
            buf_printf(mistakes, "--peer: \"%s\" cannot be written in an nginx file\n",
                       c->peer.at[i]);
    }
}

void nginx_site_add(const struct config *c, const struct nginx_site *site, struct buf *out)
{
    if (c->fleet) {
        add_fleet(site, out);
    } else {
        add_map(c, out);
        add_hosts(c, site, out);
        add_upstreams(c, site, out);
    }
    add_server(c, site, out);
}
