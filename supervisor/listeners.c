/* Every listening socket of the gateway (listeners.h). The sockets belong to the supervisor and
 * outlive its children: a killed child's queue is served by its successor.
 *
 * A socket comes from the first of these sources: the binary before an upgrade (RG_SOCKETS),
 * systemd (LISTEN_FDS), or it is opened here. Routers share one address by SO_REUSEPORT, one socket
 * each. The first router's socket determines the address, later ones join it. A name with several
 * addresses gets one more socket for each (also), on which all routers accept. Workers and the
 * dispatcher have unix sockets in the run folder, which is locked, so no other gateway can use it.
 */

#include "supervisor/listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/net/resolve.h"
#include "common/os/file_lock.h"
#include "common/proc/config.h"
#include "supervisor/user.h"

enum { BACKLOG = 4096, FIRST_GIVEN = 3, NOTSENT_LOWAT = 256 << 10 };

void listeners_init(struct listeners *l)
{
    *l = (struct listeners){0};
    l->lock_fd = -1;
    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++)
        l->routers[i] = l->given[i] = -1;
    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++)
        l->workers[i] = -1;
    l->dispatcher = -1;
}

static void close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void listeners_close_tcp(struct listeners *l)
{
    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++) {
        close_socket(&l->routers[i]);
        close_socket(&l->given[i]);
    }
    while (l->n_also > 0)
        close_socket(&l->also[--l->n_also]);
}

void listeners_close(struct listeners *l)
{
    listeners_close_tcp(l);
    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++)
        close_socket(&l->workers[i]);
    close_socket(&l->dispatcher);
    close_socket(&l->lock_fd);
}

/* --- addresses --- */

/* Splits HOST:PORT, [V6]:PORT, :PORT, PORT. */
static int split_address(const char *text, char host[256], char port[16], struct err *e)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    } else if (n && memchr(text, ':', n)) {
        return err_set(e, ERR_CONFIG, "--listen: write an IPv6 address as [ADDRESS]:PORT");
    }
    if (n >= 256 || !colon || strlen(colon + 1) >= 16 || !colon[1])
        return err_set(e, ERR_CONFIG, "--listen: \"%.100s\" is not HOST:PORT", text);
    memcpy(host, text, n);
    host[n] = 0;
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return 0;
}

/* Reports whether only this machine can reach the address. True for unix sockets. */
static bool is_loopback_address(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)a;

        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return a->sa_family == AF_UNIX;
}

/* Refuses to listen beyond loopback without keys, unless --insecure is set. */
static int check_exposure(const struct config *c, const struct sockaddr *a, struct err *e)
{
    if (is_loopback_address(a) || c->admin_key_file || c->insecure)
        return 0;
    return err_set(
        e, ERR_CONFIG,
        "--listen %s: listening beyond loopback needs keys: set --admin-key-file (or --insecure)",
        c->listen);
}

/* Sets the error that names the address, with errno. */
static void cannot_listen(const struct sockaddr *a, socklen_t len, struct err *e)
{
    int why = errno;
    char text[RESOLVE_TEXT];

    resolve_text(a, len, text);
    errno = why;
    (void)err_sys(e, ERR_IO, "--listen: cannot listen on %s", text);
    errno = why;
}

static void name_address(struct listeners *l, const struct sockaddr_storage *a, socklen_t len)
{
    resolve_text((const struct sockaddr *)a, len, l->address);
}

/* --- TCP --- */

/* Sets options that improve performance; failures do not matter. */
static void set_socket_options(int fd)
{
    int one = 1, lowat = NOTSENT_LOWAT;

    /* These affect latency and memory only: a kernel without them still serves. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof(lowat));
}

/* Binds a socket. Returns -1 and keeps errno for the caller. */
static int bind_tcp(const struct sockaddr *a, socklen_t len, bool share, struct err *e)
{
    int saved, one = 1, fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_sys(e, ERR_IO, "socket");
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
        (share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))) {
        err_sys(e, ERR_IO, "socket options");
        close(fd);
        return -1;
    }
    if (bind(fd, a, len)) {
        cannot_listen(a, len, e);
        saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Opens a listening socket. `share`: with SO_REUSEPORT, for a router's own socket. */
static int listen_tcp(const struct resolve_address *a, bool share, struct err *e)
{
    int fd = bind_tcp((const struct sockaddr *)&a->addr, a->len, share, e);

    if (fd < 0)
        return -1;
    set_socket_options(fd);
    if (listen(fd, BACKLOG)) {
        cannot_listen((const struct sockaddr *)&a->addr, a->len, e);
        close(fd);
        return -1;
    }
    return fd;
}

/* The addresses of a name, without repetitions, IPv4 before IPv6. */
struct addresses {
    struct resolve_address at[1 + HERITAGE_ALSO_MAX];
    size_t n;
};

/* Adds an address unless it is present. Drops addresses beyond the array. */
static void add_address(struct addresses *all, const struct addrinfo *found)
{
    struct resolve_address *a = &all->at[all->n];

    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i].len == found->ai_addrlen &&
            memcmp(&all->at[i].addr, found->ai_addr, found->ai_addrlen) == 0)
            return;
    }
    if (all->n == ARRAY_LEN(all->at))
        return;
    *a = (struct resolve_address){.len = found->ai_addrlen};
    memcpy(&a->addr, found->ai_addr, found->ai_addrlen);
    all->n++;
}

