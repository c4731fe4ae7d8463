/*
 * A library for LD_PRELOAD: faults of disk and clock on demand. $RG_FAULTS names a folder; while a
 * file of one of these names is in it,
 *   fdatasync   fails with the errno that stands in the file
 *   foldersync  fsync of a folder fails with the errno that stands in the file
 *   hold        fdatasync waits until the file is gone
 *   pictures    fsync of what lies below "/media/" takes so many milliseconds more; with "hold" it
 *               waits until the file is gone
 *   writev      fails with the errno in the file, after half of the bytes were written ("5 half"),
 *               or from the third write on ("5 after 2"), or at the third one alone ("5 only 2")
 *   slow        writev takes so many milliseconds more
 *   clock       CLOCK_REALTIME is so many seconds ahead
 *   stick       localtime_r waits in threads beside the first until the file is gone: a helper that
 *               renders does not come back
 *   keep        madvise and getaddrinfo wait in threads beside the first until the file is gone: a
 *               helper that reads pictures, or a thread that fetches some, does not come back
 *   folder      opendir waits in threads beside the first until the file is gone: a helper that
 *               links pictures comes late
 *   entries     readdir fails with the errno that stands in the file, for folders of "where"
 *   print       strtod and log10 wait in threads beside the first until the file is gone: a helper
 *               that reads or writes logprobs does not come back
 *   steps       each reading of CLOCK_MONOTONIC is so many milliseconds later still: what is to
 *               end after some time does so after one step; "100 4711": in the process 4711 alone
 *   flock       fails with the errno that stands in the file, for all files, or those of "where"
 *   rename      of a file whose name has this text waits until the file is gone
 *   where       what is hurt: descriptors whose name has this text, instead of "/seg-" (journal
 *               segments); then hold holds these only, and foldersync hurts these only, not all
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int fault(const char *name, char *text, size_t size)
{
    const char *dir = getenv("RG_FAULTS");
    char path[512];
    ssize_t n;
    int fd;

    if (!dir || snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return 0;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, size - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static int is_hurt(int fd, const char *where)
{
    char link[64], path[512];
    ssize_t n;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    return strstr(path, where) != NULL;
}

int flock(int fd, int operation)
{
    static int (*real)(int, int);
    char text[64], where[64] = "/";

    (void)fault("where", where, sizeof(where));
    if (fault("flock", text, sizeof(text)) && is_hurt(fd, where)) {
        errno = (int)strtol(text, NULL, 10);
        return -1;
    }
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "flock");
    return real(fd, operation);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    char text[64], where[64] = "/seg-";
    int some = fault("where", where, sizeof(where));

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "fdatasync");
    while ((!some || is_hurt(fd, where)) && fault("hold", text, sizeof(text)))
        (void)usleep(5000);
    if (is_hurt(fd, where) && fault("fdatasync", text, sizeof(text))) {
        errno = (int)strtol(text, NULL, 10);
        return -1;
    }
    return real(fd);
}

static int is_folder(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

int fsync(int fd)
{
    static int (*real)(int);
    char text[64], where[64];

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "fsync");
    if (is_folder(fd) && (!fault("where", where, sizeof(where)) || is_hurt(fd, where)) &&
        fault("foldersync", text, sizeof(text))) {
        errno = (int)strtol(text, NULL, 10);
        return -1;
    }
    if (is_hurt(fd, "/media/") && fault("pictures", text, sizeof(text)))
        (void)usleep((useconds_t)strtol(text, NULL, 10) * 1000);
    while (is_hurt(fd, "/media/") && fault("pictures", text, sizeof(text)) &&
           strcmp(text, "hold") == 0)
        (void)usleep(2000);
    return real(fd);
}

int rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    char text[64];

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "rename");
    while (fault("rename", text, sizeof(text)) && strstr(from, text))
        (void)usleep(2000);
    return real(from, to);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    static int seen; /* writes since the fault began; only the loop writes journals */
    char text[64], where[64] = "/seg-";
    const char *after, *only;
    int saved = errno;
    int fails = 1;

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "writev");
    (void)fault("where", where, sizeof(where));
    if (is_hurt(fd, where) && fault("slow", text, sizeof(text)))
        (void)usleep((useconds_t)strtol(text, NULL, 10) * 1000);
    if (!is_hurt(fd, where) || !fault("writev", text, sizeof(text))) {
        seen = fails = 0;
    } else if ((after = strstr(text, "after")) != NULL) {
        fails = seen++ >= (int)strtol(after + 5, NULL, 10);
    } else if ((only = strstr(text, "only")) != NULL) {
        fails = seen++ == (int)strtol(only + 4, NULL, 10);
    }
    if (fails) {
        if (strstr(text, "half"))
            (void)!write(fd, parts[0].iov_base, parts[0].iov_len / 2);
        errno = (int)strtol(text, NULL, 10);
        return -1;
    }
    errno = saved;
    return real(fd, parts, n);
}

