/* The executor that --runners starts next to the gateway (local_executor.h): its start, its
 * replacement, and what an upgrade does to it. It is replaced when it dies (with a growing pause)
 * and when an upgrade brings a different setting. It continues to run during an upgrade. The new
 * binary gets its pid by the environment (RG_EXECUTOR). A plus sign before the pid means that it
 * drains; older binaries read the sign as a part of the number. */

#include "supervisor/local_executor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "supervisor/executor_command.h"
#include "supervisor/key_files.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"

static const char LEFT[] = "RG_EXECUTOR";

static struct supervisor *supervisor_of_executor(struct local_executor *x)
{
    return CONTAINER_OF(x, struct supervisor, executor);
}

static void on_restart_due(struct loop_timer *t)
{
    local_executor_start(supervisor_of_executor(CONTAINER_OF(t, struct local_executor, again)));
}

static void try_later(struct supervisor *s, int64_t lived_ms)
{
    struct local_executor *x = &s->executor;

    loop_timer_set(s->loop, &x->again, (uint64_t)process_backoff(&x->backoff_ms, lived_ms),
                   on_restart_due);
}

/* Makes its key and forks. */
static void start_executor(struct supervisor *s)
{
    struct local_executor *x = &s->executor;
    char key[EXECUTOR_KEY_MAX];
    pid_t parent = getpid(), pid;
    struct err e;

    free(x->runners);
    x->runners = mem_strdup(s->config->runners);
    if (key_files_executor(s->config, key, &e)) {
        log_error(NULL, "the executor cannot start", LOG_T("reason", e.text));
        try_later(s, 0);
        return;
    }
    pid = fork();
    if (pid == 0)
        executor_command_run(s, key, parent);
    if (pid < 0) {
        log_error(NULL, "the executor cannot start", LOG_T("reason", strerror(errno)));
        try_later(s, 0);
        return;
    }
    x->pid = pid;
    x->started_ms = (int64_t)clock_ms();
    log_info(NULL, "executor started", LOG_I("executor_pid", pid), LOG_T("runners", x->runners));
}

void local_executor_start(struct supervisor *s)
{
    struct local_executor *x = &s->executor;
    const char *wanted = s->config->runners;

    if (s->phase != PHASE_SERVING || s->upgrade.is_trial)
        return;
    if (!x->pid && wanted && s->bodies->dispatcher)
        start_executor(s);
    else if (x->pid && (!wanted || strcmp(wanted, x->runners) != 0))
        /* a successor is started when the executor has drained */
        local_executor_signal(s, SIGTERM);
}

bool local_executor_bury(struct supervisor *s, pid_t pid, int wait_status)
{
    struct local_executor *x = &s->executor;
    char how[96];

    if (!x->pid || x->pid != pid)
        return false;
    x->pid = 0;
    x->drains = false;
    process_death(wait_status, how, sizeof(how));
    if (s->phase != PHASE_SERVING)
        return true;
    if (wait_status != 0)
        log_error(NULL, "the executor ended, replacing it", LOG_I("died_pid", pid),
                  LOG_T("how", how));
    metrics_count_at(s->page, METRIC_restarts, METRIC_ROLE_RUNNER, 0, 1);
    try_later(s, (int64_t)clock_ms() - x->started_ms);
    return true;
}

void local_executor_signal(struct supervisor *s, int signo)
{
    struct local_executor *x = &s->executor;

    if (!x->pid || (signo == SIGTERM && x->drains))
        return;
    x->drains = x->drains || signo == SIGTERM;
    (void)kill(x->pid, signo);
}

void local_executor_stop(struct supervisor *s)
{
    loop_timer_stop(s->loop, &s->executor.again);
}

/* --- upgrades --- */

void local_executor_leave(const struct supervisor *s)
{
    struct buf text = {0};

    (void)unsetenv(LEFT);
    if (!s->executor.pid)
        return;
    buf_printf(&text, "%s%d %s%c", s->executor.drains ? "+" : "", (int)s->executor.pid,
               s->executor.runners, 0);
    (void)setenv(LEFT, text.p, 1);
    buf_done(&text);
}

/* Takes over the running executor, after exec. */
void local_executor_inherit(struct supervisor *s)
{
    const char *text = getenv(LEFT);
    char *end;
    long pid;

    if (!text)
        return;
    pid = strtol(text, &end, 10);
    if (pid > 0 && *end == ' ') {
        s->executor.pid = (pid_t)pid;
        s->executor.runners = mem_strdup(end + 1);
        s->executor.started_ms = (int64_t)clock_ms();
        s->executor.drains = text[0] == '+';
    }
    (void)unsetenv(LEFT);
}

void local_executor_done(struct supervisor *s)
{
    free(s->executor.runners);
    s->executor.runners = NULL;
}
