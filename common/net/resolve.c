/* Addresses of a host (resolve.h). At the start a name is resolved at once. Later (a server may
 * have moved) a thread resolves it, since the C library's resolver blocks, and an eventfd brings
 * the answer to the loop. The old addresses are used until then. The thread may outlive its caller:
 * the job is shared, and the last user frees it. */

#include "common/net/resolve.h"

#include <poll.h>
#include <pthread.h>
#include <resolv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/os/process_title.h"

enum { LOOK_MS = 50 /* time after which a waiting thread checks whether it still should */ };

/* Shared by the loop's thread and the asking one; the last to leave frees it. */
struct resolve_job {
    atomic_int users;
    int fd; /* eventfd: the answer is there */
    char *host;
    uint16_t port;
    bool counted; /* in n_waits, until its thread has asked */
    struct addrinfo *answer;
};

/* Number of names that are resolved at a client's wish (resolve_wait), including threads that no
 * caller waits for. */
static atomic_uint n_waits;

/* "localhost" and names below it mean this machine, whatever a name server says. */
static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    size_t n = host ? strlen(host) : 0;

    n -= n > 0 && host[n - 1] == '.';
    return n >= strlen(name) && strncasecmp(host + n - strlen(name), name, strlen(name)) == 0 &&
           (n == strlen(name) || host[n - strlen(name) - 1] == '.');
}

/* getaddrinfo, without asking anybody about localhost. */
int resolve_names(const char *host, const char *service, const struct addrinfo *hints,
                  struct addrinfo **ret)
{
    struct addrinfo h = *hints;

    if (!is_localhost(host) || (h.ai_flags & AI_NUMERICHOST))
        return getaddrinfo(host, service, &h, ret);
    h.ai_flags &= ~AI_PASSIVE; /* no host and not passive: the loopback addresses */
    return getaddrinfo(NULL, service, &h, ret);
}

/* Writes ADDRESS:PORT for people. */
void resolve_text(const struct sockaddr *a, socklen_t len, char ret[RESOLVE_TEXT])
{
    char host[48], port[8];

    if (getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV))
        (void)snprintf(ret, RESOLVE_TEXT, "?");
    else
        (void)snprintf(ret, RESOLVE_TEXT, a->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                       port);
}

/* Resolves the host; NULL: no answer. */
static struct addrinfo *ask_resolver(const char *host, uint16_t port, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", port);
    return resolve_names(host, service, &hints, &list) == 0 ? list : NULL;
}

/* An empty answer leaves the old addresses. */
static void keep_addresses(struct resolve *r, const struct addrinfo *list)
{
    size_t n = 0;

    for (; list && n < RESOLVE_MAX; list = list->ai_next) {
        memcpy(&r->at[n].addr, list->ai_addr, list->ai_addrlen);
        r->at[n++].len = list->ai_addrlen;
    }
    if (n > 0)
        r->n = n;
}

/* The last of thread and loop frees the job. */
static void job_leave(struct resolve_job *j)
{
    if (atomic_fetch_sub(&j->users, 1) != 1)
        return;
    if (j->answer)
        freeaddrinfo(j->answer);
    (void)close(j->fd);
    free(j->host);
    free(j);
}

/* For this thread: no domain of resolv.conf is put behind names. Unlike a dot behind the name this
 * leaves /etc/hosts as it is. */
static void ask_for_name_itself(void)
{
    if (res_init() == 0)
        _res.options &= ~(unsigned long)(RES_DEFNAMES | RES_DNSRCH);
}

/* Resolves in the thread. */
static void *job_run(void *arg)
{
    struct resolve_job *j = arg;
    uint64_t one = 1;

    process_title_name_thread("rollgate-names");
    if (j->counted)
        ask_for_name_itself();
    j->answer = ask_resolver(j->host, j->port, 0);
    if (j->counted)
        (void)atomic_fetch_sub(&n_waits, 1);
    (void)!write(j->fd, &one, sizeof(one));
    job_leave(j);
    return NULL;
}

static void job_drop(struct resolve *r)
{
    loop_del(r->loop, &r->io);
    job_leave(r->job);
    r->job = NULL;
}

