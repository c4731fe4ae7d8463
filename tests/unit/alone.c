#include "alone.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TESTS_MAX = 256 };

static struct {
    const char *name;
    void (*body)(void);
} tests[TESTS_MAX];

static int n_tests;

void alone_add(const char *name, void (*body)(void))
{
    if (n_tests == TESTS_MAX)
        abort();
    tests[n_tests].name = name;
    tests[n_tests++].body = body;
}

void alone_check(bool holds, const char *what, const char *file, int line)
{
    if (holds)
        return;
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

static bool run(int i)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        tests[i].body();
        exit(0); /* ThreadSanitizer makes it 66 when it has reported something */
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return false;
    if (status != 0)
        (void)printf("[FAIL] %s\n", tests[i].name);
    return status == 0;
}

int main(void)
{
    int failed = 0;

    for (int i = 0; i < n_tests; i++)
        failed += !run(i);
    (void)printf("%d passed, %d failed\n", n_tests - failed, failed);
    return failed > 0;
}
