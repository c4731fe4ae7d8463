/*
 * The command line of `rollgate runner`. A first pass reads options as text; then each is converted
 * to its value. All mistakes, including those of the runner file, are collected and reported
 * together. With a mistake nothing runs. Paths are made absolute here, because runs work in folders
 * of their own. Without --work-dir a folder is made for this executor and removed at its end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/nearest.h"
#include "common/net/url.h"
#include "common/proc/config.h"
#include "common/proc/gateway_client.h"
#include "common/proc/keys.h"
#include "runner/executor.h"
#include "runner/runner.h"
#include "runner/runner_log.h"

struct command_line {
    const char *runners, *gateway, *executor, *key_file, *ca_file, *logs, *work, *grace, *reconnect,
        *level, *format;
};

static const struct command_option {
    const char *flag;
    size_t offset;
} options[] = {
    {"--runners", offsetof(struct command_line, runners)},
    {"--gateway", offsetof(struct command_line, gateway)},
    {"--executor", offsetof(struct command_line, executor)},
    {"--key-file", offsetof(struct command_line, key_file)},
    {"--ca-file", offsetof(struct command_line, ca_file)},
    {"--logs", offsetof(struct command_line, logs)},
    {"--work-dir", offsetof(struct command_line, work)},
    {"--grace", offsetof(struct command_line, grace)},
    {"--reconnect", offsetof(struct command_line, reconnect)},
    {"--log-level", offsetof(struct command_line, level)},
    {"--log-format", offsetof(struct command_line, format)},
};

void runner_check(const char *path, struct buf *mistakes)
{
    struct roster roster;

    if (roster_load(path, &roster, mistakes) == 0)
        roster_done(&roster);
}

/* --- the command line --- */

static void add_unknown_flag(const char *flag, struct buf *mistakes)
{
    struct nearest near = nearest_to(str_of(flag, strcspn(flag, "=")));

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        nearest_offer(&near, options[i].flag);
    buf_printf(mistakes, "%.*s: unknown option", (int)strcspn(flag, "="), flag);
    if (near.name)
        buf_printf(mistakes, "; did you mean %s?", near.name);
    buf_add_c(mistakes, '\n');
}

/* Reads --flag VALUE or --flag=VALUE. Returns the number of arguments used. */
static int read_option(struct command_line *w, char **argv, int left, struct buf *mistakes)
{
    size_t len = strcspn(argv[0], "=");

    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        const char **to = (const char **)(void *)((char *)w + options[i].offset);

        if (!str_eq_c(str_of(argv[0], len), options[i].flag))
            continue;
        if (argv[0][len] == '=') {
            *to = argv[0] + len + 1;
            return 1;
        }
        if (left < 2) {
            buf_printf(mistakes, "%s: needs a value\n", argv[0]);
            return 1;
        }
        *to = argv[1];
        return 2;
    }
    add_unknown_flag(argv[0], mistakes);
    return 1;
}

static void read_duration(const char *flag, const char *text, int64_t *ret, struct buf *mistakes)
{
    if (text && (config_parse_duration(str_cstr(text), ret) || *ret < 0))
        buf_printf(mistakes, "%s: must be a duration such as 30s or 10m\n", flag);
}

static const char *read_gateway(const char *text, struct buf *mistakes)
{
    struct url u;
    struct err e;
    struct buf out = {0};

    if (url_parse(str_cstr(text), &u, &e)) {
        buf_printf(mistakes, "--gateway: %s\n", e.text);
        return NULL;
    }
    if (u.local) {
        buf_puts(mistakes, "--gateway: must begin with http:// or https://: runs use it, too\n");
        return NULL;
    }
    buf_printf(&out, "%s://%.*s%.*s", u.tls ? "https" : "http", (int)u.authority.len, u.authority.p,
               (int)u.prefix.len, u.prefix.p);
    return buf_take(&out);
}

/* Returns the executor's name: the given one, else HOST.PID after the name in its key. */
static char *choose_name(const char *given, const char *key)
{
    struct buf out = {0};
    char host[80] = "";
    size_t behind = KEY_MAC_LEN + 1; /* the key is rgx-NAME-MAC */

    if (given)
        return mem_strdup(given);
    if (key && strncmp(key, "rgx-", 4) == 0 && strlen(key) > 4 + behind)
        buf_printf(&out, "%.*s/", (int)(strlen(key) - 4 - behind), key + 4);
    if (gethostname(host, sizeof(host) - 1) || !host[0])
        (void)snprintf(host, sizeof(host), "host");
    buf_printf(&out, "%s.%d", host, (int)getpid());
    return buf_take(&out);
}

static int run_executor(struct roster *roster, struct executor_options *o)
{
    char made[] = "/tmp/rollgate-runner-XXXXXX";
    bool own = !o->work;
    struct err e;
    int rc;

    if (own && !mkdtemp(made)) {
        runner_log_fault(made, strerror(errno));
        return 1;
    }
    if (own)
        o->work = made;
    rc = executor_run(roster, o, &e);
    if (rc < 0)
        runner_log_fault("rollgate runner", e.text);
    if (own && rmdir(made))
        runner_log_fault(made, strerror(errno));
    if (own)
        o->work = NULL;
    return rc < 0 ? 1 : rc;
}

int runner_command(int argc, char **argv)
{
    struct command_line w = {.gateway = "http://127.0.0.1:8600", .logs = "runner-logs"};
    struct executor_options o = {.grace_ms = 30000, .reconnect_ms = 600000};
    struct buf mistakes = {0};
    struct roster roster = {0};
    char *logs, *work;
    int rc = 2;

    for (int i = 1; i < argc;)
        i += read_option(&w, argv + i, argc - i, &mistakes);
    read_duration("--grace", w.grace, &o.grace_ms, &mistakes);
    read_duration("--reconnect", w.reconnect, &o.reconnect_ms, &mistakes);
    runner_log_begin(w.level, w.format, &mistakes);
    o.gateway = read_gateway(w.gateway, &mistakes);
    o.key = w.key_file ? gateway_client_read_key(w.key_file, &mistakes) : NULL;
    o.name = choose_name(w.executor, o.key);
    o.runners = w.runners;
    o.ca_file = w.ca_file;
    o.logs = logs = config_absolute_path("logs", w.logs, &mistakes);
    o.work = work = w.work ? config_absolute_path("work-dir", w.work, &mistakes) : NULL;
    if (!w.runners)
        buf_puts(&mistakes, "--runners: needs the name of a runner file\n");
    else
        (void)roster_load(w.runners, &roster, &mistakes);
    if (mistakes.len > 0)
        runner_log_mistakes(buf_str(&mistakes));
    else
        rc = run_executor(&roster, &o);
    roster_done(&roster);
    buf_done(&mistakes);
    free((char *)(uintptr_t)o.gateway);
    free((char *)(uintptr_t)o.key);
    free((char *)(uintptr_t)o.name);
    free(logs);
    free(work);
    return rc;
}
