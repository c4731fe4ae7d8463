/* A forked child before its role's main: the descriptors that it closes, the rights that it drops,
 * and its limits. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/os/process_title.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/logs.h"
#include "supervisor/sandbox.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"
#include "supervisor/user.h"

/* Reports whether the process accepts on the descriptor. */
static bool is_served(const struct heritage *h, int fd)
{
    bool mine = fd == h->listen_fd;

    for (size_t i = 0; i < h->n_adopted; i++)
        mine |= fd == h->adopted[i].listen_fd;
    return mine;
}

/* Closes, in the child, the descriptors of the supervisor and of other children. */
static void close_inherited(struct supervisor *s, const struct process *own)
{
    const struct heritage *h = &own->heritage;

    if (h->role == ROLE_ROUTER)
        s->listeners.n_also = 0; /* a router accepts on these, so they stay open */

    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++) {
        if (is_served(h, s->listeners.routers[i]))
            s->listeners.routers[i] = -1;
    }
    for (unsigned i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (is_served(h, s->listeners.workers[i]))
            s->listeners.workers[i] = -1;
    }
    if (is_served(h, s->listeners.dispatcher))
        s->listeners.dispatcher = -1;
    listeners_close(&s->listeners);
    for (unsigned i = 0; i < BOARD_SLOTS; i++) {
        if (s->processes[i].pid && s->processes[i].control_fd >= 0)
            close(s->processes[i].control_fd);
    }
    for (size_t i = 0; i < s->upgrade.previous.n; i++)
        close(s->upgrade.previous.at[i].control_fd);
    if (s->upgrade.trial.pid)
        close(s->upgrade.trial.said_fd);
    tls_front_close(s);
    upgrade_done(s);
    close(s->status_fds[0]);
    close(s->signals.io.fd);
    loop_free(s->loop);
}

/* Resets the signals. Only processes with children keep SIGCHLD. The others stay blocked until
 * struct child asks for them. So a SIGTERM that comes meanwhile waits, and does not kill a
 * half-made process. */
static void reset_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* Makes the kernel kill a worker without memory before the supervisor and the routers: the worker's
 * sessions are in the journal. Never lowers the value that the service was started with, which
 * would need a privilege. */
static void be_first_to_die(void)
{
    enum { WORKER_OOM_SCORE = 500 };

    FILE *f = fopen("/proc/self/oom_score_adj", "r+e");
    char had[16] = "";

    if (!f)
        return; /* there is no /proc: the kernel chooses */
    if (fgets(had, sizeof(had), f) && strtol(had, NULL, 10) < WORKER_OOM_SCORE) {
        rewind(f);
        (void)fprintf(f, "%d", WORKER_OOM_SCORE);
    }
    if (fclose(f))
        log_warn(NULL, "oom_score_adj cannot be set, ignoring", LOG_T("reason", strerror(errno)));
}

static int (*body_of(const struct supervisor_bodies *b,
                     enum heritage_role role))(const struct heritage *h)
{
    if (role == ROLE_DISPATCHER)
        return b->dispatcher;
    if (role == ROLE_KEEPER)
        return b->keeper;
    return role == ROLE_ROUTER ? b->router : b->worker;
}

/* Limits a worker's address space, for machines on which one worker must not use all memory. */
static void limit_address_space(const struct config *c)
{
    const struct rlimit r = {(rlim_t)c->worker_address_space, (rlim_t)c->worker_address_space};

    if (c->worker_address_space > 0 && setrlimit(RLIMIT_AS, &r))
        log_warn(NULL, "--worker-address-space cannot be set, ignoring",
                 LOG_T("reason", strerror(errno)));
}

/* Shows "worker-3" as "rollgate: worker 3", and its first thread as "rollgate-w3". */
static void show_title(const char *name)
{
    char title[64], thread[16];
    char *dash;

    (void)snprintf(title, sizeof(title), "rollgate: %s", name);
    dash = strchr(title, '-');
    if (dash)
        *dash = ' ';
    process_title_set(title);
    dash = strchr(name, '-');
    (void)snprintf(thread, sizeof(thread), "rollgate-%c%s", name[0], dash ? dash + 1 : "");
    process_title_name_thread(thread);
}

void spawn_be_child(struct supervisor *s, struct process *p, pid_t parent)
{
    struct heritage *h = &p->heritage;
    struct board_slot *slot = &s->board->slots[h->slot];
    struct err e;
    int rc;

    show_title(h->name);
    if (h->role == ROLE_WORKER)
        be_first_to_die();
    rc = user_become(s->config, &e);
    /* Set again because changing the user clears it. The signal follows the thread that forked, and
     * the supervisor has only one thread. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    close_inherited(s, p);
    reset_signals();
    logs_setup(h->name, s->config, h->page);
    check_set_last_words(slot->last_words, sizeof(slot->last_words));
    if (rc) {
        child_failed(h, e.text);
        _exit(1);
    }
    if (h->role == ROLE_WORKER)
        limit_address_space(s->config);
    if (s->config->sandbox && sandbox_enter(h, &e))
        log_warn(NULL, "the sandbox is not complete, ignoring", LOG_T("reason", e.text));
    rc = body_of(s->bodies, h->role)(h);
    supervisor_forget(s);
    exit(rc);
}
