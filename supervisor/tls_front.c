/* nginx as a child (tls_front.h). Its master runs in a process group of its own. If the master
 * is killed, its workers would keep the port, so the group is asked to finish before the next
 * start. */
#include "supervisor/tls_front.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "common/proc/redaction.h"
#include "supervisor/nginx_site.h"
#include "supervisor/supervisor_internal.h"

struct tls_front {
    struct supervisor *supervisor;
    pid_t pid;         /* 0: nginx does not run */
    struct loop_io io; /* watches nginx's standard error */
    int output_fd;     /* pipe from nginx's standard error; -1: none */
    struct buf line;   /* an incomplete line of the output */
    uint64_t stamp;    /* time stamp of the certificate and key that nginx has read */
    uint64_t seen;     /* time stamp of both files at the last check */
    int64_t started_ms, backoff_ms, look_ms;
    struct loop_timer again;
};

enum { LOOK_MS = 1000, LINE_MAX_BYTES = 2048, CONNECTIONS_MAX = 16384 };

static const char LEFT[] = "RG_FRONT";

static struct supervisor *supervisor_of_front(struct tls_front *f)
{
    return f->supervisor;
}

/* Finds nginx in PATH and Debian's folder; the caller frees the result. NULL: there is no nginx. */
static char *find_nginx(void)
{
    const char *path = getenv("PATH");
    struct buf dirs = {0}, file = {0};
    char *save = NULL;

    buf_printf(&dirs, "%s:/usr/sbin%c", path ? path : "", 0);
    for (char *dir = strtok_r(dirs.p, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
        buf_clear(&file);
        buf_printf(&file, "%s/nginx%c", dir, 0);
        if (access(file.p, X_OK) == 0) {
            buf_done(&dirs);
            return buf_take(&file);
        }
    }
    buf_done(&dirs);
    buf_done(&file);
    return NULL;
}

/* --- the settings --- */

/* Checks that the file exists and, if it is `secret`, that no other user may read it. Does not open
 * it. */
static void check_file(const struct config *c, const char *flag, const char *path, bool secret,
                       struct buf *mistakes)
{
    struct stat st;

    if (!path)
        buf_printf(mistakes, "--%s: %s needs it\n", flag,
                   c->listen_tls ? "--listen ADDRESS,tls" : "--front nginx");
    else if (stat(path, &st))
        buf_printf(mistakes, "--%s: %s: %s\n", flag, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        buf_printf(mistakes, "--%s: %s is not a file\n", flag, path);
    else if (secret && (st.st_mode & 0007))
        buf_printf(mistakes, "--%s: %s can be read by every user: chmod 600 it\n", flag, path);
    else if (!c->listen_tls && !nginx_site_is_value(path))
        buf_printf(mistakes, "--%s: \"%s\" cannot stand in an nginx file\n", flag, path);
}

static bool listens_on_loopback(const char *listen_at)
{
    return strncmp(listen_at, "127.", 4) == 0 || strncmp(listen_at, "[::1]:", 6) == 0 ||
           strncmp(listen_at, "localhost:", 10) == 0;
}

/* Checks the certificate and key. Both kinds of TLS, which exclude each other, use the same
 * settings. */
static void check_files(const struct config *c, struct buf *mistakes)
{
    check_file(c, "tls-certificate", c->tls_certificate, false, mistakes);
    check_file(c, "tls-key", c->tls_key, true, mistakes);
}

/* Checks --listen ADDRESS,tls: programs that would use plain HTTP on the port are refused. */
static void check_listen(const struct config *c, struct buf *mistakes)
{
    static const char tail[] = "by plain HTTP, which --listen ADDRESS,tls refuses";

    check_files(c, mistakes);
    if (c->front != FRONT_NONE)
        buf_printf(mistakes, "--front: nginx reaches the port %s\n", tail);
    if (c->peer.n > 0)
        buf_printf(mistakes, "--peer: nodes reach each other %s\n", tail);
    if (c->runners)
        buf_printf(mistakes, "--runners: its executor reaches the port %s: use `rollgate runner`\n",
                   tail);
}

void tls_front_check(const struct config *c, struct buf *mistakes)
{
    const char *colon = c->front_listen ? strrchr(c->front_listen, ':') : NULL;
    uint64_t port;
    char *nginx;

    if (c->listen_tls) {
        check_listen(c, mistakes);
        return;
    }
    if (c->tls_client_ca)
        buf_puts(mistakes, "--tls-client-ca: has no effect without --listen ADDRESS,tls\n");
    if (c->front == FRONT_NONE) {
        if (c->tls_certificate || c->tls_key)
            buf_printf(mistakes,
                       "--tls-%s: has no effect without --front nginx or --listen ADDRESS,tls\n",
                       c->tls_certificate ? "certificate" : "key");
        return;
    }
    if (c->upstream.n > 0)
        buf_puts(mistakes, "--front: `rollgate route` starts none; use `rollgate nginx-config`\n");
    check_files(c, mistakes);
    if (!colon || str_to_u64(str_cstr(colon + 1), 65535, &port) || port == 0 ||
        !nginx_site_is_value(c->front_listen))
        buf_printf(mistakes, "--front-listen: \"%s\" is not HOST:PORT\n",
                   c->front_listen ? c->front_listen : "");
    else if (!listens_on_loopback(c->front_listen) && !c->admin_key_file && !c->insecure)
        buf_printf(mistakes,
                   "--front-listen %s: listening beyond loopback needs keys: set "
                   "--admin-key-file (or --insecure)\n",
                   c->front_listen);
    if (c->run_dir && !nginx_site_is_value(c->run_dir))
        buf_printf(mistakes, "--run-dir: \"%s\" cannot be written in an nginx file\n", c->run_dir);
    nginx_site_check(c, mistakes);
    nginx = find_nginx();
    if (!nginx)
        buf_puts(mistakes,
                 "--front: no nginx in PATH and /usr/sbin: apt-get install nginx-light\n");
    free(nginx);
}

/* --- its configuration file --- */

/* Returns a stamp that changes with either file. Reads only their metadata. */
static uint64_t stamp_files(const struct config *c)
{
    return file_stamp(c->tls_certificate) * 31 + file_stamp(c->tls_key);
}

static void add_folder(const struct supervisor *s, const char *name, struct buf *out)
{
    buf_printf(out, "%s/nginx%s%s", s->config->run_dir, *name ? "/" : "", name);
}

/* Adds the user of nginx's workers if we are root: the gateway's user, or nobody. */
static void add_user(const struct config *c, struct buf *out)
{
    /* The supervisor has one thread. */
    // cppcheck-suppress getpwnamCalled
    const struct passwd *p = getpwnam(c->user ? c->user : "nobody");
    // cppcheck-suppress getgrgidCalled
    const struct group *g = p ? getgrgid(p->pw_gid) : NULL;

    if (geteuid() == 0 && p && g)
        buf_printf(out, "user %s %s;\n", p->pw_name, g->gr_name);
}

/* Writes the whole nginx.conf into `out`. */
static void add_file(const struct supervisor *s, struct buf *out)
{
    static const char *const temps[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    const struct config *c = s->config;
    const char *listen_at = c->front_listen[0] == ':' ? c->front_listen + 1 : c->front_listen;
    const struct nginx_site site = {.name = "_",
                                    .certificate = c->tls_certificate,
                                    .key = c->tls_key,
                                    .listen = listen_at,
                                    .node = s->listeners.address};
    struct rlimit r = {0};

    (void)getrlimit(RLIMIT_NOFILE, &r);
    buf_puts(out, "# Written by rollgate serve --front nginx.\ndaemon off;\n");
    add_user(c, out);
    buf_puts(out, "worker_processes auto;\npid ");
    add_folder(s, "pid", out);
    buf_printf(out, ";\nerror_log stderr warn;\nevents { worker_connections %llu; }\n",
               (unsigned long long)MIN_OF(r.rlim_cur / 2, (rlim_t)CONNECTIONS_MAX));
    buf_puts(out, "http {\naccess_log off;\nserver_tokens off;\n");
    for (size_t i = 0; i < ARRAY_LEN(temps); i++) {
        buf_printf(out, "%s_temp_path ", temps[i]);
        add_folder(s, temps[i], out);
        buf_puts(out, ";\n");
    }
    nginx_site_add(c, &site, out);
    buf_puts(out, "}\n");
}

static int write_file(const struct supervisor *s, struct err *e)
{
    struct buf folder = {0}, path = {0}, part_path = {0}, text = {0};
    int rc = 0;

    add_folder(s, "", &folder);
    buf_add_c(&folder, 0);
    add_folder(s, "nginx.conf", &path);
    add_folder(s, "nginx.conf.new", &part_path);
    buf_add_c(&path, 0);
    buf_add_c(&part_path, 0);
    add_file(s, &text);
    if (mkdir(folder.p, 0711) && errno != EEXIST)
        rc = err_sys(e, ERR_IO, "cannot make %s", folder.p);
    else if (file_write(path.p, part_path.p, buf_str(&text), false))
        rc = err_sys(e, ERR_IO, "cannot write %s", path.p);
    buf_done(&folder);
    buf_done(&path);
    buf_done(&part_path);
    buf_done(&text);
    return rc;
}

/* --- its output --- */

/* Logs one line of the form "2026/11/29 16:00:00 [warn] 12#12: *5 text" with its level. The text
 * may contain a request line with keys in its query, which are removed. */
static void log_line(struct str line)
{
    struct buf safe = {0};
    size_t open = str_find(line, STR("["), 0), close_at = str_find(line, STR("]"), 0);
    struct str name = {0};
    enum log_level level = LOG_WARN;

    if (open < close_at && close_at != SIZE_MAX) {
        name = str_sub(line, open + 1, close_at - open - 1);
        line = str_trim(str_sub(line, close_at + 1, SIZE_MAX));
    }
    if (str_eq_c(name, "emerg") || str_eq_c(name, "alert") || str_eq_c(name, "crit"))
        level = LOG_ERROR;
    else if (str_eq_c(name, "notice") || str_eq_c(name, "info"))
        level = LOG_INFO;
    redaction_add(line, &safe);
    if (level == LOG_ERROR)
        log_error(NULL, "nginx", LOG_S("line", buf_str(&safe)));
    else if (level == LOG_WARN)
        log_warn(NULL, "nginx", LOG_S("line", buf_str(&safe)));
    else
        log_info(NULL, "nginx", LOG_S("line", buf_str(&safe)));
    buf_done(&safe);
}

/* Logs all complete lines. A line that does not end is cut. */
static void log_lines(struct tls_front *f)
{
    size_t end;

    while ((end = str_find(buf_str(&f->line), STR("\n"), 0)) != SIZE_MAX) {
        log_line(str_sub(buf_str(&f->line), 0, end));
        memmove(f->line.p, f->line.p + end + 1, f->line.len - end - 1);
        f->line.len -= end + 1;
    }
    if (f->line.len > LINE_MAX_BYTES) {
        log_line(buf_str(&f->line));
        buf_clear(&f->line);
    }
}

static void close_output(struct tls_front *f)
{
    if (f->output_fd < 0)
        return;
    loop_del(supervisor_of_front(f)->loop, &f->io);
    close(f->output_fd);
    f->output_fd = -1;
}

static void on_output(struct loop_io *io, unsigned events)
{
    struct tls_front *f = CONTAINER_OF(io, struct tls_front, io);
    char text[4096];
    ssize_t n;

    (void)events;
    while ((n = read(f->output_fd, text, sizeof(text))) > 0) {
        buf_add(&f->line, text, (size_t)n);
        log_lines(f);
    }
    if (n == 0)
        close_output(f);
}

/* --- its life --- */

static void on_front_restart(struct loop_timer *t)
{
    tls_front_start(supervisor_of_front(CONTAINER_OF(t, struct tls_front, again)));
}

static void try_later(struct supervisor *s, int64_t lived_ms)
{
    struct tls_front *f = s->front;

    loop_timer_set(s->loop, &f->again, (uint64_t)process_backoff(&f->backoff_ms, lived_ms),
                   on_front_restart);
}

/* Becomes nginx, in the child. All our descriptors except the standard ones are close-on-exec. HUP
 * stays blocked, because a HUP before nginx has a handler would end it. nginx unblocks it when it
 * waits for signals, and in its workers. */
RG_NORETURN static void become_nginx(const struct supervisor *s, const char *binary, int output,
                                     pid_t parent)
{
    struct buf folder = {0}, file = {0};
    sigset_t early;

    add_folder(s, "", &folder);
    add_folder(s, "nginx.conf", &file);
    buf_add_c(&folder, 0);
    buf_add_c(&file, 0);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    (void)dup2(output, STDERR_FILENO);
    sigemptyset(&early);
    sigaddset(&early, SIGHUP);
    (void)sigprocmask(SIG_SETMASK, &early, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execl(binary, "nginx", "-e", "stderr", "-p", folder.p, "-c", file.p, (char *)NULL);
    dprintf(STDERR_FILENO, "[emerg] cannot execute %s: %s\n", binary, strerror(errno));
    _exit(127);
}

/* Forks and becomes nginx in the child. Returns 0, or -1 with errno. */
static int fork_nginx(struct supervisor *s, const char *binary, struct err *e)
{
    struct tls_front *f = s->front;
    pid_t parent = getpid();
    int fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
        return err_sys(e, ERR_IO, "pipe");
    f->pid = fork();
    if (f->pid == 0)
        become_nginx(s, binary, fds[1], parent);
    close(fds[1]);
    if (f->pid < 0) {
        f->pid = 0;
        close(fds[0]);
        return err_sys(e, ERR_IO, "fork");
    }
    f->output_fd = fds[0];
    return loop_add(s->loop, &f->io, f->output_fd, LOOP_IN, on_output, e);
}

void tls_front_start(struct supervisor *s)
{
    struct tls_front *f = s->front;
    struct err e = {0};
    char *binary;

    /* the front was started by the binary before an upgrade */
    if (f->pid && f->output_fd >= 0 && !f->io.mask)
        f->output_fd =
            loop_add(s->loop, &f->io, f->output_fd, LOOP_IN, on_output, &e) ? -1 : f->output_fd;
    if (s->phase != PHASE_SERVING || s->upgrade.is_trial)
        return;
    /* the front was started by the binary before an upgrade, with other settings */
    if (f->pid && s->config->front == FRONT_NONE)
        tls_front_end(s, SIGQUIT);
    if (f->pid || s->config->front == FRONT_NONE)
        return;
    close_output(f);
    f->stamp = f->seen = stamp_files(s->config);
    binary = find_nginx();
    if (!binary)
        err_set(&e, ERR_CONFIG, "there is no nginx");
    if (!binary || write_file(s, &e) || fork_nginx(s, binary, &e)) {
        log_error(NULL, "the front cannot start", LOG_T("reason", e.text));
        try_later(s, 0);
    } else {
        f->started_ms = (int64_t)clock_ms();
        log_info(NULL, "front started", LOG_I("front_pid", f->pid),
                 LOG_T("listen", s->config->front_listen));
    }
    free(binary);
}

bool tls_front_bury(struct supervisor *s, pid_t pid, int wait_status)
{
    struct tls_front *f = s->front;
    char how[96];

    if (!f->pid || f->pid != pid)
        return false;
    /* ends workers whose master is gone, so that they release the port */
    (void)kill(-pid, SIGQUIT);
    f->pid = 0;
    process_death(wait_status, how, sizeof(how));
    if (s->phase != PHASE_SERVING || s->config->front == FRONT_NONE)
        return true;
    log_error(NULL, "the front ended, replacing it", LOG_I("died_pid", pid), LOG_T("how", how));
    metrics_count_at(s->page, METRIC_restarts, METRIC_ROLE_FRONT, 0, 1);
    try_later(s, (int64_t)clock_ms() - f->started_ms);
    return true;
}

void tls_front_reload(struct supervisor *s)
{
    struct tls_front *f = s->front;
    struct err e;

    if (!f->pid || s->config->front == FRONT_NONE)
        return;
    f->stamp = f->seen = stamp_files(s->config);
    if (write_file(s, &e))
        log_error(NULL, "the front's site cannot be written", LOG_T("reason", e.text));
    else
        (void)kill(f->pid, SIGHUP);
}

/* If one file was just replaced, the other may follow. So nginx reads them when both are unchanged
 * in two checks. */
void tls_front_watch(struct supervisor *s)
{
    struct tls_front *f = s->front;
    int64_t now = (int64_t)clock_ms();
    uint64_t stamp;

    if (!f->pid || s->config->front == FRONT_NONE || now < f->look_ms)
        return;
    f->look_ms = now + LOOK_MS;
    stamp = stamp_files(s->config);
    if (stamp != f->stamp && stamp == f->seen) {
        log_info(NULL, "the certificate has changed: the front reads it");
        tls_front_reload(s);
    }
    f->seen = stamp;
}

void tls_front_end(struct supervisor *s, int signo)
{
    struct tls_front *f = s->front;

    loop_timer_stop(s->loop, &f->again);
    if (f->pid)
        (void)kill(signo == SIGKILL ? -f->pid : f->pid, signo);
}

/* --- upgrades --- */

void tls_front_leave(const struct supervisor *s)
{
    char text[32];

    (void)unsetenv(LEFT);
    if (!s->front->pid)
        return;
    if (s->front->output_fd >= 0)
        (void)fcntl(s->front->output_fd, F_SETFD, 0);
    (void)snprintf(text, sizeof(text), "%d %d", (int)s->front->pid, s->front->output_fd);
    (void)setenv(LEFT, text, 1);
}

/* Takes over the nginx of the previous binary, after exec. */
void tls_front_inherit(struct supervisor *s)
{
    struct tls_front *f = mem_zalloc(sizeof(*f));
    const char *text = getenv(LEFT);
    char *end;
    long pid, fd;

    s->front = f;
    f->supervisor = s;
    f->output_fd = -1;
    if (!text)
        return;
    pid = strtol(text, &end, 10);
    fd = strtol(end, NULL, 10);
    if (pid > 0) {
        f->pid = (pid_t)pid;
        f->output_fd = (int)fd;
        f->started_ms = (int64_t)clock_ms();
    }
    if (f->output_fd >= 0)
        (void)fcntl(f->output_fd, F_SETFD, FD_CLOEXEC);
    (void)unsetenv(LEFT);
}

bool tls_front_lives(const struct supervisor *s)
{
    return s->front->pid > 0;
}

void tls_front_close(struct supervisor *s)
{
    if (s->front->output_fd >= 0)
        close(s->front->output_fd);
    s->front->output_fd = -1;
}

void tls_front_done(struct supervisor *s)
{
    tls_front_close(s);
    buf_done(&s->front->line);
    free(s->front);
}
