/*
 * `rollgate route`: routers without workers. A small parent process opens the sockets, forks the
 * routers and replaces those that die; the upstreams' slots of the board are always ready.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/signals.h"
#include "common/proc/status.h"
#include "router/router.h"

enum { BACKLOG = 4096, RESPAWN_MS = 100 };

struct child_router {
    struct heritage heritage;
    struct loop_timer respawn;
    struct command *command;
    pid_t pid; /* 0: not running */
    int control_fd;
};

struct command {
    struct config *config;
    struct board *board;
    struct metrics *metrics;
    struct loop *loop;
    struct signals signals;
    struct child_router routers[BOARD_ROUTERS_MAX];
    size_t n;
    struct loop_io status_io;
    int status_fds[2];
    bool ending;
    int status;
};

/* ------------------------------------------------------------------ sockets */

static int listen_on(const struct addrinfo *a, struct err *e)
{
    int one = 1, fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_sys(e, ERR_IO, "cannot open a socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err_sys(e, ERR_IO, "cannot listen");
    close(fd);
    return -1;
}

/* HOST:PORT, [V6]:PORT or :PORT -> a listening socket, -1 and e. */
static int open_listener(const char *text, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    char *host = mem_strdup(text), *colon = strrchr(host, ':'), *name = host;
    int fd = -1;

    if (colon == NULL) {
        err_set(e, ERR_CONFIG, "--listen is HOST:PORT");
        goto out;
    }
    *colon = 0;
    if (name[0] == '[' && colon[-1] == ']') {
        colon[-1] = 0;
        name++;
    }
    if (getaddrinfo(*name ? name : NULL, colon + 1, &hints, &found) != 0) {
        err_set(e, ERR_CONFIG, "cannot listen on %s", text);
        goto out;
    }
    fd = listen_on(found, e);
    freeaddrinfo(found);
out:
    free(host);
    return fd;
}

/* ------------------------------------------------------------------ children */

static void run_child(struct child_router *r)
{
    struct command *c = r->command;
    int status;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    signals_abandon(&c->signals);
    log_setup(r->heritage.name, (enum log_level)c->config->log_level,
              (enum log_format)c->config->log_format);
    close(r->control_fd);
    status = router_run(&r->heritage);
    (void)fflush(NULL);
    _exit(status);
}

static void start_router(struct child_router *r)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    r->heritage.control_fd = pair[1];
    r->control_fd = pair[0];
    r->pid = fork();
    if (r->pid == 0)
        run_child(r);
    close(pair[1]);
    if (r->pid > 0)
        return;
    log_error(NULL, "cannot fork", LOG_T("reason", strerror(errno)));
    r->pid = 0;
    close(pair[0]);
    r->control_fd = -1;
}

static void on_respawn(struct loop_timer *t)
{
    struct child_router *r = CONTAINER_OF(t, struct child_router, respawn);

    if (!r->command->ending)
        start_router(r);
}

static void finish_if_done(struct command *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->routers[i].pid != 0)
            return;
    if (c->ending)
        loop_stop(c->loop);
}

static void begin_end(struct command *c, int signo)
{
    c->ending = true;
    atomic_store(&c->board->draining, 1);
    for (size_t i = 0; i < c->n; i++)
        if (c->routers[i].pid > 0)
            (void)kill(c->routers[i].pid, signo);
    finish_if_done(c);
}

static void ended(struct child_router *r, int status)
{
    struct command *c = r->command;

    r->pid = 0;
    close(r->control_fd);
    r->control_fd = -1;
    if (c->ending)
        return;
    log_warn(NULL, "a router ended, replacing it", LOG_T("router", r->heritage.name),
             LOG_I("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0),
             LOG_I("status", WIFEXITED(status) ? WEXITSTATUS(status) : 0));
    metrics_reset_gauges(r->heritage.page);
    atomic_store(&c->board->slots[r->heritage.slot].state, BOARD_STARTING);
    loop_timer_set(c->loop, &r->respawn, RESPAWN_MS, on_respawn);
}

static void reap(struct command *c)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (size_t i = 0; i < c->n; i++)
            if (c->routers[i].pid == pid)
                ended(&c->routers[i], status);
    finish_if_done(c);
}

static void on_signal(struct signals *s, int signo, int sender)
{
    struct command *c = CONTAINER_OF(s, struct command, signals);

    (void)sender;
    if (signo == SIGCHLD)
        reap(c);
    else if (!c->ending || signo == SIGQUIT)
        begin_end(c, signo);
}

