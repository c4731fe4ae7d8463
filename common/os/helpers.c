/* Threads next to the loop (helpers.h). One lock guards all that the loop and the threads share. It
 * is never held while a job runs. The loop never waits for it, because a thread may have lost the
 * processor while it held the lock. If the lock is taken, the loop tries again a moment later
 * (lock_now). The path of a job:
 *
 *   loop: helpers_push -> `pushed` -> hand_over -> lane of its key, `waiting`
 *   thread: pop_job -> run -> job_finish -> `done`, eventfd
 *   loop: on_helpers_event -> collect_ended -> `ended` -> report_end -> the job's done()
 *
 * One job of a lane runs at a time, in order. The lane that has used the least time is served
 * first. A new lane starts at the least time of the others, so it neither overtakes nor waits for
 * history. The last thread takes no long job; it skips a lane whose first job is long. A job that
 * exceeds its limit is asked to cancel. After twice its limit its thread is abandoned and replaced,
 * and the job's memory is never freed. A job may ask the loop to call a function for it
 * (helpers_ask) and waits meanwhile. */

#include "common/os/helpers.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/os/process_title.h"

enum {
    WATCH_PARTS = 4,       /* checks of a running job within its limit */
    FREE_WAIT_MS = 2000,   /* wait of helpers_free for running jobs */
    REMEMBER_US = 2000000, /* time for which an idle key's used time is remembered */
    TELL_US = 1000,        /* time in one loop iteration for calls of done() */
    AGAIN_MS = 1,          /* delay before the loop tries the lock again */
};

/* The jobs of one key. The loop makes and frees lanes; threads take jobs out of them. used_us is
 * the time that the key's jobs have used, plus the least time of the other lanes when it came. The
 * lane with the least used_us is served first. */
struct helper_lane {
    struct list_item item;  /* in the list of lanes with waiting jobs, or of idle ones */
    struct list_head first; /* waiting jobs with is_first */
    struct list_head jobs;  /* other waiting jobs */
    bool running;           /* one of its jobs is in a thread */
    unsigned untold;        /* jobs whose done() was not called yet */
    /* used_us: time used by jobs; idle_us: since when the lane has no jobs */
    uint64_t used_us, idle_us;
    size_t len;
    char key[];
};

struct thread {
    struct helpers *h;
    struct thread *next;
    pthread_t id;
    struct helper_job *job; /* job that the thread runs, or NULL */
    bool lost;              /* the thread's job is stuck, so the thread is abandoned */
    bool ended;
};

/* A function that a job asks the loop to call; on the helper's stack. */
struct question {
    struct question *next;
    void (*fn)(void *ctx);
    void *ctx;
    bool answered;
    sem_t told; /* posted when the loop has answered or the pool ends */
};

struct helpers {
    struct loop *loop;
    struct helpers_options opt;
    int wake_fd; /* eventfd: threads -> loop */
    struct loop_io io;
    struct loop_timer watch;
    struct map lanes;
    struct list_head idle; /* idle lanes, longest first */
    unsigned n_lost;

    /* Lists that only the loop uses, without the lock: jobs to move to and from the lanes. */
    struct list_head pushed, cancelled; /* jobs to hand over */
    struct list_head ended;             /* jobs whose done() must be called */
    struct loop_timer again;
    struct loop_task more_to_tell;

    /* posted when a job may be available. Not a condition variable: signalling one may wait for
     * threads that were woken before and do not get the processor */
    sem_t more;

    pthread_mutex_t lock; /* guards the fields below, and the lanes' lists */
    pthread_cond_t gone;
    struct question *questions;
    bool stop;
    struct list_head waiting; /* lanes with waiting jobs */
    uint64_t floor_us;        /* used time of the lane that was served last */
    struct thread *threads;
    unsigned n_ended;
    unsigned n_serving;    /* threads that are not abandoned */
    unsigned n_long;       /* threads that run long jobs */
    struct list_head done; /* jobs that have ended */
};

/* The job that this thread runs, or NULL. */
static _Thread_local struct helper_job *job_here;

static void lock_helpers(struct helpers *h)
{
    CHECK(pthread_mutex_lock(&h->lock) == 0);
}

static void unlock_helpers(struct helpers *h)
{
    CHECK(pthread_mutex_unlock(&h->lock) == 0);
}

static void wait_semaphore(sem_t *s)
{
    while (sem_wait(s) != 0)
        CHECK(errno == EINTR);
}

/* Makes the loop collect ended jobs. Call it without the lock: the loop would run first and then
 * wait for the thread that it has interrupted. */
