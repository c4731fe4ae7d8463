#include "supervisor/commands.h"

#include <stdio.h>
#include <string.h>

#include "common/proc/keys.h"
#include "dispatcher/dispatcher.h"
#include "router/router.h"
#include "runner/runner.h"
#include "supervisor/listeners.h"
#include "supervisor/supervisor.h"
#include "worker/worker.h"

static void print(FILE *to, struct buf *b)
{
    if (b->len > 0)
        (void)fwrite(b->p, 1, b->len, to);
    buf_done(b);
}

struct config *commands_load(int argc, char **argv, enum commands_care care)
{
    struct buf mistakes = {0};
    struct config *c = config_load_rest(argc, argv, &mistakes);
    struct err e;

    for (size_t i = 0; i < c->args.n; i++)
        buf_printf(&mistakes, "%s: unexpected argument\n", c->args.at[i]);
    if (care != COMMANDS_SYNTAX) {
        if (listeners_check(c, &e))
            buf_printf(&mistakes, "%s\n", e.text);
        router_check(c, &mistakes);
    }
    if (care > COMMANDS_SITE) {
        keys_check_files(c->admin_key_file, c->key_secret_file, &mistakes);
        if (c->upstream.n == 0)
            worker_check(c, care == COMMANDS_MODEL, &mistakes);
        if (care == COMMANDS_ROUTE && c->upstream.n == 0)
            buf_puts(&mistakes, "--upstream: route needs at least one\n");
    }
    if (mistakes.len) {
        config_free(c);
        c = NULL;
    }
    print(stderr, &mistakes);
    return c;
}

int serve_command(int argc, char **argv)
{
    static const struct supervisor_bodies bodies = {
        .load = worker_load,
        .unload = worker_unload,
        .worker = worker_run,
        .router = router_run,
        .dispatcher = dispatcher_run,
        .check = router_check,
    };
    struct config *c = commands_load(argc, argv, COMMANDS_VALUES);
    int rc;

    if (!c)
        return 2;
    rc = supervisor_serve(c, &bodies);
    config_free(c);
    return rc;
}

int route_command(int argc, char **argv)
{
    static const struct supervisor_bodies bodies = {.router = router_run, .check = router_check};
    struct config *c = commands_load(argc, argv, COMMANDS_ROUTE);
    int rc;

    if (!c)
        return 2;
    rc = supervisor_serve(c, &bodies);
    config_free(c);
    return rc;
}

/* Takes the argument out of argv and tells whether it was there. */
static int take_word(int *argc, char **argv, const char *word)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], word) != 0)
            continue;
        memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof(*argv));
        (*argc)--;
        return 1;
    }
    return 0;
}

/* The same of a word and its value; NULL: it was not there. */
static const char *take_value(int *argc, char **argv, const char *word)
{
    for (int i = 1; i + 1 < *argc; i++) {
        const char *value = argv[i + 1];

        if (strcmp(argv[i], word) != 0)
            continue;
        memmove(&argv[i], &argv[i + 2], (size_t)(*argc - i - 1) * sizeof(*argv));
        *argc -= 2;
        return value;
    }
    return NULL;
}

int config_command(int argc, char **argv)
{
    int check = take_word(&argc, argv, "--check"), dump = take_word(&argc, argv, "--dump");
    int docs = take_word(&argc, argv, "--docs"), man = take_word(&argc, argv, "--man");
    const char *runners = check ? take_value(&argc, argv, "--runners") : NULL;
    struct buf out = {0}, mistakes = {0};
    struct config *c;

    if (check + dump + docs + man != 1) {
        fprintf(stderr, "rollgate config --check|--dump|--docs|--man [settings]\n");
        return 2;
    }
    if (docs)
        config_docs(&out);
    if (man)
        config_manual(&out);
    if (docs || man) {
        print(stdout, &out);
        return 0;
    }
    if (runners)
        runner_check(runners, &mistakes);
    c = commands_load(argc, argv, check ? COMMANDS_MODEL : COMMANDS_SYNTAX);
    if (!c || mistakes.len > 0) {
        print(stderr, &mistakes);
        config_free(c);
        return 2;
    }
    if (dump)
        config_dump(c, &out);
    else
        buf_puts(&out, "the configuration is valid\n");
    print(stdout, &out);
    config_free(c);
    return 0;
}
