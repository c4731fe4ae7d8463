/* A trial of a new binary before an upgrade (trial.h): it is started with this gateway's
 * settings, but aside: folders of its own below the run folder, another address, one worker and
 * one router. It must serve and then end with TRIAL_SERVED; what it prints goes to a memory
 * file, whose last line about an error becomes the reason. So a binary or a configuration that
 * cannot start is found while the old one still serves. */

#include "supervisor/trial.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/proc/config.h"
#include "supervisor/processes.h"

enum { SAID_MAX = 4096, FOLDERS_OPEN = 16 };

/* --- its folder --- */

static char *folder_of(const struct trial *t)
{
    struct buf out = {0};

    buf_printf(&out, "%s/t", t->run_dir);
    return buf_take(&out);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    (void)remove(path);
    return 0;
}

static void remove_folder(const struct trial *t)
{
    char *path = folder_of(t);

    (void)nftw(path, remove_one, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
    free(path);
}

/* --- in the child --- */

/* Becomes the new binary; does not return. */
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
    buf_printf(&listen, "--listen=%s", address);
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

/* -1: nothing was started. */
int trial_start(struct trial *t, const char *binary, const struct config *c, const char *address,
                struct err *e)
{
    pid_t parent = getpid(), pid;
    int fd = memfd_create("trial", MFD_CLOEXEC);

    if (fd < 0)
        return err_sys(e, ERR_IO, "memfd_create");
    *t = (struct trial){.said_fd = fd, .run_dir = c->run_dir};
    remove_folder(t); /* of one that was killed together with its supervisor */
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

/* The last line that tells of an error, else the last line. */
static struct str last_words(struct str said)
{
    struct str last = str_of("", 0);
    bool is_error = false;

    while (said.len) {
        size_t end = str_find(said, STR("\n"), 0);
        struct str line = str_trim(str_sub(said, 0, end));
        bool error = str_find(line, STR("error"), 0) != SIZE_MAX;

        said = end == SIZE_MAX ? str_of("", 0) : str_sub(said, end + 1, SIZE_MAX);
        if (line.len && (error || !is_error)) {
            last = line;
            is_error |= error;
        }
    }
    return last;
}

/* 0: it served. Else e has why not. */
int trial_end(struct trial *t, int wait_status, struct err *e)
{
    bool served = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == TRIAL_SERVED;
    char text[SAID_MAX], how[96];
    off_t size = lseek(t->said_fd, 0, SEEK_END);
    ssize_t n = pread(t->said_fd, text, sizeof(text), MAX_OF(size - SAID_MAX, 0));
    struct str words = last_words(str_of(text, (size_t)MAX_OF(n, 0)));

    close(t->said_fd);
    remove_folder(t);
    t->pid = 0;
    process_death(wait_status, how, sizeof(how));
    if (served)
        return 0;
    if (t->too_late)
        (void)snprintf(how, sizeof(how), "it did not serve within --start-timeout");
    return err_set(e, ERR_CONFIG, "%s%s%.*s", how, words.len ? ": " : "",
                   (int)MIN_OF(words.len, (size_t)280), words.p);
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

/* In the trial itself: the settings that must not touch the real gateway. */
void trial_move_aside(struct config *c)
{
    const char *folder = getenv("RG_TRIAL");

    free(c->state_dir);
    free(c->run_dir);
    c->state_dir = mem_strdup(folder);
    c->run_dir = mem_strdup(folder);
    c->workers = c->routers = 1;
}