static void wake_loop(struct helpers *h)
{
    uint64_t one = 1;

    (void)!write(h->wake_fd, &one, sizeof(one));
}

/* --- lanes --- */

static void lane_free(struct helpers *h, struct helper_lane *l)
{
    list_remove(&l->item);
    (void)map_take(&h->lanes, str_of(l->key, l->len));
    free(l);
}

/* Frees lanes that have been idle for long. Idle lanes are kept for a while, so that a key that
 * pushes one job at a time does not count as new each time. */
static void forget_idle(struct helpers *h, uint64_t now_us)
{
    struct helper_lane *l, *next;

    LIST_EACH_SAFE(&h->idle, l, next, struct helper_lane, item) {
        if (now_us - l->idle_us <= REMEMBER_US)
            return;
        lane_free(h, l);
    }
}

/* Returns the key's lane, which it makes if necessary. The lane is no longer idle. */
static struct helper_lane *lane_for_key(struct helpers *h, struct str key)
{
    struct helper_lane *l = map_get(&h->lanes, key);

    if (l) {
        if (l->untold == 0)
            list_remove(&l->item);
        return l;
    }
    l = mem_zalloc(sizeof(*l) + key.len);
    l->len = key.len;
    if (key.len > 0)
        memcpy(l->key, key.p, key.len);
    (void)map_set(&h->lanes, str_of(l->key, l->len), l);
    return l;
}

/* --- jobs; the lock is held --- */

static bool lane_is_empty(const struct helper_lane *l)
{
    return list_is_empty(&l->first) && list_is_empty(&l->jobs);
}

/* Adds a job to its lane. A lane with its first job joins the waiting lanes. On the loop. */
static void job_queue(struct helpers *h, struct helper_job *j)
{
    struct helper_lane *l = j->lane;

    if (lane_is_empty(l)) {
        l->used_us = MAX_OF(l->used_us, h->floor_us);
        list_append(&h->waiting, &l->item);
    }
    list_append(j->is_first ? &l->first : &l->jobs, &j->item);
    j->queued = true;
}

static void job_unqueue(struct helper_job *j)
{
    list_remove(&j->item);
    if (lane_is_empty(j->lane))
        list_remove(&j->lane->item);
}

static void job_finish(struct helpers *h, struct helper_job *j)
{
    list_append(&h->done, &j->told);
}

/* Returns the lane's first job if a thread may run it now; otherwise NULL. */
static struct helper_job *next_job(const struct helper_lane *l, bool long_too)
{
    const struct list_head *jobs = list_is_empty(&l->first) ? &l->jobs : &l->first;
    struct helper_job *j = LIST_FIRST_OF(jobs, struct helper_job, item);

    return !l->running && j && (long_too || !j->is_long) ? j : NULL;
}

/* Removes and returns the next job: from the lane with the least used time that has a job for this
 * thread. */
static struct helper_job *pop_job(struct helpers *h)
{
    bool long_too = h->n_long + 1 < MAX_OF(h->n_serving, 2u);
    struct helper_lane *best = NULL, *l;
    struct helper_job *ret = NULL, *j;

    LIST_EACH(&h->waiting, l, struct helper_lane, item) {
        j = !best || l->used_us < best->used_us ? next_job(l, long_too) : NULL;
        if (j) {
            best = l;
            ret = j;
        }
    }
    if (!best)
        return NULL;
    h->floor_us = MAX_OF(h->floor_us, best->used_us);
    best->running = true;
    return ret;
}

/* --- in a thread --- */

/* Runs the job. Returns false if the thread was abandoned meanwhile; it must then change nothing. A
 * thread makes its tool at its first job and keeps it. */
static bool run_on_thread(struct thread *t, struct helper_job *j, void **tool)
{
    struct helpers *h = t->h;
    bool more;

    job_unqueue(j);
    t->job = j;
    h->n_long += j->is_long;
    j->began_us = clock_us();
    atomic_store_explicit(&j->step_us, j->began_us, memory_order_relaxed);
    unlock_helpers(h);
    if (!*tool && h->opt.tool_new)
        *tool = h->opt.tool_new(h->opt.ctx);
    cancel_flag = &j->cancel;
    job_here = j;
    j->run(j, *tool);
    job_here = NULL;
    cancel_flag = NULL;
    lock_helpers(h);
    if (t->lost)
        return false;
    t->job = NULL;
    h->n_long -= j->is_long;
    j->ended_us = clock_us();
    j->lane->used_us += j->ended_us - j->began_us;
    j->lane->running = false;
    job_finish(h, j);
    more = !list_is_empty(&h->waiting);
    unlock_helpers(h);
    if (more)
        (void)sem_post(&h->more);
    wake_loop(h);
    lock_helpers(h);
    return true;
}

