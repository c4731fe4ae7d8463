#include "supervisor/processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

/* The pause is 100 ms, doubled for each early death, at most 10 s. After a minute of life it begins
 * at 100 ms again. */
TEST(processes, back_off_doubles_and_forgets)
{
    static const int64_t want[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    int64_t memory = 0;

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
        cr_assert_eq(process_backoff(&memory, 10), want[i], "death %zu", i);
    cr_assert_eq(process_backoff(&memory, BACKOFF_RESET_MS - 1), BACKOFF_MAX_MS,
                 "a moment less than a minute is soon");
    cr_assert_eq(process_backoff(&memory, BACKOFF_RESET_MS), BACKOFF_FIRST_MS);
    cr_assert_eq(process_backoff(&memory, 0), 2 * BACKOFF_FIRST_MS);
}

/* Returns the wait status of a child that exits with exit_status or dies of signo. */
static int end_of_child(int exit_status, int signo)
{
    int status = 0;
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0) {
        if (signo)
            (void)raise(signo);
        _exit(exit_status);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

TEST(processes, a_death_is_told_in_words)
{
    char text[240];

    process_death(end_of_child(3, 0), text, sizeof(text));
    cr_assert_str_eq(text, "exit status 3");
    process_death(end_of_child(0, SIGKILL), text, sizeof(text));
    cr_assert_str_eq(text, "killed by signal 9 (Killed)");
    process_death(end_of_child(0, SIGKILL), text, 10);
    cr_assert_str_eq(text, "killed by", "cut, not overrun");
}

TEST(processes, places_are_added_once)
{
    struct process p = {.control_fd = -1};
    struct heritage_place a = {.place = 1, .index = 1, .listen_fd = 5},
                          b = {.place = 2, .index = 2, .listen_fd = 6};

    cr_assert(process_add_place(&p, &a));
    cr_assert(process_add_place(&p, &b));
    cr_assert_not(process_add_place(&p, &a));
    cr_assert_eq(p.heritage.n_adopted, 2u);
    cr_assert_eq(p.heritage.adopted[0].listen_fd, 5);
    cr_assert_eq(p.heritage.adopted[1].place, 2u);
    process_done(&p);
    cr_assert_eq(p.heritage.n_adopted, 0u);
    cr_assert(process_add_place(&p, &b), "the slot may be used again");
    process_done(&p);
}
