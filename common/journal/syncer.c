/* A ticket is covered by an fsync that began after the ticket was issued. The thread uses a
 * duplicate of the descriptor, so the owner may close its own. If the process has no descriptor
 * left for the duplicate, the caller waits for the fsync. */

#include "common/journal/syncer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/os/process_title.h"

struct syncer {
    struct loop *loop;
    struct loop_io io;
    syncer_fn fn;
    void *ctx;
    pthread_t thread;
    int wake_fd; /* eventfd: thread -> loop */

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t more;
    bool stop;
    bool busy;      /* the thread is in an fsync */
    int fd;         /* duplicate that must be synced; -1: no request waits */
    int source;     /* descriptor that `fd` duplicates */
    uint64_t asked; /* newest issued ticket */
    uint64_t done;  /* newest covered ticket */
    int failed;
    uint64_t took_us;
};

/* Records that an fsync covered all tickets up to `ticket`, or failed, and wakes the loop. Called
 * with the lock held. */
static void mark_synced(struct syncer *s, uint64_t ticket, int failed, uint64_t start_us)
{
    uint64_t one = 1;

    s->done = ticket;
    s->failed = failed ? failed : s->failed;
    s->took_us = clock_us() - start_us;
    (void)!write(s->wake_fd, &one, sizeof(one));
}

/* Syncs one group. Called with the lock held; releases it during the fsync. */
static void sync_group(struct syncer *s)
{
    uint64_t ticket = s->asked;
    int fd = s->fd;
    uint64_t start_us;
    int failed;

    s->fd = -1;
    s->busy = true;
    (void)pthread_mutex_unlock(&s->lock);
    start_us = clock_us();
    failed = fdatasync(fd) ? errno : 0;
    (void)close(fd);
    (void)pthread_mutex_lock(&s->lock);
    s->busy = false;
    mark_synced(s, ticket, failed, start_us);
    (void)pthread_cond_signal(&s->more); /* wakes sync_here; this thread does not wait now */
}

/* Runs until it must stop and no request waits. */
static void *run_syncer(void *arg)
{
    struct syncer *s = arg;

    process_title_name_thread("rollgate-fsync");
    (void)pthread_mutex_lock(&s->lock);
    while (!s->stop || s->fd >= 0) {
        if (s->fd >= 0)
            sync_group(s);
        else
            (void)pthread_cond_wait(&s->more, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Reports the newest covered ticket, and errors. Runs on the loop. */
static void on_syncer_event(struct loop_io *io, unsigned events)
{
    struct syncer *s = CONTAINER_OF(io, struct syncer, io);
    uint64_t count;
    uint64_t done;
    uint64_t took_us;
    int failed;

    (void)events;
    (void)!read(s->wake_fd, &count, sizeof(count));
    (void)pthread_mutex_lock(&s->lock);
    done = s->done;
    failed = s->failed;
    s->failed = 0; /* reported now; a later group may succeed */
    took_us = s->took_us;
    (void)pthread_mutex_unlock(&s->lock);
    s->fn(s->ctx, done, failed, took_us);
}

int syncer_new(struct loop *loop, syncer_fn fn, void *ctx, struct syncer **ret, struct err *e)
{
    struct syncer *s = mem_zalloc(sizeof(*s));

    s->loop = loop;
    s->fn = fn;
    s->ctx = ctx;
    s->fd = -1;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->more, NULL);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0) {
        (void)err_sys(e, ERR_IO, "no eventfd for fsync");
        goto out;
    }
    if (loop_add(loop, &s->io, s->wake_fd, LOOP_IN, on_syncer_event, e))
        goto out;
    errno = pthread_create(&s->thread, NULL, run_syncer, s);
    if (errno) {
        (void)err_sys(e, ERR_IO, "no thread for fsync");
        goto out;
    }
    *ret = s;
    return 0;
out:
    loop_del(loop, &s->io);
    if (s->wake_fd >= 0)
        (void)close(s->wake_fd);
    free(s);
    return -1;
}

void syncer_free(struct syncer *s)
{
    if (!s)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_signal(&s->more);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    loop_del(s->loop, &s->io);
    (void)close(s->wake_fd);
    (void)pthread_cond_destroy(&s->more);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Syncs fd itself, with the lock held, after the thread's pending fsync. The kernel reports a
 * failure to only one of the two, so it counts for the tickets of both. */
static void sync_here(struct syncer *s, int fd)
{
    uint64_t start_us = clock_us();

    while (s->busy)
        (void)pthread_cond_wait(&s->more, &s->lock);
    mark_synced(s, s->asked, fdatasync(fd) ? errno : 0, start_us);
}

uint64_t syncer_ask(struct syncer *s, int fd)
{
    uint64_t ticket;

    (void)pthread_mutex_lock(&s->lock);
    ticket = ++s->asked;
    if (s->fd < 0 || s->source != fd) {
        if (s->fd >= 0)
            (void)close(s->fd); /* of an older segment, which its owner has synced */
        s->fd = dup(fd);
        s->source = fd;
        if (s->fd < 0)
            sync_here(s, fd);
    }
    (void)pthread_cond_signal(&s->more);
    (void)pthread_mutex_unlock(&s->lock);
    return ticket;
}
