/* Opens the listening socket here and passes it in the same way as systemd (LISTEN_FDS). So the
 * port is known before the gateway serves, and no other program can use it (own_gateway.h). */
#include "supervisor/own_gateway.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/os/file.h"
#include "common/proc/config.h"
#include "supervisor/last_words.h"
#include "supervisor/user.h"

enum { FIRST_GIVEN = 3, FOLDER_MAX = 40, END_MS = 15000, POLL_US = 20000 };

/* Opens a socket that listens on a free port of loopback. Returns -1 with errno. */
static int open_port(struct own_gateway *g)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, SOMAXCONN) ||
                    getsockname(fd, (struct sockaddr *)&a, &n))) {
        close(fd);
        return -1;
    }
    (void)snprintf(g->url, sizeof(g->url), "http://127.0.0.1:%u", ntohs(a.sin_port));
    return fd;
}

/* Moves a descriptor to a fixed number, which stays open after exec. */
static void move_descriptor(int from, int to)
{
    if (from == to)
        (void)fcntl(to, F_SETFD, 0);
    else
        (void)dup2(from, to);
}

/* Executes the gateway, in the child. */
RG_NORETURN static void become_gateway(const struct own_gateway *g, int argc, char **argv, int port,
                                       pid_t parent)
{
    static const char *const settings[] = {
        "--listen=127.0.0.1:0", "--workers=1",       "--routers=1",          "--runners=",
        "--otlp-endpoint=",     "--front=none",      "--tls-certificate=",   "--tls-key=",
        "--tls-client-ca=",     "--log-format=text", "--journal-min-free=0", "--fleet=",
        "--fleet-node=",        "--fleet-address="};
    static const char *const unset[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "JOURNAL_STREAM"};
    VEC(char *) args = {0};
    struct buf state = {0}, run = {0};
    char pid[16];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)dup2(g->log_fd, STDOUT_FILENO);
    (void)dup2(g->log_fd, STDERR_FILENO);
    move_descriptor(port, FIRST_GIVEN);
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)setenv("LISTEN_PID", pid, 1);
    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        (void)unsetenv(unset[i]);
    buf_printf(&state, "--state-dir=%s/s%c", g->folder, 0);
    buf_printf(&run, "--run-dir=%s/r%c", g->folder, 0);
    *vec_push(&args) = (char *)(uintptr_t) "rollgate";
    *vec_push(&args) = (char *)(uintptr_t) "serve";
    for (int i = 1; i < argc; i++)
        *vec_push(&args) = argv[i];
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        *vec_push(&args) = (char *)(uintptr_t)settings[i];
    *vec_push(&args) = state.p;
    *vec_push(&args) = run.p;
    *vec_push(&args) = NULL;
    (void)execv("/proc/self/exe", args.at);
    dprintf(STDERR_FILENO, "error: cannot execute it: %s\n", strerror(errno));
    _exit(127);
}

/* Makes folders for which the gateway's user has every right. */
static int make_folders(struct own_gateway *g, const struct config *c, struct err *e)
{
    static const char *const names[] = {"", "/s", "/r"};
    const char *parent = getenv("TMPDIR");
    struct buf path = {0};
    int rc = 0;

    if (!parent || strlen(parent) > FOLDER_MAX) /* paths of unix sockets are short */
        parent = "/tmp";
    (void)snprintf(g->folder, sizeof(g->folder), "%s/rollgate-XXXXXX", parent);
    if (!mkdtemp(g->folder)) {
        g->folder[0] = 0;
        return err_sys(e, ERR_IO, "cannot make a folder in %s", parent);
    }
    for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s%s%c", g->folder, names[i], 0);
        if (i > 0 && mkdir(path.p, 0700))
            rc = err_sys(e, ERR_IO, "cannot make %s", path.p);
        else
            rc = user_chown(c, path.p, e);
    }
    buf_done(&path);
    return rc;
}

int own_gateway_start(struct own_gateway *g, const struct config *c, int argc, char **argv,
                      struct err *e)
{
    pid_t parent = getpid();
    int port;

    *g = (struct own_gateway){.log_fd = memfd_create("gateway", MFD_CLOEXEC)};
    if (make_folders(g, c, e))
        return -1;
    port = open_port(g);
    if (port < 0)
        return err_sys(e, ERR_IO, "cannot listen on loopback");
    g->pid = fork();
    if (g->pid == 0)
        become_gateway(g, argc, argv, port, parent);
    close(port);
    if (g->pid > 0)
        return 0;
    g->pid = 0;
    return err_sys(e, ERR_IO, "fork");
}

bool own_gateway_lives(struct own_gateway *g, struct buf *why)
{
    if (g->pid && waitpid(g->pid, NULL, WNOHANG) == g->pid)
        g->pid = 0;
    if (g->pid)
        return true;
    last_words_read(g->log_fd, why);
    return false;
}

void own_gateway_stop(struct own_gateway *g)
{
    uint64_t end = clock_ms() + END_MS;

    if (g->pid)
        (void)kill(g->pid, SIGTERM);
    while (g->pid && waitpid(g->pid, NULL, WNOHANG) == 0) {
        if (clock_ms() > end)
            (void)kill(g->pid, SIGKILL);
        (void)usleep(POLL_US);
    }
    g->pid = 0;
    if (g->log_fd >= 0)
        close(g->log_fd);
    if (g->folder[0])
        file_remove_tree(g->folder);
}
