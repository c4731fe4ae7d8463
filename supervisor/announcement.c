/* Announcements of the supervisor: its limits as metrics, and one line at the start. */
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/router.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor_internal.h"

enum { DISK_EVERY_MS = 5000 };

void supervisor_publish_limits(struct supervisor *s)
{
    const struct config *c = s->config;

    const struct {
        unsigned limit;
        int64_t value;
    } all[] = {
        {METRIC_LIMIT_SESSIONS, c->max_sessions},
        {METRIC_LIMIT_TOKENS, c->max_live_tokens},
        {METRIC_LIMIT_MEMORY, c->max_worker_memory},
        {METRIC_LIMIT_NODES, c->max_nodes},
        {METRIC_LIMIT_INFLIGHT, c->max_inflight},
        {METRIC_LIMIT_SESSION_INFLIGHT, c->max_session_inflight},
        {METRIC_LIMIT_QUEUE, c->max_queue},
        {METRIC_LIMIT_SESSION_QUEUE, c->max_session_queue},
        {METRIC_LIMIT_QUEUE_TIME, c->queue_timeout_ms / 1000},
        {METRIC_LIMIT_CONNECTIONS, c->max_connections},
        {METRIC_LIMIT_ADDRESS_CONNECTIONS, c->max_address_connections},
        {METRIC_LIMIT_KEY_CONNECTIONS, c->max_key_connections},
        {METRIC_LIMIT_KEY_BODIES, c->max_key_body_bytes},
        {METRIC_LIMIT_ADDRESS_BODIES, c->max_address_body_bytes},
        {METRIC_LIMIT_WORKER_BODIES, c->max_worker_body_bytes},
        {METRIC_LIMIT_BODY_RATE, c->min_body_rate},
        {METRIC_LIMIT_HEADER, c->max_header_bytes},
        {METRIC_LIMIT_BODY, c->max_body_bytes},
        {METRIC_LIMIT_LOG, c->log_rate},
        {METRIC_LIMIT_REQUEST_MEMORY, c->max_request_memory},
        {METRIC_LIMIT_REQUEST_GROWTH, c->max_request_growth},
        {METRIC_LIMIT_TOOLS, c->max_tools},
        {METRIC_LIMIT_STOPS, c->max_stops},
        {METRIC_LIMIT_MESSAGES, c->max_messages},
        {METRIC_LIMIT_SCHEMA, c->max_schema_bytes},
        {METRIC_LIMIT_SESSION_RECORDED, c->max_session_recorded_bytes},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        metrics_set_at(s->page, METRIC_limit, all[i].limit, (uint64_t)all[i].value);
}

void supervisor_measure_disk(struct supervisor *s)
{
    int64_t now = (int64_t)clock_ms();
    struct statvfs v;

    if (now < s->disk_ms || s->config->upstream.n > 0)
        return;
    s->disk_ms = now + DISK_EVERY_MS;
    if (statvfs(s->config->state_dir, &v) == 0)
        metrics_set(s->page, METRIC_disk_free, (uint64_t)v.f_bavail * v.f_frsize);
}

void supervisor_announce(const struct supervisor *s, uint64_t descriptors, struct str remark)
{
    static const char no_keys[] = "off: every program that reaches the port is the operator; "
                                  "browsers' requests of other sites are refused (--allowed-hosts)";
    const struct config *c = s->config;

    log_info(
        NULL, "rollgate starts", LOG_T("version", RG_VERSION),
        LOG_I("cores", sysconf(_SC_NPROCESSORS_ONLN)), LOG_U("nofile", descriptors),
        LOG_U("connections_per_router", router_capacity((size_t)descriptors)),
        LOG_T("listen", s->listeners.address), LOG_I("workers", c->upstream.n ? 0 : c->workers),
        LOG_I("routers", c->routers),
        LOG_T("durability", ((const char *const[]){"none", "process", "power"})[c->durability]),
        LOG_T("keys", c->admin_key_file ? "on" : no_keys), LOG_T("sandbox", sandbox_describe(c)),
        LOG_T("landlock", sandbox_landlock(c)), LOG_S("model", remark));
    if (geteuid() == 0 && !c->user)
        log_warn(NULL, "started as root without --user: routers and workers keep root's user id");
    if (c->insecure && !c->admin_key_file)
        log_warn(NULL, "--insecure: anybody who reaches the port may do everything");
}