void helpers_step(void)
{
    if (job_here)
        atomic_store_explicit(&job_here->step_us, clock_us(), memory_order_relaxed);
}

bool helpers_within(void)
{
    return job_here != NULL;
}

bool helpers_ask(struct helpers *h, void (*fn)(void *ctx), void *ctx)
{
    struct question q = {.fn = fn, .ctx = ctx};
    bool stops;

    CHECK(sem_init(&q.told, 0, 0) == 0);
    lock_helpers(h);
    stops = h->stop;
    if (!stops) {
        q.next = h->questions;
        h->questions = &q; /* cppcheck-suppress autoVariables; it is off the list at the end */
    }
    unlock_helpers(h);
    if (!stops) {
        wake_loop(h);
        wait_semaphore(&q.told);
    }
    (void)sem_destroy(&q.told);
    return q.answered;
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    struct helpers *h = t->h;
    void *tool = NULL;
    bool mine = true;

    process_title_name_thread("rollgate-helper");
    /* On Linux the niceness is the thread's own. */
    if (h->opt.nice)
        (void)setpriority(PRIO_PROCESS, 0, h->opt.nice);
    lock_helpers(h);
    while (mine && !h->stop) {
        struct helper_job *j = pop_job(h);

        if (!j) {
            unlock_helpers(h);
            wait_semaphore(&h->more);
            lock_helpers(h);
            continue;
        }
        mine = run_on_thread(t, j, &tool);
    }
    unlock_helpers(h);
    if (tool && h->opt.tool_free)
        h->opt.tool_free(tool);
    lock_helpers(h);
    t->ended = true;
    h->n_ended++;
    (void)pthread_cond_signal(&h->gone);
    unlock_helpers(h);
    return NULL;
}

/* Starts a thread; the caller holds the lock. */
static int thread_start(struct helpers *h)
{
    struct thread *t = mem_zalloc(sizeof(*t));

    t->h = h;
    errno = pthread_create(&t->id, NULL, thread_main, t);
    if (errno) {
        free(t);
        return -1;
    }
    t->next = h->threads;
    h->threads = t;
    h->n_serving++;
    return 0;
}

/* --- on the loop --- */

/* Stuck jobs are kept in this list for ever, so that a leak checker finds them referenced. */
static struct list_head lost_jobs;

static void on_lock_retry(struct loop_timer *t);
static void on_more_ended(struct loop_task *t);

/* Tries to lock. Returns false if a thread has the lock; then on_lock_retry follows. */
static bool lock_now(struct helpers *h)
{
    int rc = pthread_mutex_trylock(&h->lock);

    if (rc == 0)
        return true;
    CHECK(rc == EBUSY);
    if (!loop_timer_active(&h->again))
        loop_timer_set(h->loop, &h->again, AGAIN_MS, on_lock_retry);
    return false;
}

/* Moves the ended job to the list whose done() the loop calls in its next iteration. */
static void end_job(struct helpers *h, struct helper_job *j)
{
    list_append(&h->ended, &j->told);
    loop_task_post(h->loop, &h->more_to_tell, on_more_ended);
}

/* Moves pushed jobs into their lanes, and removes cancelled ones that have not begun. */
static void hand_over(struct helpers *h)
{
    struct helper_job *j;
    unsigned n = 0;

    if ((list_is_empty(&h->pushed) && list_is_empty(&h->cancelled)) || !lock_now(h))
        return;
    for (; (j = LIST_FIRST_OF(&h->pushed, struct helper_job, item)); n++) {
        list_remove(&j->item);
        job_queue(h, j);
    }
    while ((j = LIST_FIRST_OF(&h->cancelled, struct helper_job, later))) {
        list_remove(&j->later);
        if (j->began_us > 0)
            continue;
        job_unqueue(j);
        j->queued = false;
        end_job(h, j);
    }
    unlock_helpers(h);
    for (; n > 0; n--)
        (void)sem_post(&h->more);
}

