/* Failed CHECKs (check.h): one line to stderr, the same text to the page of last words, where the
 * supervisor finds it after the death, then abort. Nothing is allocated, because the heap may be
 * broken. */

#include "common/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *last_words;
static size_t last_words_len;

static struct {
    const char *role;
    bool json, journald;
} form; /* format of the line, as set up for the log */

void check_set_last_words(char *page, size_t len)
{
    last_words = page;
    last_words_len = len;
}

void check_set_log(const char *role, bool json, bool journald)
{
    form.role = role;
    form.json = json;
    form.journald = journald;
}

/* Writes the line of a failed check as JSON. Quotes in the text of the condition become
 * apostrophes. */
static void write_json_line(const char *file, int line, const char *what)
{
    char out[512], text[200], at[40];
    struct timespec now = {0};
    struct tm tm = {0};
    int n;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &tm));
    (void)snprintf(text, sizeof(text), "%s", what);
    for (char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            *p = '\'';
    }
    n = snprintf(out, sizeof(out),
                 "%s{\"ts\":\"%s.%03ldZ\",\"level\":\"error\",\"role\":\"%s\",\"pid\":%d,"
                 "\"msg\":\"check failed\",\"fields\":{\"at\":\"%s:%d\",\"what\":\"%s\"}}\n",
                 form.journald ? "<3>" : "", at, now.tv_nsec / 1000000, form.role, (int)getpid(),
                 file, line, text);
    if (write(STDERR_FILENO, out, (size_t)n < sizeof(out) ? (size_t)n : sizeof(out) - 1) < 0) {
        /* stderr is closed: no reader is left */
    }
}

void check_failed(const char *file, int line, const char *what)
{
    char text[256];
    int n = snprintf(text, sizeof(text), "check failed: %s:%d: %s\n", file, line, what);

    if (n < 0)
        n = 0;
    if ((size_t)n >= sizeof(text))
        n = (int)sizeof(text) - 1;
    if (form.json)
        write_json_line(file, line, what);
    else if (write(STDERR_FILENO, text, (size_t)n) < 0) {
        /* stderr is closed: no other way to report */
    }
    if (last_words && last_words_len > 0) {
        size_t keep = (size_t)n < last_words_len ? (size_t)n : last_words_len - 1;

        memcpy(last_words, text, keep);
        last_words[keep] = 0;
    }
    abort();
}