/* Takes the answer, on the loop. */
static void on_answer(struct loop_io *io, unsigned events)
{
    struct resolve *r = CONTAINER_OF(io, struct resolve, io);

    (void)events;
    keep_addresses(r, r->job->answer);
    job_drop(r);
}

/* Keeps the addresses of the list, and frees it. NULL: keeps no address. */
static void keep_list(struct resolve *r, struct addrinfo *list)
{
    keep_addresses(r, list);
    if (list)
        freeaddrinfo(list);
}

/* Numeric hosts are never asked for again. Returns whether the host is a name. */
static bool begin_with_numeric(struct resolve *r, struct loop *loop, const char *host,
                               uint16_t port)
{
    struct addrinfo *list = ask_resolver(host, port, AI_NUMERICHOST);

    *r = (struct resolve){.loop = loop, .port = port};
    if (!list)
        r->host = mem_strdup(host);
    keep_list(r, list);
    return r->host != NULL;
}

void resolve_init(struct resolve *r, struct loop *loop, const char *host, uint16_t port)
{
    if (begin_with_numeric(r, loop, host, port))
        keep_list(r, ask_resolver(host, port, 0));
}

void resolve_done(struct resolve *r)
{
    if (r->job)
        job_drop(r);
    free(r->host);
}

/* Makes a job for a thread and one waiting caller; NULL: no descriptors are left. */
static struct resolve_job *job_new(const char *host, uint16_t port)
{
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct resolve_job *j;

    if (fd < 0)
        return NULL;
    j = mem_zalloc(sizeof(*j));
    *j = (struct resolve_job){.users = 2, .fd = fd, .host = mem_strdup(host), .port = port};
    return j;
}

/* False: there is no thread, and the caller is the job's last user. */
static bool job_start(struct resolve_job *j)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, job_run, j);
    (void)pthread_attr_destroy(&attr);
    if (rc != 0)
        atomic_store(&j->users, 1);
    return rc == 0;
}

/* At most one question at a time. */
void resolve_again(struct resolve *r)
{
    struct resolve_job *j;
    struct err e;

    if (r->job || !r->host)
        return;
    j = job_new(r->host, r->port);
    if (!j)
        return; /* the next failure asks again */
    r->job = j;
    if (loop_add(r->loop, &r->io, j->fd, LOOP_IN, on_answer, &e) < 0) {
        atomic_store(&j->users, 1); /* there is no thread */
        job_leave(j);
        r->job = NULL;
        return;
    }
    if (!job_start(j))
        job_drop(r);
}

void resolve_begin(struct resolve *r, struct loop *loop, const char *host, uint16_t port)
{
    if (begin_with_numeric(r, loop, host, port))
        resolve_again(r);
}

/* --- for threads --- */

/* Whether the answer is there by then. */
static bool job_answered(const struct resolve_job *j, uint64_t until_us)
{
    struct pollfd p = {.fd = j->fd, .events = POLLIN};
    uint64_t n;

    while (clock_us() < until_us && !cancel_wanted())
        if (poll(&p, 1, LOOK_MS) > 0)
            return read(j->fd, &n, sizeof(n)) == (ssize_t)sizeof(n);
    return false;
}

/* A job that runs; NULL: there are too many, or there is no thread or descriptor for it. */
static struct resolve_job *job_counted(const char *host, uint16_t port)
{
    struct resolve_job *j = NULL;

    if (atomic_fetch_add(&n_waits, 1) < RESOLVE_WAITS_MAX)
        j = job_new(host, port);
    if (j) {
        j->counted = true;
        if (job_start(j))
            return j;
        job_leave(j);
    }
    (void)atomic_fetch_sub(&n_waits, 1);
    return NULL;
}

int resolve_wait(const char *host, uint16_t port, uint64_t until_us, struct addrinfo **ret)
{
    struct resolve_job *j;
    bool answered;

    *ret = ask_resolver(host, port, AI_NUMERICHOST);
    if (*ret)
        return 0;
    j = job_counted(host, port);
    if (!j)
        return RESOLVE_BUSY;
    answered = job_answered(j, until_us);
    if (answered) {
        *ret = j->answer;
        j->answer = NULL;
    }
    job_leave(j);
    return answered ? 0 : -1;
}
