/*
 * A gateway whose routers and workers do nothing but answer: the real supervisor with children
 * small enough to be made to crash, hang and fail at will. test_supervisor.py drives it.
 *   - GET / answers "<name> <pid>", GET /slow/<ms> the same after a while
 *   - GET /crash is a failed CHECK, GET /hang sleeps in a loop that never turns again, GET /spin
 * does so busily
 *   - GET /adopted names the places served besides the own one
 *   - GET /tries says what system calls say: exec, fork, ptrace ...
 * STUB_FAIL=<name>: that process reports that it cannot start. STUB_MUTE=<name>: it never reports.
 * STUB_EXIT=<name>: it exits with status 7 at once. A program file that ends with
 * "broken:worker-1." is a broken version: that process cannot start.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "supervisor/supervisor.h"

enum { LISTENERS_MAX = 16, REQUEST_MAX = 4096 };

struct stub;

struct stub_conn {
    struct loop_io io;
    struct loop_timer timer;
    struct stub *stub;
    char text[REQUEST_MAX];
    size_t len;
};

struct stub {
    struct child child;
    struct loop_io listeners[LISTENERS_MAX];
    unsigned n, running;
    char adopted[256];
};

static struct stub stub;
static volatile unsigned spinning;

static char broken[32]; /* name of the process that cannot start in this version */

static void find_broken(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char end[64] = "", *word;

    CHECK(fd >= 0 && lseek(fd, -32, SEEK_END) > 0 && read(fd, end, 32) == 32);
    close(fd);
    word = memmem(end, 32, "broken:", 7);
    if (word && strchr(word, '.'))
        (void)snprintf(broken, sizeof(broken), "%.*s", (int)strcspn(word + 7, "."), word + 7);
}

static bool is_me(const char *variable, const char *name)
{
    const char *value = getenv(variable);

    return value && strcmp(value, name) == 0;
}

static void close_conn(struct stub_conn *c)
{
    loop_del(stub.child.loop, &c->io);
    loop_timer_stop(stub.child.loop, &c->timer);
    close(c->io.fd);
    free(c);
    stub.running--;
    if (stub.child.draining && stub.running == 0)
        loop_stop(stub.child.loop);
}

static void answer(struct stub_conn *c, const char *body)
{
    char text[1024];
    int n = snprintf(text, sizeof(text),
                     "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     strlen(body), body);

    if (write(c->io.fd, text, (size_t)n) != n)
        log_warn(NULL, "client gone, ignoring");
    close_conn(c);
}

static void answer_name(struct stub_conn *c)
{
    char body[128];

    (void)snprintf(body, sizeof(body), "%s %d", stub.child.heritage->name, (int)getpid());
    answer(c, body);
}

static void on_late(struct loop_timer *t)
{
    answer_name(CONTAINER_OF(t, struct stub_conn, timer));
}

/* --- what the sandbox lets a child do: each returns what a system call returns --- */

static int try_exec(void)
{
    return execl("/nonexistent", "x", (char *)NULL);
}

static int try_fork(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    return pid;
}

static int try_ptrace(void)
{
    return (int)ptrace(PTRACE_ATTACH, 1 << 30, NULL, NULL);
}

static int try_kill_parent(void)
{
    return kill(getppid(), 0);
}

static int try_own_signal(void)
{
    return raise(SIGURG);
}

static int try_socket(int family, int protocol)
{
    int fd = socket(family, SOCK_DGRAM, protocol);

    if (fd >= 0)
        close(fd);
    return fd;
}

static int try_packet(void)
{
    return try_socket(AF_PACKET, 0);
}

static int try_vsock(void)
{
    return try_socket(AF_VSOCK, 0);
}

static int try_audit(void)
{
    return try_socket(AF_NETLINK, 9);
}

static int try_inet(void)
{
    return try_socket(AF_INET, 0);
}

static int try_listen(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), rc = listen(fd, 1), saved = errno;

    close(fd);
    errno = saved;
    return rc;
}

static int try_mount(void)
{
    return mount("none", "/nonexistent", "tmpfs", 0, NULL);
}

static int try_raise_limit(void)
{
    return setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

static int try_read_limit(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit);
}

static int try_push_input(void)
{
    return ioctl(0, TIOCSTI, "x");
}

static int try_write_file(void)
{
    int fd = open("/dev/null", O_WRONLY);

    if (fd >= 0)
        close(fd);
    return fd;
}

static int try_look_elsewhere(void)
{
    int fd = open("/var", O_RDONLY | O_DIRECTORY);

    if (fd >= 0)
        close(fd);
    return fd;
}

static int try_read_file(void)
{
    int fd = open("/dev/null", O_RDONLY);

    if (fd >= 0)
        close(fd);
    return fd;
}

static int try_code(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int rc = mprotect(p, 4096, PROT_READ | PROT_EXEC);

    (void)munmap(p, 4096);
    return rc;
}

/* Reports whether the resolver may make its system calls. Without /etc/hosts it may find nothing.
 */
static int try_names(void)
{
    struct addrinfo *found = NULL;
    int rc;

    errno = 0;
    rc = getaddrinfo("localhost", "80", NULL, &found);
    if (rc == 0)
        freeaddrinfo(found);
    return rc != 0 && (errno == EPERM || errno == EACCES) ? -1 : 0;
}

static void *run_thread(void *p)
{
    return p;
}

