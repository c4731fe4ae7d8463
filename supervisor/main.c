/*
 * rollgate: one binary with a table of commands.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/nearest.h"
#include "common/os/process_title.h"
#include "runner/runner.h"
#include "supervisor/commands.h"
#include "supervisor/doctor.h"
#include "worker/commands/offline_commands.h"

/* Rows of commands.def: a command, then lines of its help. */
static const struct row {
    const char *name; /* name of a command; NULL: a further line of help for the command above */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *summary, *usage;
    const char *flag, *what; /* row of an option; NULL: a different row */
    const char *example;
    bool settings;
} rows[] = {

#define COMMAND(name_, run_, summary_, usage_) \
    {.name = (name_), .run = (run_), .summary = (summary_), .usage = (usage_)},
#define OPTION(flag_, what_) {.flag = (flag_), .what = (what_)},
#define EXAMPLE(line) {.example = (line)},
#define SETTINGS() {.settings = true},
#include "supervisor/commands.def"
};

/* Returns the row of a command, or NULL. */
static const struct row *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].name && strcmp(rows[i].name, name) == 0)
            return &rows[i];
    }
    return NULL;
}

/* Prints the list of commands. */
static void print_command_list(FILE *to)
{
    fprintf(to, "rollgate %s\nusage: rollgate COMMAND [settings]\n", RG_VERSION);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].name)
            fprintf(to, "  %-14s %s\n", rows[i].name, rows[i].summary);
    }
}

/* The page of `rollgate --help`. */
static int print_commands(void)
{
    print_command_list(stdout);
    printf("rollgate COMMAND --help   options and examples of one command\n"
           "rollgate config --docs    every setting of serve, with its default\n");
    return 0;
}

/* Prints the help of a command from the rows that follow its own: options, then examples. */
static int help_of(const struct row *c)
{
    const struct row *end = rows + ARRAY_LEN(rows);
    bool settings = false, first = true;

    printf("rollgate %s: %s\n\nusage: rollgate %s %s\n", c->name, c->summary, c->name, c->usage);
    for (const struct row *r = c + 1; r < end && !r->name; r++) {
        settings = settings || r->settings;
        if (r->flag)
            printf("%s  %-24s %s\n", first ? "\noptions:\n" : "", r->flag, r->what);
        first = first && !r->flag;
    }
    printf("\nexamples:\n");
    for (const struct row *r = c + 1; r < end && !r->name; r++) {
        if (r->example)
            printf("  %s\n", r->example);
    }
    if (settings)
        printf("\n`rollgate config --docs` lists all settings.\n");
    return 0;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Reports whether help is asked for: "rollgate --help", "rollgate serve ... --help", "rollgate help
 * serve". */
static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (is_help(argv[i]))
            return true;
    }
    return argc > 1 && strcmp(argv[1], "help") == 0;
}

/* Prints the help of one command if a known one is named, else of all. */
static int print_help(int argc, char **argv)
{
    bool word = strcmp(argv[1], "help") == 0;
    const char *name = word ? (argc > 2 ? argv[2] : NULL) : argv[1];
    const struct row *c = name ? find_command(name) : NULL;

    return c ? help_of(c) : print_commands();
}

/* Prints that the command is unknown, with the nearest name if one is near. */
static void print_unknown(const char *name)
{
    struct nearest near = nearest_to(str_cstr(name));

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].name)
            nearest_offer(&near, rows[i].name);
    }
    fprintf(stderr, "rollgate: no command is called \"%s\"", name);
    if (near.name)
        fprintf(stderr, "; did you mean \"%s\"?", near.name);
    fprintf(stderr, "\n\n");
}

/* Returns the status, or 1 if what was printed has not been written, as on a full disk. */
static int end_output(int status)
{
    bool flushed = fflush(stdout) == 0;

    if (flushed && !ferror(stdout))
        return status;
    fprintf(stderr, "rollgate: cannot write to standard output: %s\n",
            flushed ? "an earlier write failed" : strerror(errno));
    return status ? status : 1;
}

/* Returns the command's exit status, or 2 for a wrong usage. */
int main(int argc, char **argv)
{
    const struct row *c;

    argv = process_title_begin(argc, argv);
    c = argc > 1 ? find_command(argv[1]) : NULL;
    if (wants_help(argc, argv))
        return end_output(print_help(argc, argv));
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        printf("rollgate %s\n", RG_VERSION);
        return end_output(0);
    }
    if (c)
        return end_output(c->run(argc - 1, argv + 1));
    if (argc > 1)
        print_unknown(argv[1]);
    print_command_list(stderr);
    return 2;
}
