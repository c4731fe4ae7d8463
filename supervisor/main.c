/*
 * rollgate: one binary, one table of commands. Everything a command does lies elsewhere.
 */
#include <stdio.h>
#include <string.h>

#include "common/proc/config.h"
#include "supervisor/commands.h"
#include "supervisor/top.h"
#include "worker/commands/check_command.h"
#include "worker/commands/export_command.h"
#include "worker/commands/journal_command.h"
#include "worker/commands/render_command.h"
#include "worker/commands/tokens_command.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *help;
} commands[] = {
    {"serve", serve_command, "everything on this node: workers and routers"},
    {"route", route_command, "routers alone over given upstreams"},
    {"journal", journal_command, "verify, dump or compact a worker's journal"},
    {"export", export_command, "trajectories straight from a journal"},
    {"config", config_command, "--check, --dump, --docs or --man of the settings"},
    {"tokenize", tokenize_command, "text to token ids, with a model's tokenizer"},
    {"detokenize", detokenize_command, "token ids to text"},
    {"render", render_command, "a chat template over messages"},
    {"check", check_command, "what a model folder holds and how its turns are told apart"},
    {"top", top_command, "a live view of a running gateway; --once prints one page"},
    {"nginx-config", nginx_command, "an nginx site (TLS) in front of this gateway"},
};

static void usage(FILE *to)
{
    fprintf(to, "rollgate %s\n\nrollgate COMMAND [settings]\n", RG_VERSION);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(to, "  %-14s %s\n", commands[i].name, commands[i].help);
}

static int help(void)
{
    struct buf out = {0};

    usage(stdout);
    config_help(&out);
    (void)fwrite(out.p, 1, out.len, stdout);
    buf_done(&out);
    return 0;
}

static int wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    }
    return argc > 1 && strcmp(argv[1], "help") == 0;
}

int main(int argc, char **argv)
{
    if (wants_help(argc, argv))
        return help();
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        printf("rollgate %s\n", RG_VERSION);
        return 0;
    }
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (argc > 1)
        fprintf(stderr, "rollgate: no command is called \"%s\"\n\n", argv[1]);
    usage(stderr);
    return 2;
}