static void add_family(struct addresses *all, const struct addrinfo *found, int family)
{
    for (; found; found = found->ai_next) {
        if (found->ai_family == family)
            add_address(all, found);
    }
}

/* Resolves --listen and checks the addresses. */
static int resolve_listen(const struct config *c, struct addresses *ret, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    char host[256] = "", port[16] = "";
    uint64_t number;
    int rc;

    if (split_address(c->listen_at, host, port, e))
        return -1;
    if (str_to_u64(str_cstr(port), UINT16_MAX, &number))
        return err_set(e, ERR_CONFIG, "--listen: \"%s\" is not a port", port);
    hints.ai_family = host[0] ? AF_UNSPEC : AF_INET;
    rc = resolve_names(host[0] ? host : NULL, port, &hints, &found);
    if (rc)
        return err_set(e, ERR_CONFIG, "--listen: \"%s\": %s", c->listen_at, gai_strerror(rc));
    *ret = (struct addresses){0};
    add_family(ret, found, AF_INET);
    add_family(ret, found, AF_INET6);
    freeaddrinfo(found);
    for (size_t i = 0; i < ret->n; i++) {
        if (check_exposure(c, (const struct sockaddr *)&ret->at[i].addr, e))
            return -1;
    }
    return ret->n > 0 ? 0 : err_set(e, ERR_CONFIG, "--listen: \"%s\" has no address", c->listen_at);
}

/* Sets the address of a trial: a loopback port that the kernel chooses. */
static void any_loopback(struct addresses *ret)
{
    struct sockaddr_in a = {.sin_family = AF_INET};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *ret = (struct addresses){.n = 1, .at = {{.len = sizeof(a)}}};
    memcpy(&ret->at[0].addr, &a, sizeof(a));
}

/* Checks the lengths of socket paths. The longest are those of an upgrade's trial, which has a
 * folder in the run folder. The check at the start prevents that an upgrade or more workers fail
 * later. */
static int check_socket_paths(const struct config *c, struct err *e)
{
    size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1, name;
    char longest[64];

    if (c->upstream.n > 0)
        return 0;
    name = (size_t)snprintf(longest, sizeof(longest), "/t/worker-%u.sock",
                            (unsigned)c->worker_base + BOARD_WORKERS_MAX - 1);
    if (strlen(c->run_dir) + name <= max)
        return 0;
    return err_set(
        e, ERR_CONFIG,
        "--run-dir: %zu bytes are too long: paths of unix sockets have at most %zu, which "
        "leaves %zu for the folder; set --run-dir to a shorter one than %s",
        strlen(c->run_dir), max, max - name, c->run_dir);
}

int listeners_check(const struct config *c, struct err *e)
{
    struct addresses all = {0};

    return check_socket_paths(c, e) ? -1 : resolve_listen(c, &all, e);
}

/* Binds the port once without SO_REUSEPORT, which would silently share it with a different gateway
 * of the same user. Port 0 becomes the port that the kernel chose. */
static int probe_port(struct resolve_address *a, struct err *e)
{
    int fd = bind_tcp((const struct sockaddr *)&a->addr, a->len, false, e);

    if (fd < 0)
        return -1;
    CHECK(getsockname(fd, (struct sockaddr *)&a->addr, &a->len) == 0);
    close(fd);
    return 0;
}

/* Returns the port of an IPv4 or an IPv6 address, which is at the same offset in both. */
static in_port_t *port_of(struct resolve_address *a)
{
    return &((struct sockaddr_in *)(void *)&a->addr)->sin_port;
}

