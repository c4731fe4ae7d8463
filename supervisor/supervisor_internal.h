/*
 * What the files of the supervisor share. supervisor.c starts, reacts to signals and ends;
 * spawn.c forks and reaps; reload.c scales and reloads; upgrade.c
 * becomes a new binary.
 */
#ifndef RG_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define RG_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/vec.h"
#include "common/os/signals.h"
#include "supervisor/listeners.h"
#include "supervisor/local_executor.h"
#include "supervisor/processes.h"
#include "supervisor/suspects.h"
#include "supervisor/upgrade.h"

struct config;
struct loop;
struct metrics;
struct metrics_page;
struct model;
struct supervisor_bodies;

enum supervisor_phase {
    PHASE_STARTING, /* until every child has reported */
    PHASE_SERVING,
    PHASE_EXECUTOR, /* drain: the local executor ends its attempts, all others serve it */
    PHASE_ROUTERS,  /* drain: routers finish, workers still serve them */
    PHASE_WORKERS,  /* drain: workers flush and end */
    PHASE_KILLED,   /* everything was sent SIGKILL */
};

struct supervisor {
    struct config *config;
    const struct supervisor_bodies *bodies;
    const struct model *model;
    struct loop *loop;
    struct signals signals;
    struct board *board;
    struct metrics *metrics;
    struct metrics_page *page;
    struct listeners listeners;
    int status_fds[2]; /* children write [1], we read [0] */
    struct loop_io status_io;
    struct loop_timer tick;
    struct loop_timer deadline; /* of the current phase of a drain */
    enum supervisor_phase phase;
    bool asked_reload, asked_upgrade; /* by a signal, not done yet */
    int exit_status;
    int64_t watchdog_ms;   /* 0: systemd asks for no sign of life */
    int64_t watchdog_next; /* loop clock */
    struct upgrade upgrade;
    struct local_executor executor;
    struct suspects suspects;
    VEC(int64_t) deaths; /* loop clock of the crashes within the window */
    struct process processes[BOARD_SLOTS];
};

/* --- spawn.c --- */

/* Prepares slot for a process; it is forked by spawn_start. */
void spawn_prepare(struct supervisor *s, unsigned slot);
void spawn_start(struct supervisor *s, unsigned slot);

/* Reaps all that ended. */
void spawn_reap(struct supervisor *s);

/* Reads the status pipe. */
void spawn_take_reports(struct supervisor *s);

/* Kills children that are stuck or never reported. */
void spawn_check(struct supervisor *s);

/* Sends a signal to the living children of a role (or all: -1). Returns how many there are. */
unsigned spawn_signal(struct supervisor *s, int role, int signo);

/* --- supervisor.c --- */

/* Begins the end: drain, with this exit status. Does nothing when it has begun. */
void supervisor_stop(struct supervisor *s, int exit_status);

/* The start has failed: back to the binary before an upgrade, if there was one, else the end. */
void supervisor_fail(struct supervisor *s, const char *process, const char *reason);

/* Looks whether the current phase is complete; called after every death and report. */
void supervisor_advance(struct supervisor *s);

/* --- reload.c --- */
void reload_config(struct supervisor *s);

/* Shows the configured limits among the metrics. */
void supervisor_tell_limits(struct supervisor *s);

/* A retiring worker has ended: its place goes to its adopter, at once or when that serves. */
void reload_give_place(struct supervisor *s, unsigned slot);

/* Gives the places whose journals lie in the state folder, but whose workers are not wanted any
 * more, to those that are. */
int reload_adopt_leftovers(struct supervisor *s, struct err *e);

/* Given sockets beyond the number of routers (an upgrade after a scale-down): the kernel sends
 * connections to each of them, so somebody must accept there. */
int reload_serve_given(struct supervisor *s, struct err *e);

#endif
