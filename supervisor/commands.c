/* The commands that run the gateway or print its settings (commands.h): serve, route, config. They
 * load their settings by commands_load, which prints all mistakes and returns NULL if there are
 * any. `care` says how much is checked, from the syntax only up to loading the model. */

#include "supervisor/commands.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/net/url.h"
#include "common/proc/command_line.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/logs.h"
#include "dispatcher/dispatcher.h"
#include "keeper/fleet_keeper.h"
#include "router/router.h"
#include "runner/runner.h"
#include "supervisor/fleet_settings.h"
#include "supervisor/listeners.h"
#include "supervisor/supervisor.h"
#include "supervisor/tls_front.h"
#include "worker/worker.h"

static void print_buffer(FILE *to, struct buf *b)
{
    if (b->len > 0)
        (void)fwrite(b->p, 1, b->len, to);
    buf_done(b);
}

/* Prints lines about the settings. If the gateway's log is JSON, they are lines of that log. */
static void print_faults(enum log_level level, const char *msg, struct buf *lines)
{
    struct str rest = buf_str(lines);

    if (!log_is_json()) {
        print_buffer(stderr, lines);
        return;
    }
    while (rest.len) {
        const struct log_field fields[] = {LOG_S("reason", str_cut(&rest, '\n')),
                                           {.type = LOG_END}};

        log_write(level, NULL, msg, fields);
    }
    buf_done(lines);
}

static void check_public_url(const struct config *c, struct buf *mistakes)
{
    struct url url;
    struct err e;

    if (c->public_url && strcmp(c->public_url, "node") == 0) {
        if (!c->fleet)
            buf_puts(mistakes, "--public-url: \"node\" needs --fleet\n");
        return;
    }
    if (c->public_url && url_parse(str_cstr(c->public_url), &url, &e) != 0)
        buf_printf(mistakes, "--public-url: %s\n", e.text);
    else if (c->public_url && url.local)
        buf_printf(mistakes, "--public-url: clients cannot use %s\n", c->public_url);
}

/* Checks the settings that must also be right at a reload. */
static void check_live(const struct config *c, struct buf *mistakes)
{
    router_check(c, mistakes);
    if (c->runners)
        runner_check(c->runners, mistakes);
}

static void check_executor(const struct config *c, struct buf *mistakes)
{
    if (c->runners && c->upstream.n > 0)
        buf_puts(mistakes,
                 "--runners: `rollgate route` starts no executor; use `rollgate runner`\n");
    else if (c->runners && !c->dispatcher)
        buf_puts(mistakes, "--runners: needs --dispatcher=on\n");
}

void commands_check(const struct config *c, enum commands_care care, struct buf *mistakes,
                    struct buf *warnings)
{
    struct err e;

    if (care != COMMANDS_SYNTAX) {
        if (listeners_check(c, &e))
            buf_printf(mistakes, "%s\n", e.text);
        router_check(c, mistakes);
        check_public_url(c, mistakes);
        tls_front_check(c, mistakes);
        check_executor(c, mistakes);
        fleet_settings_check(c, mistakes);
    }
    if (care > COMMANDS_SITE) {
        if (c->runners)
            runner_check(c->runners, mistakes);
        keys_check_files(c->admin_key_file, c->key_secret_file, mistakes);
        if (c->upstream.n == 0)
            worker_check(c, care == COMMANDS_MODEL, mistakes, warnings);
        if (care == COMMANDS_ROUTE && c->upstream.n == 0)
            buf_puts(mistakes, "--upstream: `rollgate route` needs at least one\n");
    }
}

/* Loads the settings; the caller frees them. `words`: other arguments are not a mistake. `serves`:
 * mistakes are written like the gateway's log. */
static struct config *load_settings(int argc, char **argv, enum commands_care care, bool words,
                                    bool serves)
{
    struct buf mistakes = {0}, warnings = {0};
    struct config *c = config_load_rest(argc, argv, &mistakes);

    ids_set_bare(c->session_ids == SESSION_IDS_BARE);
    if (serves)
        logs_setup("rollgate", c, NULL);
    for (size_t i = 0; !words && i < c->args.n; i++)
        buf_printf(&mistakes, "%s: unexpected argument\n", c->args.at[i]);
    commands_check(c, care, &mistakes, &warnings);
    if (mistakes.len) {
        config_free(c);
        c = NULL;
    }
    print_faults(LOG_ERROR, "a setting is wrong", &mistakes);
    print_faults(LOG_WARN, "a setting is doubtful", &warnings);
    return c;
}

struct config *commands_load(int argc, char **argv, enum commands_care care)
{
    return load_settings(argc, argv, care, false, false);
}

struct config *commands_load_words(int argc, char **argv, enum commands_care care)
{
    return load_settings(argc, argv, care, true, false);
}

static int serve(int argc, char **argv, enum commands_care care,
                 const struct supervisor_bodies *bodies)
{
    struct config *c = load_settings(argc, argv, care, false, true);
    int rc;

    if (!c)
        return 2;
    rc = supervisor_serve(c, bodies);
    config_free(c);
    return rc;
}

/* The bodies are functions of other folders. The supervisor only calls them. */
int serve_command(int argc, char **argv)
{
    static const struct supervisor_bodies bodies = {
        .load = worker_load,
        .unload = worker_unload,
        .worker = worker_run,
        .router = router_run,
        .dispatcher = dispatcher_run,
        .keeper = fleet_keeper_run,
        .describe = worker_describe,
        .check = check_live,
    };

    return serve(argc, argv, COMMANDS_VALUES, &bodies);
}

int route_command(int argc, char **argv)
{
    static const struct supervisor_bodies bodies = {.router = router_run, .check = router_check};

    return serve(argc, argv, COMMANDS_ROUTE, &bodies);
}

int config_command(int argc, char **argv)
{
    bool check = command_line_take_flag(&argc, argv, "--check");
    bool dump = command_line_take_flag(&argc, argv, "--dump");
    bool docs = command_line_take_flag(&argc, argv, "--docs");
    bool limits = command_line_take_flag(&argc, argv, "--limits");
    bool man = command_line_take_flag(&argc, argv, "--man");
    struct buf out = {0};
    struct config *c;

    if (check + dump + docs + limits + man != 1) {
        fprintf(stderr, "rollgate config --check|--dump|--docs|--limits|--man [settings]\n");
        return 2;
    }
    if (docs)
        config_docs(&out);
    if (limits)
        config_limits(&out);
    if (man)
        config_manual(&out);
    if (docs || limits || man) {
        print_buffer(stdout, &out);
        return 0;
    }
    c = commands_load(argc, argv, check ? COMMANDS_MODEL : COMMANDS_SYNTAX);
    if (!c)
        return 2;
    if (dump)
        config_dump(c, &out);
    else
        buf_puts(&out, "the configuration is valid\n");
    print_buffer(stdout, &out);
    config_free(c);
    return 0;
}