/* Adds the offset to a clock reading. The clock never goes back. The clock is read for every token
 * of an answer, so the file is only checked every few milliseconds. */
static void add_steps(struct timespec *t)
{
    static _Atomic long added_ms, step_ms, looked_ms;
    char text[64], *end;
    long now_ms = t->tv_sec * 1000 + t->tv_nsec / 1000000, pid;

    if (now_ms - looked_ms >= 5) {
        looked_ms = now_ms;
        step_ms = fault("steps", text, sizeof(text)) ? strtol(text, &end, 10) : 0;
        pid = step_ms ? strtol(end, NULL, 10) : 0;
        if (pid && pid != getpid())
            step_ms = 0;
    }
    added_ms += step_ms;
    now_ms += added_ms;
    t->tv_sec = now_ms / 1000;
    t->tv_nsec = now_ms % 1000 * 1000000 + t->tv_nsec % 1000000;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    char text[64];
    int rc;

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "clock_gettime");
    rc = real(id, t);
    if (rc == 0 && id == CLOCK_REALTIME && fault("clock", text, sizeof(text)))
        t->tv_sec += strtol(text, NULL, 10);
    if (rc == 0 && id == CLOCK_MONOTONIC)
        add_steps(t);
    return rc;
}

/* Waits in threads other than the first while the fault exists. The file "waits" shows that a
 * thread waits. */
static void wait_beside(const char *name)
{
    char text[64], path[512];
    int fd;

    while (gettid() != getpid() && fault(name, text, sizeof(text))) {
        (void)snprintf(path, sizeof(path), "%s/waits", getenv("RG_FAULTS"));
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0)
            (void)close(fd);
        (void)usleep(2000);
    }
}

struct tm *localtime_r(const time_t *t, struct tm *ret)
{
    static struct tm *(*real)(const time_t *, struct tm *);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "localtime_r");
    wait_beside("stick");
    return real(t, ret);
}

/* Reports whether to check for the fault. A helper writes hundreds of thousands of logprobs. The
 * fault is checked for each of the first thousand and then for one in 64, because checks take
 * longer than writing. */
static int is_looked_at(void)
{
    enum { EACH = 1000, THEN = 64, TOGETHER_MS = 20 };

    static _Thread_local unsigned n;
    static _Thread_local long last_ms;
    struct timespec t;
    long now_ms;

    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    now_ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
    n = now_ms - last_ms > TOGETHER_MS ? 1 : n + 1;
    last_ms = now_ms;
    return n <= EACH || n % THEN == 0;
}

double strtod(const char *text, char **end)
{
    static double (*real)(const char *, char **);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "strtod");
    if (is_looked_at())
        wait_beside("print");
    return real(text, end);
}

double log10(double x)
{
    static double (*real)(double);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "log10");
    if (is_looked_at())
        wait_beside("print");
    return real(x);
}

int madvise(void *at, size_t size, int advice)
{
    static int (*real)(void *, size_t, int);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "madvise");
    wait_beside("keep");
    return real(at, size, advice);
}

DIR *opendir(const char *path)
{
    static DIR *(*real)(const char *);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "opendir");
    wait_beside("folder");
    return real(path);
}

struct dirent *readdir(DIR *d)
{
    static struct dirent *(*real)(DIR *);
    char text[64], where[64] = "/";
    int before = errno;

    (void)fault("where", where, sizeof(where));
    if (fault("entries", text, sizeof(text)) && is_hurt(dirfd(d), where)) {
        errno = (int)strtol(text, NULL, 10);
        return NULL;
    }
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "readdir");
    errno = before; /* readdir leaves it at the folder's end */
    return real(d);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "getaddrinfo");
    wait_beside("keep");
    return real(host, service, hints, ret);
}