/* Opens the name's further addresses on the first one's port. An address that this machine does not
 * have (IPv6 is off) is skipped. */
static int open_also(struct listeners *l, struct addresses *all, struct err *e)
{
    for (size_t i = 1; i < all->n; i++) {
        int fd;

        *port_of(&all->at[i]) = *port_of(&all->at[0]);
        errno = 0;
        fd = listen_tcp(&all->at[i], false, e);
        if (fd >= 0)
            l->also[l->n_also++] = fd;
        else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
            return -1;
    }
    return 0;
}

/* Returns the address that was resolved at the start, so that a later socket joins the same
 * group. */
static int own_address(const struct listeners *l, struct resolve_address *a)
{
    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++) {
        a->len = sizeof(a->addr);
        if (l->routers[i] >= 0)
            return getsockname(l->routers[i], (struct sockaddr *)&a->addr, &a->len);
    }
    return -1;
}

/* Chooses the address for the first router's socket. */
static int choose_address(struct listeners *l, const struct config *c, struct resolve_address *ret,
                          struct err *e)
{
    struct addresses all = {0};

    if (resolve_listen(c, &all, e))
        return -1;
    if (l->aside)
        any_loopback(&all);
    if (probe_port(&all.at[0], e) || open_also(l, &all, e))
        return -1;
    *ret = all.at[0];
    name_address(l, &ret->addr, ret->len);
    return 0;
}

int listeners_router(struct listeners *l, const struct config *c, unsigned i, struct err *e)
{
    struct resolve_address a = {0};

    if (l->routers[i] >= 0)
        return 0;
    if (l->n_given) {
        l->routers[i] = fcntl(l->given[i % l->n_given], F_DUPFD_CLOEXEC, 3);
        return l->routers[i] >= 0 ? 0 : err_sys(e, ERR_IO, "cannot share a given socket");
    }
    if (own_address(l, &a) && choose_address(l, c, &a, e))
        return -1;
    l->routers[i] = listen_tcp(&a, true, e);
    return l->routers[i] >= 0 ? 0 : -1;
}

/* --- unix sockets --- */

/* Makes the folder and those above it, like mkdir -p. Existing ones do not change. */
static int make_socket_folder(const struct config *c, const char *path, struct err *e)
{
    char part[4096];
    int n = snprintf(part, sizeof(part), "%s", path);

    if (n < 0 || (size_t)n >= sizeof(part))
        return err_set(e, ERR_CONFIG, "folder name too long");
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(part, 0755) && errno != EEXIST)
            return err_sys(e, ERR_IO, "cannot make %s", part);
        *p = '/';
    }
    if (mkdir(part, 0700) == 0)
        return user_chown(c, part, e);
    return errno == EEXIST ? 0 : err_sys(e, ERR_IO, "cannot make %s", part);
}

int listeners_folders(const struct config *c, struct err *e)
{
    const char *const folders[] = {c->state_dir, c->run_dir};

    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        if (make_socket_folder(c, folders[i], e) || user_owns(c, folders[i], e))
            return -1;
        if (access(folders[i], W_OK | X_OK))
            return err_sys(e, ERR_IO, "cannot write to %s", folders[i]);
    }
    return 0;
}

/* Makes the error about a run folder that a different gateway has locked. By default the run folder
 * is in the state folder. */
static int folder_taken(const struct config *c, struct err *e)
{
    bool within = str_starts(str_cstr(c->run_dir), str_cstr(c->state_dir));

    return err_set(e, ERR_CONFIG, "another rollgate uses %s: give each its own --%s-dir",
                   within ? c->state_dir : c->run_dir, within ? "state" : "run");
}

/* Locks the run folder: it has only one gateway. The lock lasts as long as the process. */
static int lock_folder(struct listeners *l, const struct config *c, struct err *e)
{
    char path[4096 + 8];
    int rc;

    if (listeners_folders(c, e))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/lock", c->run_dir);
    l->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (l->lock_fd < 0)
        return err_sys(e, ERR_IO, "cannot open %s", path);
    rc = file_lock(l->lock_fd, false, c->run_dir, e);
    return rc == 1 ? folder_taken(c, e) : rc;
}

/* Listens on a path of the run folder. No other process uses the path, because the folder is
 * locked. */
