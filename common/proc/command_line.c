/* Reads flags of commands out of argv (command_line.h). argv[0], the command's name, stays. */
#include "common/proc/command_line.h"

#include <string.h>

/* Removes n arguments from argv[at] on. The list still ends with NULL. */
static void remove_arguments(int *argc, char **argv, int at, int n)
{
    memmove(&argv[at], &argv[at + n], (size_t)(*argc - at - n + 1) * sizeof(*argv));
    *argc -= n;
}

bool command_line_take_flag(int *argc, char **argv, const char *flag)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], flag) != 0)
            continue;
        remove_arguments(argc, argv, i, 1);
        return true;
    }
    return false;
}

const char *command_line_take_value(int *argc, char **argv, const char *flag, const char *otherwise)
{
    size_t len = strlen(flag);

    for (int i = 1; i < *argc; i++) {
        const char *value;
        int words;

        if (strncmp(argv[i], flag, len) != 0 || (argv[i][len] != '=' && argv[i][len] != 0))
            continue;
        words = argv[i][len] == '=' ? 1 : 2;
        if (i + words > *argc)
            return otherwise; /* a flag without its value is kept: the settings refuse it */
        value = words == 1 ? argv[i] + len + 1 : argv[i + 1];
        remove_arguments(argc, argv, i, words);
        return value;
    }
    return otherwise;
}