/* Calls the job's done(), on the loop. */
static void report_end(struct helpers *h, struct helper_job *j)
{
    struct helper_lane *l = j->lane;
    bool cancelled = atomic_load_explicit(&j->cancel, memory_order_relaxed) || j->began_us == 0;

    list_remove(&j->told);
    list_remove(&j->later);
    if (--l->untold == 0) {
        l->idle_us = clock_us();
        list_append(&h->idle, &l->item);
    }
    if (j->stuck)
        list_append(&lost_jobs, &j->told);
    j->done(j, j->stuck ? HELPER_STUCK : cancelled ? HELPER_CANCELLED : HELPER_DONE);
}

/* Calls the functions that helpers ask for, without the lock. */
static void answer_questions(struct question *q)
{
    struct question *next;

    for (; q; q = next) {
        next = q->next;
        q->fn(q->ctx);
        q->answered = true;
        (void)sem_post(&q->told); /* q may not be used from here on */
    }
}

/* Collects the results and questions of the threads and acts on them. */
static void collect_ended(struct helpers *h)
{
    uint64_t began_us = clock_us();
    struct question *questions;
    struct helper_job *j;

    if (lock_now(h)) {
        questions = h->questions;
        h->questions = NULL;
        list_move_all(&h->done, &h->ended);
        unlock_helpers(h);
        answer_questions(questions);
    }
    while ((j = LIST_FIRST_OF(&h->ended, struct helper_job, told))) {
        report_end(h, j);
        if (clock_us() - began_us < TELL_US)
            continue;
        /* the rest follows in the next loop iteration */
        loop_task_post(h->loop, &h->more_to_tell, on_more_ended);
        break;
    }
}

static void on_more_ended(struct loop_task *t)
{
    collect_ended(CONTAINER_OF(t, struct helpers, more_to_tell));
}

static void on_lock_retry(struct loop_timer *t)
{
    struct helpers *h = CONTAINER_OF(t, struct helpers, again);

    hand_over(h);
    collect_ended(h);
}

/* Runs on the loop when a job has ended or asks something. */
static void on_helpers_event(struct loop_io *io, unsigned events)
{
    struct helpers *h = CONTAINER_OF(io, struct helpers, io);
    uint64_t count;

    (void)events;
    (void)!read(h->wake_fd, &count, sizeof(count));
    collect_ended(h);
}

/* Abandons the thread of a stuck job and starts a new one. The lock must be held. */
static void thread_lose(struct helpers *h, struct thread *t)
{
    struct helper_job *j = t->job;

    t->lost = true;
    h->n_lost++;
    h->n_serving--;
    h->n_long -= j->is_long;
    j->stuck = true;
    j->ended_us = clock_us();
    j->lane->used_us += j->ended_us - j->began_us;
    j->lane->running = false;
    job_finish(h, j);
    if (thread_start(h) == 0 && !list_is_empty(&h->waiting))
        (void)sem_post(&h->more);
}

/* Checks for jobs that run too long. Active only while something runs or waits. */
static void on_watch(struct loop_timer *timer)
{
    struct helpers *h = CONTAINER_OF(timer, struct helpers, watch);
    /* negative if the job began after the clock was read */
    int64_t limit_us = (int64_t)h->opt.limit_ms * 1000, took_us;
    uint64_t now_us = clock_us();
    unsigned before = h->n_lost;
    struct thread *next;
    bool busy;

    if (!lock_now(h)) {
        loop_timer_set(h->loop, &h->watch, AGAIN_MS, on_watch);
        return;
    }
    busy = !list_is_empty(&h->waiting);
    for (struct thread *t = h->threads; t; t = next) {
        next = t->next;
        if (!t->job || t->lost)
            continue;
        busy = true;
        took_us = (int64_t)(now_us - atomic_load_explicit(&t->job->step_us, memory_order_relaxed));
        if (took_us > 2 * limit_us)
            thread_lose(h, t);
        else if (took_us > limit_us)
            atomic_store_explicit(&t->job->cancel, true, memory_order_relaxed);
    }
    unlock_helpers(h);
    if (busy)
        loop_timer_set(h->loop, &h->watch, h->opt.limit_ms / WATCH_PARTS + 1, on_watch);
    if (h->n_lost > before)
        wake_loop(h);
    if (h->n_lost > before && h->opt.on_lost)
        h->opt.on_lost(h->opt.ctx, h->n_lost);
}

void helpers_lengthen(struct helpers *h, uint64_t limit_ms)
{
    h->opt.limit_ms = MAX_OF(h->opt.limit_ms, limit_ms);
}