static int try_thread(void)
{
    pthread_t t;
    int rc = pthread_create(&t, NULL, run_thread, NULL);

    if (rc == 0)
        (void)pthread_join(t, NULL);
    errno = rc;
    return rc ? -1 : 0;
}

/* Answers with lines "name errno". */
static void answer_tries(struct stub_conn *c)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } tries[] = {
        {"exec", try_exec},
        {"fork", try_fork},
        {"ptrace", try_ptrace},
        {"kill_parent", try_kill_parent},
        {"own_signal", try_own_signal},
        {"packet", try_packet},
        {"vsock", try_vsock},
        {"audit", try_audit},
        {"inet", try_inet},
        {"listen", try_listen},
        {"mount", try_mount},
        {"raise_limit", try_raise_limit},
        {"read_limit", try_read_limit},
        {"push_input", try_push_input},
        {"write_file", try_write_file},
        {"read_file", try_read_file},
        {"look_elsewhere", try_look_elsewhere},
        {"code", try_code},
        {"names", try_names},
        {"thread", try_thread},
    };
    struct buf body = {0};

    (void)signal(SIGURG, SIG_IGN);
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        int rc = tries[i].run();

        buf_printf(&body, "%s %d\n", tries[i].name, rc < 0 ? errno : 0);
    }
    buf_add_c(&body, 0);
    answer(c, body.p);
    buf_done(&body);
}

static void serve(struct stub_conn *c)
{
    if (strncmp(c->text, "GET /slow/", 10) == 0)
        loop_timer_set(stub.child.loop, &c->timer, strtoul(c->text + 10, NULL, 10), on_late);
    else if (strncmp(c->text, "GET /adopted", 12) == 0)
        answer(c, stub.adopted);
    else if (strncmp(c->text, "GET /tries", 10) == 0)
        answer_tries(c);
    else if (strncmp(c->text, "GET /crash", 10) == 0)
        CHECK(!"asked to crash");
    else if (strncmp(c->text, "GET /hang", 9) == 0)
        for (;;)
            sleep(1000);
    else if (strncmp(c->text, "GET /spin", 9) == 0)
        for (;;)
            spinning++;
    else
        answer_name(c);
}

static void on_readable(struct loop_io *io, unsigned events)
{
    struct stub_conn *c = CONTAINER_OF(io, struct stub_conn, io);
    ssize_t n = read(io->fd, c->text + c->len, sizeof(c->text) - 1 - c->len);

    (void)events;
    if (n <= 0) {
        close_conn(c);
        return;
    }
    c->len += (size_t)n;
    c->text[c->len] = 0;
    if (strstr(c->text, "\r\n\r\n") && !loop_timer_active(&c->timer))
        serve(c);
}

static void on_listener(struct loop_io *io, unsigned events)
{
    int fd;

    (void)events;
    while ((fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct stub_conn *c = mem_zalloc(sizeof(*c));
        struct err e;

        c->stub = &stub;
        stub.running++;
        CHECK(loop_add(stub.child.loop, &c->io, fd, LOOP_IN | LOOP_LEVEL, on_readable, &e) == 0);
    }
}

static void listen_on(int fd)
{
    struct err e;

    CHECK(stub.n < LISTENERS_MAX);
    CHECK(loop_add(stub.child.loop, &stub.listeners[stub.n++], fd, LOOP_IN | LOOP_LEVEL,
                   on_listener, &e) == 0);
}

static void on_drain(struct child *c)
{
    for (unsigned i = 0; i < stub.n; i++)
        loop_del(c->loop, &stub.listeners[i]);
    if (stub.running == 0)
        loop_stop(c->loop);
}

static void note_place(uint32_t place)
{
    size_t n = strlen(stub.adopted);

    (void)snprintf(stub.adopted + n, sizeof(stub.adopted) - n, "%u ", place);
}

static void on_adopt(struct child *c, const struct heritage_place *place)
{
    note_place(place->place);
    listen_on(place->listen_fd);
    if (c->heritage->role == ROLE_WORKER)
        child_adopted(c, place->place);
}

static int run(const struct heritage *h)
{
    struct err e;
    struct loop *l = loop_new(&e);

    if (is_me("STUB_EXIT", h->name)) {
        loop_free(l);
        return 7;
    }
    if (is_me("STUB_FAIL", h->name) || strcmp(broken, h->name) == 0) {
        child_failed(h, "the stub was told to fail");
        loop_free(l);
        return 1;
    }
    CHECK(l && child_init(&stub.child, l, h, on_drain, &e) == 0);
    stub.child.on_adopt = on_adopt;
    listen_on(h->listen_fd);
    for (size_t i = 0; i < h->n_adopted; i++) {
        note_place(h->adopted[i].place);
        listen_on(h->adopted[i].listen_fd);
    }
    if (h->role == ROLE_WORKER)
        atomic_store(&h->board->slots[h->slot].engines_up, 1);
    if (!is_me("STUB_MUTE", h->name))
        child_ready(&stub.child, "");
    loop_run(l);
    child_done(&stub.child);
    loop_free(l);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct supervisor_bodies bodies = {.worker = run, .router = run};
    struct buf mistakes = {0};
    struct config *c;
    int rc;

    find_broken();
    c = config_load(argc - 1, argv + 1, &mistakes);
    if (!c) {
        fprintf(stderr, "%.*s", (int)mistakes.len, mistakes.p);
        buf_done(&mistakes);
        return 2;
    }
    rc = supervisor_serve(c, &bodies);
    config_free(c);
    return rc;
}
