/*
 * A job has three pipes: the keeper's report, standard output and, if it is wanted separately,
 * standard error. SIGCHLD ends it. jobs_reap finds the job by its keeper's pid, reads the report,
 * then all output that is still in the pipes, then calls `ended`. Later output would have no
 * reader.
 *
 * A keeper that was killed leaves no report. Its descendants become children of the executor, the
 * next subreaper, and are killed here. Other keepers are spared.
 */
#include "runner/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/os/process_title.h"
#include "runner/cgroup.h"
#include "runner/family.h"

/* --- the keeper of a job's processes --- */

/* A keeper: the process between the executor and one run. It is the subreaper of all processes that
 * the run starts, so none escapes by forking twice. It ends when all of them have ended:
 *
 *     executor -> keeper -> the run (own session and group) -> ...
 *
 *   the run ends          processes that it left are killed, the status is reported
 *   TERM to the keeper    TERM to all, KILL after the grace
 *   the executor dies     KILL to all, at once
 *
 * The keeper is a process without a loop: it blocks its signals and waits for them one by one. Each
 * round reaps, kills the remaining processes if it is time to, and waits. The keeper ends when it
 * has no children. While it kills, it checks every 5 ms for processes that were forked meanwhile.
 *
 * The run reports a failed exec through a pipe that closes when exec succeeds. So "cannot be
 * started" differs from "exited with 127". Descriptor 3 is the report, 4 is that pipe. All other
 * descriptors of the executor are closed before the run is forked. */

struct keeper_order {
    char *const *argv;  /* program and arguments; argv[0] is searched in the executor's PATH */
    char *const *envp;  /* the run's whole environment */
    const char *folder; /* working folder */
    const char *cgroup; /* path of the run's group; NULL: none */
    uint64_t grace_ms;
    int out_fd, err_fd, report_fd; /* write ends of pipes */
    pid_t executor;
};

/* The keeper's one report on report_fd, at its end. */
struct keeper_report {
    enum { KEEPER_NOT_STARTED = 1, KEEPER_ENDED } kind;

    int value; /* an errno or a wait status, depending on the kind */
};

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

/* Runs the keeper in the forked child; never returns. */
static void keeper_run(const struct keeper_order *o)
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

/* --- jobs --- */

enum { READ_BYTES = 65536 };

struct job_stream {
    struct loop_io io;
    struct job *job;
    int fd; /* -1: closed */
};

struct job {
    struct loop *loop;
    const struct job_events *events;
    void *ctx;
    pid_t keeper;
    char *cgroup; /* NULL: none */
    int report_fd;
    struct job_stream out, err; /* err: only if standard error is separate */
};

/* All jobs of the process, by their keepers' pids. A child that is not a keeper is an orphan of a
 * keeper that was killed. */
static struct map jobs;

