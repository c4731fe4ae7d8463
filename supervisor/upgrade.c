/*
 * One supervisor passes its state to the next through exec, as descriptors and environment
 * variables. The new one removes them from its environment at its start, before it has children:
 *
 *   RG_PREVIOUS         the running children: slot, pid, control socket, a worker's places
 *   RG_BINARY           the program's path, remembered because the file may be replaced
 *   RG_BEFORE           a descriptor of the previous binary, for a return until all serve
 *   RG_BASE             the first index of this node, which the inherited sockets have
 *   RG_INDEXES          in a fleet, "place:index," for each place of the board with another index
 *   RG_PAUSED           an order of the admin, which outlives a binary
 *   RG_FRONT            nginx, and the pipe of its output (tls_front.c)
 *   RG_EXECUTOR         the runner that belongs to this program (local_executor.c)
 *
 * become_program() sets all of it and executes. If the exec fails, it undoes everything and the
 * supervisor continues as before. The return (upgrade_undo) is the same step with the roles
 * exchanged.
 */
#include "supervisor/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "supervisor/supervisor_internal.h"

extern char **environ;

/* --- state for the next binary --- */

/* Describes a child for the next binary. */
static struct previous as_previous(const struct process *p)
{
    const struct heritage *h = &p->heritage;
    struct previous old = {.slot = h->slot, .pid = p->pid, .control_fd = p->control_fd};

    if (h->role != ROLE_WORKER)
        return old;
    old.places[h->place / 64] |= UINT64_C(1) << h->place % 64;
    for (size_t i = 0; i < h->n_adopted; i++)
        old.places[h->adopted[i].place / 64] |= UINT64_C(1) << h->adopted[i].place % 64;
    return old;
}

/* Appends the text form of a child; see describe_children. */
static void describe_process(struct buf *text, const struct previous *old)
{
    buf_printf(text, "%u:%d:%d", old->slot, (int)old->pid, old->control_fd);
    for (unsigned place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (old->places[place / 64] >> place % 64 & 1)
            buf_printf(text, "+%u", place);
    }
    buf_add_c(text, ',');
}

/* Appends "slot:pid:fd+place+place," for each child that continues. The new supervisor waits for
 * these children and keeps their control sockets open, so that they can finish. */
static void describe_children(struct supervisor *s, struct buf *text)
{
    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        struct previous old = as_previous(&s->processes[slot]);

        if (old.pid)
            describe_process(text, &old);
    }
    for (size_t i = 0; i < s->upgrade.previous.n; i++)
        describe_process(text, &s->upgrade.previous.at[i]);
    buf_add_c(text, 0);
}

/* Sets whether control sockets survive exec. */
static void set_inherited(struct supervisor *s, bool inherited)
{
    int flags = inherited ? 0 : FD_CLOEXEC;

    for (unsigned slot = BOARD_ROUTER0; slot < BOARD_SLOTS; slot++) {
        if (s->processes[slot].pid)
            (void)fcntl(s->processes[slot].control_fd, F_SETFD, flags);
    }
    for (size_t i = 0; i < s->upgrade.previous.n; i++)
        (void)fcntl(s->upgrade.previous.at[i].control_fd, F_SETFD, flags);
}

static void leave_number(const char *name, int n)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", n);
    (void)setenv(name, text, 1);
}

/* Leaves a pause to the next binary, because it is the admin's order. */
static void leave_orders(const struct board *b)
{
    if (atomic_load(&b->paused))
        (void)setenv("RG_PAUSED", "1", 1);
}

/* Leaves what the places of the board serve in a fleet. */
static void leave_indexes(const struct supervisor *s)
{
    struct buf text = {0};

    leave_number("RG_BASE", (int)s->board->worker_base);
    for (unsigned place = 0; place < BOARD_WORKERS_MAX; place++)
        if (board_index(s->board, place) != s->board->worker_base + place)
            buf_printf(&text, "%u:%u,", place, board_index(s->board, place));
    buf_add_c(&text, 0);
    (void)setenv("RG_INDEXES", text.p, 1);
    buf_done(&text);
}

