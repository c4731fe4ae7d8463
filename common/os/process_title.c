/*
 * The kernel reads a process's command line from the memory where argv began. The environment's
 * strings follow those of argv, so the title may use the memory of both.
 */
#include "common/os/process_title.h"

#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/mem.h"

static char *shown; /* address of the original argv[0] */
/* bytes from `shown` to the end of the last string that follows without a gap */
static size_t n_shown;
static char **kept[2]; /* the copies, which live as long as the process */

/* Copies a list of strings that ends with NULL as one block. Moves `end` to the end of each string
 * that begins at `end`. */
static char **copy_strings(char **from, char **end)
{
    size_t n = 0, bytes = 0;
    char **to, *at;

    for (; from[n]; n++)
        bytes += strlen(from[n]) + 1;
    to = mem_alloc((n + 1) * sizeof(*to) + bytes);
    at = (char *)(to + n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(from[i]) + 1;

        to[i] = memcpy(at, from[i], len);
        at += len;
        if (from[i] == *end)
            *end += len;
    }
    to[n] = NULL;
    return to;
}

char **process_title_begin(int argc, char **argv)
{
    char *end = argc > 0 ? argv[0] : NULL;

    if (!end)
        return argv;
    shown = end;
    kept[0] = copy_strings(argv, &end);
    environ = kept[1] = copy_strings(environ, &end);
    n_shown = (size_t)(end - shown);
    return kept[0];
}

void process_title_set(const char *title)
{
    size_t n = strlen(title);

    if (n_shown == 0)
        return;
    if (n > n_shown - 1)
        n = n_shown - 1;
    memcpy(shown, title, n);
    memset(shown + n, 0, n_shown - n);
}

void process_title_name_thread(const char *name)
{
    (void)prctl(PR_SET_NAME, name);
}