/* Returns the bytes of a pid as a key; borrowed. */
static struct str pid_key(const pid_t *pid)
{
    return str_of((const char *)pid, sizeof(*pid));
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void stream_close(struct job_stream *s)
{
    if (s->fd < 0)
        return;
    loop_del(s->job->loop, &s->io);
    close_fd(&s->fd);
}

/* Reads once. Returns false if nothing can be read now. */
static bool stream_read(struct job_stream *s)
{
    static char bytes[READ_BYTES];
    ssize_t n = s->fd >= 0 ? read(s->fd, bytes, sizeof(bytes)) : 0;

    if (n > 0) {
        s->job->events->output(s->job->ctx, s == &s->job->err, str_of(bytes, (size_t)n));
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        stream_close(s);
    return false;
}

static void on_readable(struct loop_io *io, unsigned events)
{
    (void)events;
    (void)stream_read(CONTAINER_OF(io, struct job_stream, io));
}

static int stream_open(struct job *j, struct job_stream *s, int fd, struct err *e)
{
    s->job = j;
    s->fd = fd;
    return fd < 0 ? 0 : loop_add(j->loop, &s->io, fd, LOOP_IN | LOOP_LEVEL, on_readable, e);
}

static int open_pipes(int pipes[3][2], size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (pipe2(pipes[i], O_CLOEXEC) || fcntl(pipes[i][0], F_SETFL, O_NONBLOCK))
            return err_sys(e, ERR_IO, "cannot open a pipe");
    return 0;
}

static void job_free(struct job *j)
{
    stream_close(&j->out);
    stream_close(&j->err);
    close_fd(&j->report_fd);
    cgroup_remove(j->cgroup);
    free(j);
}

static pid_t fork_keeper(const struct job *j, const struct job_spec *spec, int pipes[3][2],
                         struct err *e)
{
    struct keeper_order order = {.argv = spec->argv,
                                 .envp = spec->envp,
                                 .folder = spec->folder,
                                 .cgroup = j->cgroup,
                                 .grace_ms = spec->grace_ms,
                                 .out_fd = pipes[1][1],
                                 .err_fd = spec->apart ? pipes[2][1] : pipes[1][1],
                                 .report_fd = pipes[0][1],
                                 .executor = getpid()};
    pid_t pid = fork();

    if (pid == 0)
        keeper_run(&order);
    if (pid < 0)
        (void)err_sys(e, ERR_IO, "cannot fork");
    return pid;
}

int job_start(struct loop *l, const struct job_spec *spec, const struct job_events *events,
              void *ctx, struct job **ret, struct err *e)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    struct job *j = mem_zalloc(sizeof(*j));

    *j = (struct job){.loop = l, .events = events, .ctx = ctx, .report_fd = -1};
    j->out.fd = j->err.fd = -1;
    j->cgroup = cgroup_make();
    if (open_pipes(pipes, spec->apart ? 3 : 2, e))
        goto fail;
    j->keeper = fork_keeper(j, spec, pipes, e);
    if (j->keeper < 0)
        goto fail;
    for (size_t i = 0; i < 3; i++)
        close_fd(&pipes[i][1]);
    j->report_fd = pipes[0][0];
    (void)map_set(&jobs, pid_key(&j->keeper), j);
    if (stream_open(j, &j->out, pipes[1][0], e) || stream_open(j, &j->err, pipes[2][0], e))
        log_warn(NULL, "a run's output cannot be read", LOG_T("error", e->text));
    *ret = j;
    return 0;
fail:
    for (size_t i = 0; i < 6; i++)
        close_fd(&pipes[i / 2][i % 2]);
    cgroup_remove(j->cgroup);
    free(j);
    return -1;
}

void job_stop(struct job *j)
{
    (void)kill(j->keeper, SIGTERM);
}

/* --- ends --- */

static bool is_keeper(pid_t pid)
{
    return map_get(&jobs, pid_key(&pid)) != NULL;
}

static void job_over(struct job *j)
{
    struct keeper_report report;
    struct job_end end = {.lost = true};

    if (read(j->report_fd, &report, sizeof(report)) == (ssize_t)sizeof(report)) {
        end.lost = false;
        end.not_started = report.kind == KEEPER_NOT_STARTED ? report.value : 0;
        end.status = report.kind == KEEPER_ENDED ? report.value : 0;
    }
    (void)map_take(&jobs, pid_key(&j->keeper));
    while (stream_read(&j->out) || stream_read(&j->err))
        continue;
    if (end.lost) /* the keeper's descendants became our children */
        cgroup_kill(j->cgroup);
    if (end.lost)
        (void)family_signal(getpid(), SIGKILL, is_keeper);
    j->events->ended(j->ctx, &end);
    job_free(j);
}

/* Ends a run whose keeper was stopped, then the keeper: a stopped keeper enforces no timeout. Only
 * SIGSTOP stops a keeper, and its run may send it. */
static void end_stopped(struct job *j)
{
    cgroup_kill(j->cgroup);
    (void)family_signal(j->keeper, SIGKILL, NULL);
    (void)kill(j->keeper, SIGKILL); /* children that were forked meanwhile become ours */
}

void jobs_reap(void)
{
    bool orphans = false;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        struct job *j = map_get(&jobs, pid_key(&pid));

        if (j && WIFSTOPPED(status))
            end_stopped(j);
        else if (j)
            job_over(j);
        else
            orphans = true;
    }
    if (orphans) /* children of a killed orphan become ours, too */
        (void)family_signal(getpid(), SIGKILL, is_keeper);
}
