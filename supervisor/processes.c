/* Functions of the process table (processes.h): the text about a death, the wait before a restart,
 * and the places that a process has adopted. Pure except for closing descriptors. */

#include "supervisor/processes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/proc/board.h"

void process_death(int wait_status, char *out, size_t size)
{
    if (WIFSIGNALED(wait_status))
        (void)snprintf(out, size, "killed by signal %d (%s)%s", WTERMSIG(wait_status),
                       strsignal(WTERMSIG(wait_status)),
                       WCOREDUMP(wait_status) ? ", core dumped" : "");
    else
        (void)snprintf(out, size, "exit status %d", WEXITSTATUS(wait_status));
}

/* The wait doubles from BACKOFF_FIRST_MS to BACKOFF_MAX_MS. A process that lived for
 * BACKOFF_RESET_MS begins with the first one again. */
int64_t process_backoff(int64_t *backoff_ms, int64_t lived_ms)
{
    int64_t wait;

    if (lived_ms >= BACKOFF_RESET_MS || *backoff_ms == 0)
        *backoff_ms = BACKOFF_FIRST_MS;
    wait = *backoff_ms;
    *backoff_ms = MIN_OF(*backoff_ms * 2, BACKOFF_MAX_MS);
    return wait;
}

bool process_is_foreign(const struct process *p)
{
    return p->heritage.role == ROLE_WORKER &&
           board_is_foreign(p->heritage.board, p->heritage.place);
}

/* The heritage points to the array, which may have moved. */
bool process_add_place(struct process *p, const struct heritage_place *place)
{
    size_t n = p->heritage.n_adopted;

    for (size_t i = 0; i < n; i++) {
        if (p->adopted[i].place == place->place)
            return false;
    }
    p->adopted = mem_realloc_array(p->adopted, n + 1, sizeof(*p->adopted));
    p->adopted[n] = *place;
    p->heritage.adopted = p->adopted;
    p->heritage.n_adopted = n + 1;
    return true;
}

/* Frees what a slot owns; the slot can be used again. */
void process_done(struct process *p)
{
    free(p->adopted);
    p->adopted = NULL;
    p->heritage.adopted = NULL;
    p->heritage.n_adopted = 0;
    if (p->control_fd >= 0)
        close(p->control_fd);
    p->control_fd = -1;
}