/* A router that cannot start once will not start the next time. */
static void on_status(struct loop_io *io, unsigned events)
{
    struct command *c = CONTAINER_OF(io, struct command, status_io);
    struct status s;

    (void)events;
    while (status_receive(io->fd, &s) > 0) {
        if (s.kind == STATUS_READY)
            atomic_store(&c->board->slots[s.slot].state, BOARD_READY);
        if (s.kind == STATUS_FAILED && !c->ending) {
            c->status = 1;
            begin_end(c, SIGTERM);
        }
    }
}

/* ------------------------------------------------------------------ life */

static void prepare_router(struct command *c, size_t i, int listen_fd)
{
    struct child_router *r = &c->routers[i];
    struct heritage *h = &r->heritage;

    r->command = c;
    r->control_fd = -1;
    *h = (struct heritage){.role = ROLE_ROUTER,
                           .place = (uint32_t)i,
                           .slot = BOARD_ROUTER0 + (unsigned)i,
                           .listen_fd = listen_fd,
                           .status_fd = c->status_fds[1],
                           .config = c->config,
                           .board = c->board,
                           .metrics = c->metrics,
                           .run_dir = c->config->run_dir,
                           .state_dir = c->config->state_dir};
    (void)snprintf(h->name, sizeof(h->name), "router-%zu", i);
    h->page = metrics_page(c->metrics, h->slot, h->name);
    atomic_store(&c->board->slots[h->slot].state, BOARD_STARTING);
}

static void fill_board(struct command *c)
{
    struct board *b = c->board;

    (void)snprintf(b->instance, sizeof(b->instance), "route-%d", (int)getpid());
    b->worker_base = (uint32_t)c->config->worker_base;
    atomic_store(&b->routers, (uint32_t)c->n);
    atomic_store(&b->workers, (uint32_t)c->config->upstream.n);
    for (size_t i = 0; i < c->config->upstream.n && i < BOARD_WORKERS_MAX; i++) {
        atomic_store(&b->slots[BOARD_WORKER0 + i].state, BOARD_READY);
        atomic_store(&b->slots[BOARD_WORKER0 + i].engines_up, 1);
    }
}

static int start(struct command *c, struct err *e)
{
    static const int watched[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, 0};

    if (c->config->upstream.n == 0)
        return err_set(e, ERR_CONFIG, "route needs at least one --upstream");
    c->n = (size_t)c->config->routers;
    fill_board(c);
    if (pipe2(c->status_fds, O_NONBLOCK | O_CLOEXEC) != 0)
        return err_sys(e, ERR_IO, "cannot open a pipe");
    if (signals_init(&c->signals, c->loop, watched, on_signal, e) != 0 ||
        loop_add(c->loop, &c->status_io, c->status_fds[0], LOOP_IN, on_status, e) != 0)
        return -1;
    for (size_t i = 0; i < c->n; i++) {
        int fd = open_listener(c->config->listen, e);

        if (fd < 0)
            return -1;
        prepare_router(c, i, fd);
    }
    for (size_t i = 0; i < c->n; i++)
        start_router(&c->routers[i]);
    return 0;
}

static void stop(struct command *c)
{
    for (size_t i = 0; i < c->n; i++) {
        loop_timer_stop(c->loop, &c->routers[i].respawn);
        if (c->routers[i].command != NULL)
            close(c->routers[i].heritage.listen_fd);
    }
    loop_del(c->loop, &c->status_io);
    signals_done(&c->signals);
    if (c->status_fds[0] > 0) {
        close(c->status_fds[0]);
        close(c->status_fds[1]);
    }
}

static int run(struct config *config)
{
    struct command *c = mem_zalloc(sizeof(*c));
    struct err e = {0};
    int status = 1;

    log_setup("route", (enum log_level)config->log_level, (enum log_format)config->log_format);
    c->config = config;
    c->board = board_new();
    c->metrics = metrics_new(BOARD_SLOTS);
    c->loop = loop_new(&e);
    if (c->loop != NULL && start(c, &e) == 0) {
        log_info(NULL, "routing", LOG_T("version", RG_VERSION), LOG_T("listen", config->listen),
                 LOG_U("routers", c->n), LOG_U("upstreams", config->upstream.n));
        loop_run(c->loop);
        status = c->status;
    } else {
        log_error(NULL, "cannot start", LOG_T("reason", e.text));
    }
    if (c->loop != NULL)
        stop(c);
    loop_free(c->loop);
    metrics_free(c->metrics);
    board_free(c->board);
    free(c);
    return status;
}

int route_command(int argc, char *const *argv)
{
    struct buf mistakes = {0};
    struct config *config = config_load(argc, argv, &mistakes);
    int status = 2;

    if (config != NULL)
        status = run(config);
    else
        (void)fwrite(mistakes.p, 1, mistakes.len, stderr);
    config_free(config);
    buf_done(&mistakes);
    return status;
}