static int listen_unix(const struct sockaddr_un *a, int *ret, struct err *e)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t mask;
    bool bad;

    if (fd < 0)
        return err_sys(e, ERR_IO, "socket");
    (void)unlink(a->sun_path);
    /* Every process that may enter the run folder may connect: the supervisor's children, perhaps
     * as
     * --user. */
    mask = umask(0111);
    bad = bind(fd, (const struct sockaddr *)a, sizeof(*a)) != 0;
    (void)umask(mask);
    if (bad || listen(fd, BACKLOG)) {
        err_sys(e, ERR_IO, "cannot listen on %s", a->sun_path);
        close(fd);
        return -1;
    }
    *ret = fd;
    return 0;
}

int listeners_worker(struct listeners *l, const struct config *c, unsigned place, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (l->workers[place] >= 0)
        return 0;
    if (heritage_socket_path(c->run_dir, (uint32_t)c->worker_base + place, a.sun_path,
                             sizeof(a.sun_path)))
        return err_set(e, ERR_CONFIG, "%s is too long for unix sockets: set --run-dir", c->run_dir);
    return listen_unix(&a, &l->workers[place], e);
}

void listeners_close_worker(struct listeners *l, unsigned place)
{
    if (l->workers[place] >= 0)
        close(l->workers[place]);
    l->workers[place] = -1;
}

void listeners_close_dispatcher(struct listeners *l)
{
    if (l->dispatcher >= 0)
        close(l->dispatcher);
    l->dispatcher = -1;
}

int listeners_dispatcher(struct listeners *l, const struct config *c, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (l->dispatcher >= 0)
        return 0;
    if (heritage_dispatcher_path(c->run_dir, a.sun_path, sizeof(a.sun_path)))
        return err_set(e, ERR_CONFIG, "%s is too long for unix sockets: set --run-dir", c->run_dir);
    return listen_unix(&a, &l->dispatcher, e);
}

/* --- given sockets --- */

/* Returns the field for an inherited unix socket, by its file name; NULL if the socket is not
 * ours. */
static int *home_of(struct listeners *l, const struct config *c, const struct sockaddr_un *a)
{
    char path[sizeof(a->sun_path)];

    if (!heritage_dispatcher_path(c->run_dir, path, sizeof(path)) &&
        strncmp(path, a->sun_path, sizeof(path)) == 0)
        return &l->dispatcher;
    for (unsigned place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (!heritage_socket_path(c->run_dir, (uint32_t)c->worker_base + place, path,
                                  sizeof(path)) &&
            strncmp(path, a->sun_path, sizeof(path)) == 0)
            return &l->workers[place];
    }
    return NULL;
}

/* Reports whether the address differs from that of the sockets given so far. */
static bool is_elsewhere(const struct listeners *l, const struct sockaddr_storage *a, socklen_t len)
{
    struct sockaddr_storage first = {0};
    socklen_t first_len = sizeof(first);

    if (l->n_given == 0 || getsockname(l->given[0], (struct sockaddr *)&first, &first_len))
        return false;
    return first_len != len || memcmp(&first, a, len) != 0;
}

/* Stores an inherited socket in the field that its address determines. */
static int adopt_socket(struct listeners *l, const struct config *c, int fd, struct err *e)
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_un un;
    } a = {0};

    socklen_t len = sizeof(a);
    int accepting = 0, *home;
    socklen_t optlen = sizeof(accepting);

    if (getsockname(fd, (struct sockaddr *)&a, &len) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &optlen) || !accepting)
        return err_set(e, ERR_CONFIG, "LISTEN_FDS: descriptor %d is not a listening socket", fd);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    if (a.any.ss_family == AF_UNIX) {
        home = home_of(l, c, &a.un);
        if (!home)
            return err_set(e, ERR_CONFIG, "LISTEN_FDS: descriptor %d is not a worker's socket", fd);
        *home = fd;
        return 0;
    }
    if (l->n_given >= BOARD_ROUTERS_MAX)
        return err_set(e, ERR_CONFIG, "LISTEN_FDS: too many sockets");
    if (check_exposure(c, (struct sockaddr *)&a, e))
        return -1;
    set_socket_options(fd);
    if (is_elsewhere(l, &a.any, len)) {
        if (l->n_also == HERITAGE_ALSO_MAX)
            return err_set(e, ERR_CONFIG, "LISTEN_FDS: sockets on too many addresses");
        l->also[l->n_also++] = fd;
        return 0;
    }
    name_address(l, &a.any, len);
    l->given[l->n_given++] = fd;
    return 0;
}

