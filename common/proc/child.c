/* The work of every child in addition to its role (child.h). A child receives signals and orders of
 * the supervisor, sends a heartbeat once a second so that it does not count as stuck, publishes
 * figures about itself, and reports when it serves. When the control socket ends, the supervisor
 * has ended, and the child ends too. */

#include "common/proc/child.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/logs.h"
#include "common/proc/metrics.h"
#include "common/proc/status.h"

enum { BEAT_MS = 1000, CPU_STEP_US = 500 };

/* Drains at the first TERM or INT. Ends the process at QUIT. */
static void on_signal(struct signals *s, int signo, int sender)
{
    struct child *c = CONTAINER_OF(s, struct child, signals);

    if (signo == SIGQUIT)
        _exit(0);
    if (signo == SIGHUP || signo == SIGUSR2 || c->draining)
        return; /* the supervisor handles HUP and USR2, or a drain has already begun */
    c->draining = true;
    log_debug(NULL, "draining", LOG_I("sender", sender));
    c->on_drain(c);
}

/* Handles an order. Closes a descriptor that comes with it if no handler takes ownership. */
static void handle_order(struct child *c, const struct order *o, int fd)
{
    struct heritage_place place = {
        .place = o->place, .index = board_index(c->heritage->board, o->place), .listen_fd = fd};

    if (o->kind == ORDER_RELOAD) {
        config_reload(c->heritage->config);
        logs_setup(c->heritage->name, c->heritage->config, c->heritage->page);
        if (c->on_reload)
            c->on_reload(c);
    } else if (o->kind == ORDER_LEAVE && c->on_leave) {
        c->on_leave(c);
    } else if (o->kind == ORDER_ADOPT && fd >= 0 && c->on_adopt && !c->draining) {
        c->on_adopt(c, &place);
        return;
    }
    if (fd >= 0)
        close(fd);
}

/* Reads all waiting orders. */
static void on_control(struct loop_io *io, unsigned events)
{
    struct child *c = CONTAINER_OF(io, struct child, control);
    struct order order;
    int fd, rc;

    (void)events;
    while ((rc = order_receive(io->fd, &order, &fd)) > 0)
        handle_order(c, &order, fd);
    if (rc < 0)
        _exit(1); /* the supervisor has ended: no process could reap or replace us */
}

/* Returns the resident memory; 0 if there is no /proc. */
static uint64_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    char line[128];
    unsigned long long pages = 0;

    if (f && fgets(line, sizeof(line), f)) {
        char *resident = strchr(line, ' ');

        pages = resident ? strtoull(resident + 1, NULL, 10) : 0;
    }
    if (f)
        (void)fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns the number of open descriptors. Kernels from 6.2 on report it as the folder's size.
 * Counting tens of thousands would take long. */
static uint64_t open_descriptors(void)
{
    struct stat st;
    uint64_t n = 0;
    DIR *d;

    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n > 3 ? n - 3 : 0; /* minus ".", ".." and the folder's own descriptor */
}

/* Writes the heartbeat and the process metrics, once a second. */
static void on_beat(struct loop_timer *t)
{
    struct child *c = CONTAINER_OF(t, struct child, beat);
    struct metrics_page *page = c->heritage->page;
    struct board_slot *slot = &c->heritage->board->slots[c->heritage->slot];
    uint64_t lag_us = loop_fetch_lag_us(c->loop);

    atomic_store_explicit(&slot->beat_ms, clock_ms(), memory_order_relaxed);
    metrics_set(page, METRIC_loop_lag_max, lag_us);
    metrics_observe_us(page, METRIC_loop_lag, lag_us);
    metrics_set(page, METRIC_rss, resident_bytes());
    metrics_set(page, METRIC_open_fds, open_descriptors());
    loop_timer_set(c->loop, &c->beat, BEAT_MS, on_beat);
}

/* Measures the processor time of a loop iteration that lasted `us`. It is less than that if other
 * processes want the processor too. The measurement costs a system call. So it is made after long
 * iterations, and often enough before them that time of short iterations is not counted as theirs.
 */
static void measure_cpu(struct child *c, uint64_t us)
{
    uint64_t now_us = clock_us(), used_us;

    if (us < CPU_STEP_US && now_us - c->cpu.read_us < CPU_STEP_US)
        return;
    used_us = clock_read_us(CLOCK_THREAD_CPUTIME_ID);
    us = MIN_OF(us, used_us - c->cpu.used_us);
    c->cpu.read_us = now_us;
    c->cpu.used_us = used_us;
    if (us <= c->cpu.max_us)
        return;
    c->cpu.max_us = us;
    metrics_set(c->heritage->page, METRIC_loop_hold_cpu_max, us);
}

/* Records that a callback has held the loop for `us`. */
static void on_hold(void *ctx, uint64_t us)
{
    struct child *c = ctx;

    metrics_observe_us(c->heritage->page, METRIC_loop_hold, us);
    measure_cpu(c, us);
    if (us <= c->held_max_us)
        return;
    c->held_max_us = us;
    metrics_set(c->heritage->page, METRIC_loop_hold_max, us);
}

int child_init(struct child *c, struct loop *l, const struct heritage *h, child_drain_fn on_drain,
               struct err *e)
{
    static const int watched[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR2, 0};

    *c = (struct child){.heritage = h, .loop = l, .on_drain = on_drain};
    if (signals_init(&c->signals, l, watched, on_signal, e))
        return -1;
    if (loop_add(l, &c->control, h->control_fd, LOOP_IN, on_control, e)) {
        signals_done(&c->signals);
        return -1;
    }
    c->cpu =
        (struct held_cpu){.read_us = clock_us(), .used_us = clock_read_us(CLOCK_THREAD_CPUTIME_ID)};
    loop_on_hold(l, on_hold, c);
    on_beat(&c->beat);
    return 0;
}

void child_done(struct child *c)
{
    if (!c->loop)
        return;
    loop_on_hold(c->loop, NULL, NULL);
    loop_timer_stop(c->loop, &c->beat);
    loop_del(c->loop, &c->control);
    signals_done(&c->signals);
    c->loop = NULL;
}

/* Writes one message to the status pipe. */
static void send_status(const struct heritage *h, enum status_kind kind, uint32_t value,
                        const char *text)
{
    struct status s = {.slot = h->slot, .kind = kind, .pid = (int32_t)getpid(), .value = value};
    struct err e;

    (void)snprintf(s.text, sizeof(s.text), "%s", text);
    if (status_send(h->status_fd, &s, &e)) {
        /* an upgrade was undone while we started: the previous supervisor ends us */
        if (e.sys == EPIPE)
            log_info(NULL, "the supervisor that started this process is another program now");
        else
            log_error(NULL, e.text);
    }
}

void child_ready(struct child *c, const char *remark)
{
    if (c->told)
        return;
    c->told = true;
    on_beat(&c->beat);
    send_status(c->heritage, STATUS_READY, 0, remark);
}

void child_failed(const struct heritage *h, const char *why)
{
    send_status(h, STATUS_FAILED, 0, why);
}

void child_adopted(struct child *c, uint32_t place)
{
    send_status(c->heritage, STATUS_ADOPTED, place, "");
}
