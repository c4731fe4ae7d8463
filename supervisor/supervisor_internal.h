/*
 * Shared by the files of the supervisor. start.c starts; supervisor.c reacts to signals and ends.
 * spawn.c forks, reap.c handles deaths. reload.c reads the settings again and scales. adoption.c
 * decides which process serves which place. upgrade.c becomes a new binary.
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
#include "supervisor/upgrade.h"

struct config;
struct loop;
struct metrics;
struct metrics_page;
struct model;
struct supervisor_bodies;
struct suspects;
struct tls_front;

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
    struct loop_timer deadline; /* deadline of the current phase of a drain */
    enum supervisor_phase phase;
    bool asked_reload, asked_upgrade; /* by a signal, not done yet */
    int exit_status;
    int64_t watchdog_ms;      /* 0: systemd asks for no sign of life */
    int64_t watchdog_next;    /* loop clock */
    int64_t disk_ms;          /* loop clock of the next look at the disk */
    int64_t summary_until_ms; /* loop clock; 0: no lines for a terminal are planned */
    struct upgrade upgrade;
    struct local_executor executor;
    struct tls_front *front;   /* own */
    struct suspects *suspects; /* own */
    VEC(int64_t) deaths;       /* loop clock of the crashes within the window */
    struct process processes[BOARD_SLOTS];
};

/* --- spawn.c --- */

/* Prepares slot for a process; it is forked by spawn_start. */
void spawn_prepare(struct supervisor *s, unsigned slot);
void spawn_start(struct supervisor *s, unsigned slot);

/* Starts it again after a pause that grows while it dies soon: it has lived for lived_ms. */
void spawn_later(struct supervisor *s, struct process *p, int64_t lived_ms);

/* Sets the state of the slot on the board. */
void spawn_set_state(struct supervisor *s, unsigned slot, enum board_state state);
enum board_state spawn_state(const struct supervisor *s, unsigned slot);

/* Sends a signal to the living children of a role (or all: -1). Returns how many there are. */
unsigned spawn_signal(struct supervisor *s, int role, int signo);

/* child_body.c: what is left of the way from fork to the role's main: signals, log, user, sandbox.
 */
RG_NORETURN void spawn_be_child(struct supervisor *s, struct process *p, pid_t parent);

/* --- reap.c --- */

/* Takes all deaths that have happened. */
void reap_all(struct supervisor *s);

/* Reads reports of children from the status pipe. */
void reap_read_reports(struct supervisor *s);

/* Every tick: kills children that are stuck or never reported. */
void reap_stuck(struct supervisor *s);

/* --- start.c --- */

/* Starts everything from the settings to the first children. -1: it cannot start. */
int supervisor_start(struct supervisor *s, struct err *e);

/* Prepares folders, keys and sockets (take_place.c). */
int supervisor_claim_folders(struct supervisor *s, struct err *e);

/* announcement.c: one line with all that one asks first when something is odd. remark: the model's.
 */
void supervisor_announce(const struct supervisor *s, uint64_t descriptors, struct str remark);

/* Shows the configured limits among the metrics, so that a graph can show figures against them. */
void supervisor_publish_limits(struct supervisor *s);

/* Publishes the free bytes of the state folder's disk, every few seconds. */
void supervisor_measure_disk(struct supervisor *s);

/* --- terminal_summary.c: address, viewer, keys, state folder and engine --- */

/* Plans the lines, unless standard output is no terminal or this process is a trial or an upgrade.
 * Call it when all processes serve. */
void terminal_summary_plan(struct supervisor *s);

/* Prints planned lines as soon as an engine answers, or the wait for one is over. */
void terminal_summary_advance(struct supervisor *s);

/* --- tls_front.c --- */

/* Starts it if it is configured and does not run. */
void tls_front_start(struct supervisor *s);

/* Whether the process that ended was it; then it is replaced as long as we serve. */
bool tls_front_bury(struct supervisor *s, pid_t pid, int wait_status);

/* Writes the site again and makes nginx read it. */
void tls_front_reload(struct supervisor *s);

/* Looks for a new certificate, at most once a second. */
void tls_front_watch(struct supervisor *s);

/* Sends a signal: QUIT finishes its requests, TERM does not. No further start. */
void tls_front_end(struct supervisor *s, int signo);

/* Puts what the next binary needs into the environment, which tls_front_inherit reads there. */
void tls_front_leave(const struct supervisor *s);
void tls_front_inherit(struct supervisor *s);

/* Reports whether nginx runs. */
bool tls_front_lives(const struct supervisor *s);

/* Closes the pipe of nginx's output. For children. */
void tls_front_close(struct supervisor *s);
void tls_front_done(struct supervisor *s);

/* --- supervisor.c --- */

/* Makes the loop, with signals and the status pipe. */
int supervisor_open_loop(struct supervisor *s, struct err *e);

/* Frees, in a child that ends, what it inherited from its parent, so that leak checks find real
 * leaks only. */
void supervisor_forget(struct supervisor *s);

/* Begins the end: drain, with this exit status. Does nothing when it has begun. */
void supervisor_stop(struct supervisor *s, int exit_status);

/* The start has failed: back to the binary before an upgrade, if there was one, else the end. */
void supervisor_fail(struct supervisor *s, const char *process, const char *reason);

/* Looks whether the current phase is complete; called after every death and report. */
void supervisor_advance(struct supervisor *s);

/* --- reload.c --- */
void reload_config(struct supervisor *s);

/* --- adoption.c --- */

/* Gives a process's own place and those that it had adopted to one other process, if one stays. */
void adoption_pass_all(struct supervisor *s, struct process *from);

/* The slot's process, which retires, has ended: a worker's journal is closed now, and its places go
 * to its adopter. */
void adoption_pass_slot(struct supervisor *s, unsigned slot);

/* Gives the places whose journals are in the state folder, but whose workers are not wanted, to
 * wanted workers. */
int adoption_assign_leftovers(struct supervisor *s, struct err *e);

/* Makes routers serve inherited sockets beyond their number (an upgrade after a scale-down). The
 * kernel sends connections to each of these sockets, so a process must accept there. */
int adoption_serve_given(struct supervisor *s, struct err *e);

#endif
