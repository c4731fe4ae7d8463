/*
 * The keeper is a process without a loop: it blocks its signals and waits for them one by one. Each
 * round reaps, kills the remaining processes if it is time to, and waits. The keeper ends when it
 * has no children. While it kills, it checks every 5 ms for processes that were forked meanwhile.
 *
 * The run reports a failed exec through a pipe that closes when exec succeeds. So "cannot be
 * started" differs from "exited with 127". Descriptor 3 is the report, 4 is that pipe. All other
 * descriptors of the executor are closed before the run is forked.
 */
#include "runner/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/os/process_title.h"
#include "runner/cgroup.h"
#include "runner/family.h"

enum { REPORT_FD = 3, FAILED_FD = 4, AGAIN_MS = 5 };

struct keeper {
    const struct keeper_order *order;
    pid_t run;
    int status;       /* exit status of the run */
    bool ended;       /* the run has ended */
    bool killing;     /* all processes must be killed */
    uint64_t kill_ms; /* monotonic: when to kill; 0: not asked to end */
};

/* --- the run, before its exec --- */

static void arrange_descriptors(const struct keeper_order *o)
{
    int none = open("/dev/null", O_RDONLY);
    int report = fcntl(o->report_fd, F_DUPFD, 16), out = fcntl(o->out_fd, F_DUPFD, 16);
    int err = fcntl(o->err_fd, F_DUPFD, 16);

    if (none < 0 || report < 0 || out < 0 || err < 0 || dup2(none, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(err, 2) < 0 || dup2(report, REPORT_FD) < 0)
        _exit(1);
    (void)fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
    (void)close_range(REPORT_FD + 1, ~0U, 0);
}

static void default_signals(void)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

RG_NORETURN static void be_run(const struct keeper_order *o, pid_t keeper)
{
    int why;

    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(1);
    default_signals();
    cgroup_enter(o->cgroup);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* a setuid program gives a run no rights */
    if (chdir(o->folder) == 0)
        (void)execvpe(o->argv[0], o->argv, o->envp);
    why = errno;
    if (write(FAILED_FD, &why, sizeof(why)) < 0)
        _exit(126);
    _exit(127);
}

/* Forks the run. Returns errno's value if it cannot be executed. */
static int start_run(struct keeper *k)
{
    pid_t me = getpid();
    int pair[2], why = 0;
    ssize_t n;

    if (pipe2(pair, O_CLOEXEC))
        return errno;
    k->run = fork();
    if (k->run < 0)
        return errno;
    if (k->run == 0) {
        if (pair[1] != FAILED_FD && dup3(pair[1], FAILED_FD, O_CLOEXEC) < 0)
            _exit(126);
        be_run(k->order, me);
    }
    close(pair[1]);
    do
        n = read(pair[0], &why, sizeof(why));
    while (n < 0 && errno == EINTR);
    close(pair[0]);
    return n == (ssize_t)sizeof(why) ? why : 0;
}

/* --- the keeper --- */

/* Reaps ended children. Returns false if no child is left. */
static bool reap_children(struct keeper *k)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != k->run)
            continue;
        k->ended = true;
        k->status = status;
    }
    return pid == 0 || errno == EINTR;
}

static void kill_all(struct keeper *k)
{
    k->killing = true;
    cgroup_kill(k->order->cgroup);
    (void)family_signal(getpid(), SIGKILL, NULL);
}

static void wait_signal(struct keeper *k, const sigset_t *set)
{
    uint64_t now = clock_ms(), left = 0;
    struct timespec t;
    bool limited = k->killing || k->kill_ms;
    int signo;

    if (k->killing)
        left = AGAIN_MS;
    else if (k->kill_ms > now)
        left = k->kill_ms - now;
    t = (struct timespec){(time_t)(left / 1000), (long)(left % 1000) * 1000000};
    signo = limited ? sigtimedwait(set, NULL, &t) : sigwaitinfo(set, NULL);
    if (signo == SIGTERM && !k->kill_ms) {
        k->kill_ms = clock_ms() + k->order->grace_ms;
        if (k->order->grace_ms > 0)
            (void)family_signal(getpid(), SIGTERM, NULL);
    }
    if (signo == SIGHUP)
        k->killing = true;
}

/* Reaps and kills until no child is left. */
static void keep_run(struct keeper *k, const sigset_t *set)
{
    while (reap_children(k)) {
        if (k->ended || k->killing || (k->kill_ms && clock_ms() >= k->kill_ms))
            kill_all(k);
        wait_signal(k, set);
    }
}

void keeper_run(const struct keeper_order *o)
{
    struct keeper k = {.order = o};
    struct keeper_report report = {0};
    sigset_t set;

    process_title_set("rollgate: keeper of one run");
    process_title_name_thread("rollgate-keeper");
    (void)setsid();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGHUP);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* so that no run traces the keeper; exec undoes this for the run */
    (void)prctl(PR_SET_DUMPABLE, 0);
    if (getppid() != o->executor)
        _exit(1);
    arrange_descriptors(o);
    report.value = start_run(&k);
    if (report.value) {
        report.kind = KEEPER_NOT_STARTED;
        k.ended = true;
    }
    keep_run(&k, &set);
    if (report.kind != KEEPER_NOT_STARTED)
        report = (struct keeper_report){KEEPER_ENDED, k.status};
    if (write(REPORT_FD, &report, sizeof(report)) < 0)
        _exit(1);
    _exit(0);
}
