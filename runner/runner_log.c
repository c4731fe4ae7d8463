/* If the log is JSON, the output has no other lines, so faults at the start are lines of the log,
 * too (runner_log.h). */
#include "runner/runner_log.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/os/process_title.h"

void runner_log_begin(const char *level, const char *format, struct buf *mistakes)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    size_t chosen = LOG_INFO;

    if (level) {
        for (chosen = 0; chosen < ARRAY_LEN(levels); chosen++)
            if (strcmp(levels[chosen], level) == 0)
                break;
        if (chosen == ARRAY_LEN(levels))
            buf_puts(mistakes, "--log-level: must be error, warn, info or debug\n");
    }
    if (format && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
        buf_puts(mistakes, "--log-format: must be text or json\n");
    log_setup("runner", (enum log_level)chosen,
              format && strcmp(format, "json") == 0 ? LOG_JSON : LOG_TEXT);
    process_title_set("rollgate: runner");
    process_title_name_thread("rollgate-runner");
}

void runner_log_fault(const char *subject, const char *reason)
{
    if (log_is_json())
        log_error(NULL, "the runner failed", LOG_T("subject", subject), LOG_T("reason", reason));
    else
        fprintf(stderr, "%s: %s\n", subject, reason);
}

void runner_log_mistakes(struct str lines)
{
    if (!log_is_json())
        (void)fwrite(lines.p, 1, lines.len, stderr);
    while (log_is_json() && lines.len)
        log_error(NULL, "a setting is wrong", LOG_S("reason", str_cut(&lines, '\n')));
}
