/* The executor that --runners starts beside the gateway (local_executor.h): this binary again,
 * as `rollgate runner`, in a process of its own. It is a client like any other: it gets our
 * address, a key of its own, and folders below the state folder. It is replaced when it dies
 * (with a growing pause) and when the setting changes. An upgrade leaves it running; its pid
 * goes to the new binary by the environment (RG_EXECUTOR). */

#include "supervisor/local_executor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/proc/config.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

static const char LEFT[] = "RG_EXECUTOR";

static struct supervisor *the_supervisor(struct local_executor *x)
{
    return CONTAINER_OF(x, struct supervisor, executor);
}

/* --- in the child --- */

struct command_words {
    struct arena arena;
    VEC(char *) at;
};

static void add(struct command_words *a, const char *flag, const char *value)
{
    *vec_push(&a->at) = arena_cstr(&a->arena, arena_printf(&a->arena, "%s=%s", flag, value));
}

static const char *below(struct command_words *a, const char *folder, const char *name)
{
    return arena_printf(&a->arena, "%s/%s", folder, name).p;
}

/* Our own port, as a client on this machine names it. */
static const char *gateway_url(struct command_words *a, const char *address)
{
    const char *port = strrchr(address, ':');

    if (strncmp(address, "0.0.0.0:", 8) == 0)
        return arena_printf(&a->arena, "http://127.0.0.1%s", port).p;
    if (strncmp(address, "[::]:", 5) == 0)
        return arena_printf(&a->arena, "http://[::1]%s", port).p;
    return arena_printf(&a->arena, "http://%s", address).p;
}

/* The key in a file without a name, which the executed program inherits: neither its arguments nor
 * its environment show it. */
static int add_key(struct command_words *a, const char *key)
{
    char path[40];
    int fd;

    if (!key[0])
        return 0;
    fd = memfd_create("executor-key", 0);
    if (fd < 0 || write(fd, key, strlen(key)) != (ssize_t)strlen(key))
        return -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    add(a, "--key-file", path);
    return 0;
}

/* Its arguments. */
static void add_all(struct command_words *a, const struct supervisor *s)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const struct config *c = s->config;
    char grace[32];

    *vec_push(&a->at) = arena_cstr(&a->arena, STR("rollgate"));
    *vec_push(&a->at) = arena_cstr(&a->arena, STR("runner"));
    (void)snprintf(grace, sizeof(grace), "%lldms", (long long)c->grace_ms);
    add(a, "--runners", s->executor.runners);
    add(a, "--gateway", gateway_url(a, s->listeners.address));
    add(a, "--logs", below(a, c->state_dir, "runner-logs"));
    add(a, "--work-dir", below(a, c->state_dir, "runner-work"));
    add(a, "--grace", grace);
    add(a, "--log-level", levels[c->log_level]);
    add(a, "--log-format", c->log_format == LOG_FORMAT_JSON ? "json" : "text");
}

/* Every descriptor of ours but the key's and the standard ones is close-on-exec. */
RG_NORETURN static void be_executor(const struct supervisor *s, const char *key, pid_t parent)
{
    struct command_words a = {0};
    sigset_t none;
    struct err e;

    if (user_become(s->config, &e)) {
        log_error(NULL, "the executor cannot start", LOG_T("reason", e.text));
        _exit(1);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    add_all(&a, s);
    if (add_key(&a, key) == 0) {
        *vec_push(&a.at) = NULL;
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)execv("/proc/self/exe", a.at.at);
    }
    log_error(NULL, "the executor cannot start", LOG_T("reason", strerror(errno)));
    _exit(1);
}

/* --- in the supervisor --- */

/* "" when the gateway wants no keys. */
static int make_key(const struct config *c, char ret[KEY_TEXT_MAX], struct err *e)
{
    struct keys *keys = NULL;
    int rc = keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &keys, e);

    ret[0] = 0;
    if (rc == 0 && keys_required(keys))
        rc = keys_make_executor(keys, STR("local"), ret, e);
    keys_free(keys);
    return rc;
}

static void on_again(struct loop_timer *t)
{
    local_executor_start(the_supervisor(CONTAINER_OF(t, struct local_executor, again)));
}

static void try_later(struct supervisor *s, int64_t lived_ms)
{
    struct local_executor *x = &s->executor;

    loop_timer_set(s->loop, &x->again, (uint64_t)process_backoff(&x->backoff_ms, lived_ms),
                   on_again);
}

/* Makes its key and forks. */
static void begin(struct supervisor *s)
{
    struct local_executor *x = &s->executor;
    char key[KEY_TEXT_MAX];
    pid_t parent = getpid(), pid;
    struct err e;

    free(x->runners);
    x->runners = mem_strdup(s->config->runners);
    if (make_key(s->config, key, &e)) {
        log_error(NULL, "the executor cannot start", LOG_T("reason", e.text));
        try_later(s, 0);
        return;
    }
    pid = fork();
    if (pid == 0)
        be_executor(s, key, parent);
    if (pid < 0) {
        log_error(NULL, "the executor cannot start", LOG_T("reason", strerror(errno)));
        try_later(s, 0);
        return;
    }
    x->pid = pid;
    x->started_ms = (int64_t)clock_ms();
    log_info(NULL, "executor started", LOG_I("executor_pid", pid), LOG_T("runners", x->runners));
}

/* Starts, ends or leaves it, as the settings want it; called again after each reload. */
void local_executor_start(struct supervisor *s)
{
    struct local_executor *x = &s->executor;
    const char *wanted = s->config->runners;

    if (s->phase != PHASE_SERVING || s->upgrade.is_trial)
        return;
    if (!x->pid && wanted && s->bodies->dispatcher)
        begin(s);
    else if (x->pid && (!wanted || strcmp(wanted, x->runners) != 0))
        (void)kill(x->pid, SIGTERM); /* its successor comes when it has drained */
}

/* True when the pid was the executor's. */
bool local_executor_bury(struct supervisor *s, pid_t pid, int wait_status)
{
    struct local_executor *x = &s->executor;
    char how[96];

    if (!x->pid || x->pid != pid)
        return false;
    x->pid = 0;
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
    if (s->executor.pid)
        (void)kill(s->executor.pid, signo);
}

void local_executor_stop(struct supervisor *s)
{
    loop_timer_stop(s->loop, &s->executor.again);
}

/* --- upgrades --- */

/* Before exec: notes pid and roster in the environment. */
void local_executor_leave(const struct supervisor *s)
{
    struct buf text = {0};

    (void)unsetenv(LEFT);
    if (!s->executor.pid)
        return;
    buf_printf(&text, "%d %s%c", (int)s->executor.pid, s->executor.runners, 0);
    (void)setenv(LEFT, text.p, 1);
    buf_done(&text);
}

/* After exec: takes over the one that runs. */
void local_executor_take(struct supervisor *s)
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
    }
    (void)unsetenv(LEFT);
}

void local_executor_done(struct supervisor *s)
{
    free(s->executor.runners);
    s->executor.runners = NULL;
}