static void forget_orders(void)
{
    (void)unsetenv("RG_PAUSED");
}

/* Becomes the program that fd is open on, or, if fd is -1, the one at our path. before_fd: the
 * program to which that one may return (-1: none). Returns only if it fails, with errno; nothing
 * has changed then. */
static void become_program(struct supervisor *s, int fd, int before_fd)
{
    struct buf children = {0};
    VEC(char *) args = {0};
    int failure;

    describe_children(s, &children);
    (void)setenv("RG_PREVIOUS", children.p, 1);
    (void)setenv("RG_BINARY", s->upgrade.binary, 1);
    if (before_fd >= 0)
        leave_number("RG_BEFORE", before_fd);
    local_executor_leave(s);
    tls_front_leave(s);
    leave_orders(s->board);
    if (s->fleet)
        leave_indexes(s);
    listeners_hand_over(&s->listeners);
    set_inherited(s, true);
    *vec_push(&args) = s->upgrade.binary;
    for (int i = 0; i < s->config->argc; i++)
        *vec_push(&args) = s->config->argv[i];
    *vec_push(&args) = NULL;
    if (fd >= 0)
        (void)fexecve(fd, args.at, environ);
    else
        (void)execv(s->upgrade.binary, args.at);
    failure = errno;
    vec_done(&args);
    buf_done(&children);
    set_inherited(s, false);
    listeners_keep(&s->listeners);
    (void)unsetenv("RG_PREVIOUS");
    (void)unsetenv("RG_BINARY");
    (void)unsetenv("RG_BEFORE");
    (void)unsetenv("RG_EXECUTOR");
    (void)unsetenv("RG_BASE");
    (void)unsetenv("RG_INDEXES");
    forget_orders();
    errno = failure;
}

/* --- SIGUSR2 --- */

static void log_failure(const struct supervisor *s, const char *reason)
{
    log_error(NULL, "the new binary does not run with this configuration, going on as before",
              LOG_T("binary", s->upgrade.binary), LOG_T("reason", reason));
}

static void on_trial_deadline(struct loop_timer *t)
{
    struct upgrade *u = CONTAINER_OF(t, struct upgrade, deadline);

    u->trial.too_late = true;
    trial_kill(&u->trial);
}

/* False, with a log line: the fleet's store has not answered for a lease. The new binary's keeper
 * could not join, and no process would be ready. */
static bool reaches_store(const struct supervisor *s)
{
    uint64_t reached_ms = s->fleet ? place_table_reached_ms(s->fleet) : 0;
    uint64_t away_ms = clock_boot_ms() - reached_ms;

    if (!s->fleet || away_ms <= (uint64_t)s->config->fleet_lease_ms)
        return true;
    log_error(NULL, "not upgrading, because the store of the fleet does not answer",
              LOG_U("for_ms", away_ms));
    return false;
}

void upgrade_begin(struct supervisor *s)
{
    struct upgrade *u = &s->upgrade;
    struct err e;

    if (u->trial.pid || !reaches_store(s))
        return;
    if (trial_start(&u->trial, u->binary, s->config, s->listeners.address, &e)) {
        log_failure(s, e.text);
        return;
    }
    log_info(NULL, "trying the new binary", LOG_T("binary", u->binary));
    loop_timer_set(s->loop, &u->deadline, (uint64_t)s->config->start_timeout_ms, on_trial_deadline);
}

void upgrade_continue(struct supervisor *s, int wait_status)
{
    struct upgrade *u = &s->upgrade;
    struct err e;
    int self;

    loop_timer_stop(s->loop, &u->deadline);
    if (trial_end(&u->trial, wait_status, &e)) {
        if (s->phase <= PHASE_SERVING)
            log_failure(s, e.text);
        return;
    }
    if (s->phase > PHASE_SERVING)
        return;
    log_info(NULL, "upgrading", LOG_T("binary", u->binary));
    self = open("/proc/self/exe", O_RDONLY);
    become_program(s, -1, self);
    log_failure(s, strerror(errno));
    if (self >= 0)
        close(self);
}

