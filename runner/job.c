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
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "runner/cgroup.h"
#include "runner/family.h"
#include "runner/keeper.h"

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