/* Takes the sockets that systemd passes: descriptors from 3 on. */
static int adopt_activated(struct listeners *l, const struct config *c, struct err *e)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    uint64_t for_pid = 0, n = 0;

    if (!count || str_to_u64(str_cstr(count), 4096, &n) || n == 0)
        return 0;
    if (pid && (str_to_u64(str_cstr(pid), INT32_MAX, &for_pid) || for_pid != (uint64_t)getpid()))
        return 0; /* meant for a different process */
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDNAMES");
    for (uint64_t i = 0; i < n; i++) {
        if (adopt_socket(l, c, FIRST_GIVEN + (int)i, e))
            return -1;
    }
    l->kept = l->n_given > 0;
    return 0;
}

/* Takes the sockets of the binary before an upgrade: "<0 or 1: kept>fd,fd,". Closes workers'
 * sockets of a different --run-dir. */
static int adopt_handed(struct listeners *l, const struct config *c, const char *text,
                        struct err *e)
{
    int rc = 0;

    l->kept = text[0] == '1';
    text += text[0] ? 1 : 0;
    while (*text) {
        char *end;
        int fd = (int)strtol(text, &end, 10);
        struct sockaddr_un a = {0};
        socklen_t len = sizeof(a);

        if (*end != ',')
            break;
        text = end + 1;
        if (getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.sun_family == AF_UNIX &&
            !home_of(l, c, &a))
            close(fd);
        else if (rc == 0)
            rc = adopt_socket(l, c, fd, e);
    }
    (void)unsetenv("RG_SOCKETS");
    return rc;
}

static int adopt_inherited(struct listeners *l, const struct config *c, struct err *e)
{
    const char *handed = getenv("RG_SOCKETS");

    return handed ? adopt_handed(l, c, handed, e) : adopt_activated(l, c, e);
}

/* Workers' sockets are opened when the workers are started. */
int listeners_open(struct listeners *l, const struct config *c, struct err *e)
{
    if (adopt_inherited(l, c, e))
        return -1;
    if (c->upstream.n == 0 && lock_folder(l, c, e)) /* a command with routers only locks nothing */
        return -1;
    for (unsigned i = 0; i < (unsigned)c->routers; i++) {
        if (listeners_router(l, c, i, e))
            return -1;
    }
    return 0;
}

/* --- handing over --- */

/* Sets the descriptors' flags and, if `list` is given, appends their numbers. */
static void each_socket(struct listeners *l, int flags, struct buf *list)
{
    for (unsigned i = 0; i <= BOARD_ROUTERS_MAX + BOARD_WORKERS_MAX; i++) {
        /* Pass on the given sockets themselves, not the routers' duplicates of them. */
        const int *routers = l->n_given ? l->given : l->routers;
        int fd = l->dispatcher;

        if (i < BOARD_ROUTERS_MAX)
            fd = routers[i];
        else if (i < BOARD_ROUTERS_MAX + BOARD_WORKERS_MAX)
            fd = l->workers[i - BOARD_ROUTERS_MAX];

        if (fd < 0)
            continue;
        (void)fcntl(fd, F_SETFD, flags);
        if (list)
            buf_printf(list, "%d,", fd);
    }
    for (unsigned i = 0; i < l->n_also;
         i++) { /* after the others, because the first one determines the address */
        (void)fcntl(l->also[i], F_SETFD, flags);
        if (list)
            buf_printf(list, "%d,", l->also[i]);
    }
}

/* Prepares exec: keeps the descriptors open and puts their numbers into the environment. Releases
 * the lock, which the new binary takes again. */
void listeners_hand_over(struct listeners *l)
{
    struct buf list = {0};

    buf_puts(&list, l->kept ? "1" : "0");
    each_socket(l, 0, &list);
    buf_add_c(&list, 0);
    (void)setenv("RG_SOCKETS", list.p, 1);
    buf_done(&list);
    /* Unlocked explicitly: a child that was just forked still has the descriptor, which would keep
     * the lock. */
    if (l->lock_fd >= 0)
        (void)flock(l->lock_fd, LOCK_UN);
}

void listeners_keep(struct listeners *l)
{
    each_socket(l, FD_CLOEXEC, NULL);
    (void)unsetenv("RG_SOCKETS");
    if (l->lock_fd >= 0)
        (void)flock(l->lock_fd, LOCK_EX | LOCK_NB);
}