/* --- in the new binary --- */

static void read_previous(struct upgrade *u, const char *text)
{
    while (text && *text) {
        struct previous old = {0};
        char *end;

        old.slot = (unsigned)strtoul(text, &end, 10);
        old.pid = *end == ':' ? (pid_t)strtol(end + 1, &end, 10) : 0;
        old.control_fd = *end == ':' ? (int)strtol(end + 1, &end, 10) : -1;
        while (*end == '+') {
            unsigned long place = strtoul(end + 1, &end, 10) % BOARD_WORKERS_MAX;

            old.places[place / 64] |= UINT64_C(1) << place % 64;
        }
        if (*end != ',' || old.slot >= BOARD_SLOTS || old.pid <= 0)
            break;
        (void)fcntl(old.control_fd, F_SETFD, FD_CLOEXEC);
        *vec_push(&u->previous) = old;
        text = end + 1;
    }
}

void upgrade_init(struct supervisor *s)
{
    const char *binary = getenv("RG_BINARY"), *before = getenv("RG_BEFORE");
    const char *base = getenv("RG_BASE");
    struct upgrade *u = &s->upgrade;
    ssize_t n;

    u->before_fd = -1;
    u->is_trial = trial_is_me();
    /* The path is remembered, because the file may be replaced while we run. */
    if (binary) {
        (void)snprintf(u->binary, sizeof(u->binary), "%s", binary);
    } else {
        n = readlink("/proc/self/exe", u->binary, sizeof(u->binary) - 1);
        u->binary[MAX_OF(n, 0)] = 0;
    }
    if (before) {
        u->before_fd = (int)strtol(before, NULL, 10);
        (void)fcntl(u->before_fd, F_SETFD, FD_CLOEXEC);
    }
    if (base && s->config->fleet)
        s->config->worker_base = strtol(base, NULL, 10);
    (void)unsetenv("RG_BASE");
    read_previous(u, getenv("RG_PREVIOUS"));
    local_executor_inherit(s);
    tls_front_inherit(s);
    (void)unsetenv("RG_PREVIOUS");
    (void)unsetenv("RG_BINARY");
    (void)unsetenv("RG_BEFORE");
}

void upgrade_restore_orders(struct board *b)
{
    atomic_store(&b->paused, getenv("RG_PAUSED") != NULL);
    forget_orders();
}

void upgrade_restore_indexes(struct board *b)
{
    const char *text = getenv("RG_INDEXES");
    char *end;

    while (text && *text) {
        unsigned long place = strtoul(text, &end, 10), index;

        index = *end == ':' ? strtoul(end + 1, &end, 10) : 0;
        if (*end != ',' || place >= BOARD_WORKERS_MAX || index > UINT32_MAX - 1)
            break;
        board_set_index(b, (uint32_t)place, (uint32_t)index);
        text = end + 1;
    }
    (void)unsetenv("RG_INDEXES");
}

void upgrade_commit(struct supervisor *s)
{
    if (s->upgrade.before_fd >= 0)
        close(s->upgrade.before_fd);
    s->upgrade.before_fd = -1;
}

void upgrade_undo(struct supervisor *s, const char *reason)
{
    if (s->upgrade.before_fd < 0)
        return;
    log_error(NULL, "the new binary does not start, the one before goes on",
              LOG_T("binary", s->upgrade.binary), LOG_T("reason", reason));
    become_program(s, s->upgrade.before_fd, -1);
    log_error(NULL, "the binary before does not run any more", LOG_T("reason", strerror(errno)));
    upgrade_commit(s);
}

void upgrade_done(struct supervisor *s)
{
    upgrade_commit(s);
    vec_done(&s->upgrade.previous);
}
