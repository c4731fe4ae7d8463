/* Failed CHECKs (check.h): one line to stderr, the same line where the supervisor finds it after
 * the death (the page of last words on the board), then abort. Nothing is allocated: the heap
 * may be what is broken. */

#include "common/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *last_words;
static size_t last_words_len;

void check_set_last_words(char *page, size_t len)
{
    last_words = page;
    last_words_len = len;
}

void check_failed(const char *file, int line, const char *what)
{
    char text[256];
    int n = snprintf(text, sizeof(text), "check failed: %s:%d: %s\n", file, line, what);

    if (n < 0)
        n = 0;
    if ((size_t)n >= sizeof(text))
        n = (int)sizeof(text) - 1;
    if (write(STDERR_FILENO, text, (size_t)n) < 0) {
        /* Nothing is left to tell it to. */
    }
    if (last_words && last_words_len > 0) {
        size_t keep = (size_t)n < last_words_len ? (size_t)n : last_words_len - 1;

        memcpy(last_words, text, keep);
        last_words[keep] = 0;
    }
    abort();
}
