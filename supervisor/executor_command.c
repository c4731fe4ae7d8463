#include "supervisor/executor_command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/proc/config.h"
#include "supervisor/local_address.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

struct command_words {
    struct arena arena;
    VEC(char *) at;
};

static void add_option(struct command_words *a, const char *flag, const char *value)
{
    *vec_push(&a->at) = arena_cstr(&a->arena, arena_printf(&a->arena, "%s=%s", flag, value));
}

static const char *path_below(struct command_words *a, const char *folder, const char *name)
{
    return arena_printf(&a->arena, "%s/%s", folder, name).p;
}

/* Returns the URL of our own port for a client on this machine. */
static const char *gateway_url(struct command_words *a, const char *address)
{
    struct buf text = {0};
    const char *url;

    local_address_add(address, &text);
    url = arena_printf(&a->arena, "http://%.*s", (int)text.len, text.p).p;
    buf_done(&text);
    return url;
}

/* Adds the key, in a file without a name that the executed program inherits. So neither its
 * arguments nor its environment show the key. */
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
    add_option(a, "--key-file", path);
    return 0;
}

/* Adds the executor's command-line arguments. */
static void add_all(struct command_words *a, const struct supervisor *s)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const struct config *c = s->config;
    char grace[32];

    *vec_push(&a->at) = arena_cstr(&a->arena, STR("rollgate"));
    *vec_push(&a->at) = arena_cstr(&a->arena, STR("runner"));
    (void)snprintf(grace, sizeof(grace), "%lldms", (long long)c->grace_ms);
    add_option(a, "--runners", s->executor.runners);
    add_option(a, "--gateway", gateway_url(a, s->listeners.address));
    add_option(a, "--logs", path_below(a, c->state_dir, "runner-logs"));
    add_option(a, "--work-dir", path_below(a, c->state_dir, "runner-work"));
    add_option(a, "--grace", grace);
    add_option(a, "--log-level", levels[c->log_level]);
    add_option(a, "--log-format", c->log_format == LOG_FORMAT_JSON ? "json" : "text");
}

/* All our descriptors except the key's and the standard ones are close-on-exec. */
void executor_command_run(const struct supervisor *s, const char *key, pid_t parent)
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
