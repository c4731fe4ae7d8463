/* A trial of a new binary before an upgrade (trial.h). It is started with this gateway's settings,
 * but with its own folders below the run folder, a different address, one worker and one router. It
 * must serve and then end with TRIAL_SERVED. Its output goes to a memory file, whose last error
 * line becomes the reason. So a binary or a configuration that cannot start is found while the old
 * one still serves. */

#include "supervisor/trial.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "supervisor/last_words.h"
#include "supervisor/processes.h"

/* --- its folder --- */

static char *folder_of(const struct trial *t)
{
    struct buf out = {0};

    buf_printf(&out, "%s/t", t->run_dir);
    return buf_take(&out);
}

static void remove_folder(const struct trial *t)
{
    char *path = folder_of(t);

    file_remove_tree(path);
    free(path);
}

/* --- in the child --- */

/* Executes the new binary. */
RG_NORETURN static void be_trial(const struct trial *t, const char *binary, const struct config *c,
                                 const char *address, pid_t parent)
{
    struct buf listen = {0};
    VEC(char *) args = {0};
    sigset_t none;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)dup2(t->said_fd, STDOUT_FILENO);
    (void)dup2(t->said_fd, STDERR_FILENO);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)setenv("RG_TRIAL", folder_of(t), 1);
    buf_printf(&listen, "--listen=%s%s", address, c->listen_tls ? ",tls" : "");
    *vec_push(&args) = (char *)(uintptr_t)binary;
    for (int i = 0; i < c->argc; i++)
        *vec_push(&args) = c->argv[i];
    *vec_push(&args) = buf_take(&listen);
    *vec_push(&args) = NULL;
    (void)execv(binary, args.at);
    dprintf(STDERR_FILENO, "cannot execute it: %s\n", strerror(errno));
    _exit(127);
}

/* --- in the supervisor --- */

int trial_start(struct trial *t, const char *binary, const struct config *c, const char *address,
                struct err *e)
{
    pid_t parent = getpid(), pid;
    int fd = memfd_create("trial", MFD_CLOEXEC);

    if (fd < 0)
        return err_sys(e, ERR_IO, "memfd_create");
    *t = (struct trial){.said_fd = fd, .run_dir = c->run_dir};
    /* removes the folder of a trial that was killed together with its supervisor */
    remove_folder(t);
    pid = fork();
    if (pid == 0)
        be_trial(t, binary, c, address, parent);
    if (pid < 0) {
        err_sys(e, ERR_IO, "fork");
        close(fd);
        return -1;
    }
    t->pid = pid;
    return 0;
}

int trial_end(struct trial *t, int wait_status, struct err *e)
{
    bool served = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == TRIAL_SERVED;
    struct buf words = {0};
    char how[96];

    last_words_read(t->said_fd, &words);
    close(t->said_fd);
    remove_folder(t);
    t->pid = 0;
    process_death(wait_status, how, sizeof(how));
    if (t->too_late)
        (void)snprintf(how, sizeof(how), "it did not serve within --start-timeout");
    if (!served)
        err_set(e, ERR_CONFIG, "%s%s%.*s", how, words.len ? ": " : "",
                (int)MIN_OF(words.len, (size_t)280), words.p ? words.p : "");
    buf_done(&words);
    return served ? 0 : -1;
}

void trial_kill(struct trial *t)
{
    if (t->pid)
        (void)kill(t->pid, SIGKILL);
}

/* --- in the trial --- */

bool trial_is_me(void)
{
    return getenv("RG_TRIAL") != NULL;
}

/* Changes, in the trial itself, the settings that would touch the real gateway. */
void trial_move_aside(struct config *c)
{
    const char *folder = getenv("RG_TRIAL");

    free(c->state_dir);
    free(c->run_dir);
    c->state_dir = mem_strdup(folder);
    c->run_dir = mem_strdup(folder);
    c->workers = c->routers = 1;
    free(c->fleet); /* it joins none */
    c->fleet = NULL;
}
