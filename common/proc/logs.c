/*
 * Connects three independent modules: the settings (config), the log (common/base) and the metrics
 * page. Lines that the rate limit suppresses are counted on the process's page through
 * on_suppressed.
 */
#include "common/proc/logs.h"

#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"

static void on_suppressed(void *ctx)
{
    metrics_count(ctx, METRIC_log_suppressed, 1);
}

void logs_setup(const char *role, const struct config *c, struct metrics_page *page)
{
    log_setup(role, (enum log_level)c->log_level, (enum log_format)c->log_format);
    log_limit_setup((unsigned)c->log_rate, page ? on_suppressed : NULL, page);
}
