/*
 * A library for LD_PRELOAD: what a process's loop does where a turn of it takes long. A turn is
 * what lies between two calls of epoll_wait in the first thread. A thread of its own looks every
 * third of a millisecond; from HOLD_US on it has the loop write where it stands, once a
 * millisecond, to the standard error (a gateway's log), in one piece: a line "hold PID TURN after
 * US cpu US faults N" and its stack, innermost first, each frame as FILE(NAME+OFFSET). What a
 * machine stands still shows as no sample at all, or as one that came late: that is why this finds
 * what `perf` does not tell from it. holds.py reads it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_US = 3000, LOOK_NS = 300000, AGAIN_US = 900, FRAMES = 48 };

#define TELL (SIGRTMIN + 9) /* nobody else uses it */

static _Atomic unsigned long began_us, turns; /* 0: the loop waits */
static unsigned long began_cpu_us;
static long began_faults;
static pid_t watched; /* the process whose loop is looked at */

static unsigned long now_us(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (unsigned long)t.tv_sec * 1000000 + (unsigned long)t.tv_nsec / 1000;
}

static long faults(void)
{
    struct rusage r;

    (void)getrusage(RUSAGE_THREAD, &r);
    return r.ru_minflt;
}

/* The offset is the name's, or the file's where there is none. */
static int write_frame(char *to, size_t size, void *frame)
{
    Dl_info at = {0};

    if (!dladdr(frame, &at) || !at.dli_fname)
        return snprintf(to, size, "?()\n");
    return snprintf(to, size, "%s(%s+0x%zx)\n", at.dli_fname, at.dli_sname ? at.dli_sname : "",
                    (size_t)((char *)frame - (char *)(at.dli_sname ? at.dli_saddr : at.dli_fbase)));
}

/* In the loop's thread, wherever it stands; maybe when the turn is over. */
static void on_tell(int signo)
{
    static char text[FRAMES * 128];
    unsigned long from_us = atomic_load(&began_us), at_us = now_us(CLOCK_MONOTONIC);
    void *frames[FRAMES];
    int n, len;

    (void)signo;
    if (from_us == 0 || at_us - from_us < HOLD_US)
        return;
    n = backtrace(frames, FRAMES);
    len = snprintf(text, sizeof(text), "hold %d %lu after %lu cpu %lu faults %ld\n", (int)watched,
                   atomic_load(&turns), at_us - from_us,
                   now_us(CLOCK_THREAD_CPUTIME_ID) - began_cpu_us, faults() - began_faults);
    for (int i = 0; i < n && (size_t)len < sizeof(text) - 256; i++)
        len += write_frame(text + len, 256, frames[i]);
    (void)!write(STDERR_FILENO, text, (size_t)len);
}

static void *look(void *arg)
{
    const struct timespec pause = {0, LOOK_NS};
    unsigned long seen_us = 0, told_us = 0;

    (void)arg;
    for (;;) {
        unsigned long from_us, at_us;

        (void)nanosleep(&pause, NULL);
        from_us = atomic_load(&began_us);
        at_us = now_us(CLOCK_MONOTONIC);
        if (from_us == 0 || at_us - from_us < HOLD_US)
            continue;
        if (seen_us == from_us && at_us - told_us < AGAIN_US)
            continue;
        seen_us = from_us;
        told_us = at_us;
        (void)syscall(SYS_tgkill, watched, watched, TELL);
    }
    return NULL;
}

/* The first backtrace loads a library, which must not happen in a handler. */
static void begin(void)
{
    struct sigaction how = {.sa_handler = on_tell, .sa_flags = SA_RESTART};
    sigset_t all, had, own;
    pthread_t thread;
    void *frame;

    watched = getpid();
    (void)backtrace(&frame, 1);
    (void)sigaction(TELL, &how, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &had);
    (void)pthread_create(&thread, NULL, look, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &had, NULL);
    (void)sigemptyset(&own);
    (void)sigaddset(&own, TELL);
    (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
    static int (*real)(int, struct epoll_event *, int, int);
    int n;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    if (getpid() != (pid_t)syscall(SYS_gettid))
        return real(fd, events, max, timeout_ms);
    if (watched != getpid())
        begin();
    atomic_store(&began_us, 0);
    n = real(fd, events, max, timeout_ms);
    began_cpu_us = now_us(CLOCK_THREAD_CPUTIME_ID);
    began_faults = faults();
    atomic_fetch_add(&turns, 1);
    atomic_store(&began_us, now_us(CLOCK_MONOTONIC));
    return n;
}