void helpers_push(struct helpers *h, struct helper_job *j, struct str key)
{
    forget_idle(h, clock_us());
    j->lane = lane_for_key(h, key);
    j->lane->untold++;
    j->pushed_us = clock_us();
    j->began_us = j->ended_us = 0;
    j->stuck = j->queued = false;
    atomic_store_explicit(&j->cancel, false, memory_order_relaxed);
    list_append(&h->pushed, &j->item);
    hand_over(h);
    if (h->opt.limit_ms && !loop_timer_active(&h->watch))
        loop_timer_set(h->loop, &h->watch, h->opt.limit_ms / WATCH_PARTS + 1, on_watch);
}

unsigned helpers_jobs(const struct helpers *h, struct str key)
{
    const struct helper_lane *l = map_get(&h->lanes, key);

    return l ? l->untold : 0;
}

bool helpers_busy(const struct helpers *h, struct str key)
{
    return helpers_jobs(h, key) > 0;
}

/* A waiting job ends at once. A running job must notice by itself (cancel_wanted). */
void helpers_cancel(struct helpers *h, struct helper_job *j)
{
    atomic_store_explicit(&j->cancel, true, memory_order_relaxed);
    if (!j->queued) {
        list_remove(&j->item);
        if (!list_holds(&j->told))
            end_job(h, j);
        return;
    }
    if (!list_holds(&j->later))
        list_append(&h->cancelled, &j->later);
    hand_over(h);
}

/* --- life --- */

int helpers_new(struct loop *loop, const struct helpers_options *o, struct helpers **ret,
                struct err *e)
{
    struct helpers *h = mem_zalloc(sizeof(*h));
    int failed = 0;

    *ret = NULL;
    h->loop = loop;
    h->opt = *o;
    CHECK(pthread_mutex_init(&h->lock, NULL) == 0);
    CHECK(pthread_cond_init(&h->gone, NULL) == 0);
    CHECK(sem_init(&h->more, 0, 0) == 0);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->wake_fd < 0) {
        free(h);
        return err_sys(e, ERR_IO, "no eventfd for helper threads");
    }
    if (loop_add(loop, &h->io, h->wake_fd, LOOP_IN, on_helpers_event, e)) {
        (void)close(h->wake_fd);
        free(h);
        return -1;
    }
    lock_helpers(h);
    for (unsigned i = 0; i < o->threads && !failed; i++)
        failed = thread_start(h);
    unlock_helpers(h);
    if (failed) {
        (void)err_sys(e, ERR_IO, "no helper thread");
        (void)helpers_free(h);
        return -1;
    }
    *ret = h;
    return 0;
}

/* Waits a moment for all threads to end. Returns the number of those that have not. */
static unsigned wait_for_threads(struct helpers *h)
{
    struct timespec until;
    struct question *q;
    unsigned n = 0;
    int rc = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FREE_WAIT_MS / 1000;
    lock_helpers(h);
    h->stop = true;
    for (struct thread *t = h->threads; t; t = t->next) {
        n++;
        if (t->job && !t->lost)
            atomic_store_explicit(&t->job->cancel, true, memory_order_relaxed);
        (void)sem_post(&h->more);
    }
    while ((q = h->questions)) { /* the remaining questions get no answer */
        h->questions = q->next;
        (void)sem_post(&q->told);
    }
    while (h->n_ended < n && rc == 0)
        rc = pthread_cond_timedwait(&h->gone, &h->lock, &until);
    n -= h->n_ended;
    unlock_helpers(h);
    return n;
}

unsigned helpers_free(struct helpers *h)
{
    struct thread *next;
    unsigned left;

    if (!h)
        return 0;
    left = wait_for_threads(h);
    loop_timer_stop(h->loop, &h->watch);
    loop_timer_stop(h->loop, &h->again);
    loop_task_cancel(h->loop, &h->more_to_tell);
    loop_del(h->loop, &h->io);
    for (struct thread *t = h->threads; t; t = t->next)
        (void)(left > 0 ? pthread_detach(t->id) : pthread_join(t->id, NULL));
    if (left > 0)
        return left; /* threads that are left may still use the lock, so nothing is freed */
    for (struct thread *t = h->threads; t; t = next) {
        next = t->next;
        free(t);
    }
    (void)close(h->wake_fd);
    for (size_t at = 0; h->lanes.n > 0; at = 0) {
        struct map_slot *slot = map_next(&h->lanes, &at);
        struct helper_lane *l = slot->value;

        (void)map_take(&h->lanes, map_slot_key(slot));
        free(l);
    }
    map_done(&h->lanes);
    (void)pthread_cond_destroy(&h->gone);
    (void)sem_destroy(&h->more);
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
    return 0;
}
