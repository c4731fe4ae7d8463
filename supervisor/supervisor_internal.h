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
struct place_table;
struct supervisor_bodies;
struct suspects;
struct tls_front;

enum supervisor_phase {
    PHASE_STARTING, /* not every child has reported */
    PHASE_SERVING,
    PHASE_EXECUTOR, /* drain: the local executor ends its attempts, while all others serve it */
    PHASE_LEAVING,  /* drain: other nodes get the places, while routers and keeper serve */
    PHASE_LEFT,     /* drain: other nodes have them, and routers send requests there for a lease */
    PHASE_ROUTERS,  /* drain: routers finish, while workers serve them */
    PHASE_WORKERS,  /* drain: workers flush and end */
    PHASE_KEEPER,   /* drain: with --fleet, the keeper ends */
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
    struct place_table *fleet; /* own; NULL without --fleet */
    uint32_t fleet_generation; /* of the place table, when workers were adjusted to it */
    bool leaves;               /* other nodes of the fleet get the places before the end */
    bool joined; /* workers and routers were started: with --fleet, after the keeper */
    struct listeners listeners;
    int status_fds[2]; /* children write [1], we read [0] */
    struct loop_io status_io;
    struct loop_timer tick;
    struct loop_timer fleet_tick; /* with --fleet: looks for changes of the own places */
    struct loop_timer deadline;   /* deadline of the current phase of a drain */
    enum supervisor_phase phase;
    bool asked_reload, asked_upgrade; /* asked for by a signal, not done yet */
    int exit_status;
    int64_t watchdog_ms;      /* 0: systemd expects no watchdog messages */
    int64_t watchdog_next;    /* loop clock */
    int64_t disk_ms;          /* loop clock of the next measurement of the disk */
    int64_t summary_until_ms; /* loop clock; 0: no terminal summary is planned */
    struct upgrade upgrade;
    struct local_executor executor;
    struct tls_front *front;   /* owned */
    struct suspects *suspects; /* owned */
    VEC(int64_t) deaths;       /* loop clock of each crash within the window */
    struct process processes[BOARD_SLOTS];
};

/* --- spawn.c --- */

/* Prepares slot for a process; it is forked by spawn_start. */
void spawn_prepare(struct supervisor *s, unsigned slot);
void spawn_start(struct supervisor *s, unsigned slot);

/* Starts the process again after a pause, which grows while processes of the slot die soon.
 * lived_ms: how long the last one lived. */
void spawn_later(struct supervisor *s, struct process *p, int64_t lived_ms);

/* Sets the state of the slot on the board. */
void spawn_set_state(struct supervisor *s, unsigned slot, enum board_state state);
enum board_state spawn_state(const struct supervisor *s, unsigned slot);

/* Sends a signal to the living children of a role (-1: all). Returns their number. */
unsigned spawn_signal(struct supervisor *s, int role, int signo);

/* child_body.c: runs the child from the fork to its role's main: signals, log, user, sandbox. */
RG_NORETURN void spawn_be_child(struct supervisor *s, struct process *p, pid_t parent);

/* --- reap.c --- */

/* Handles all deaths that have happened. */
void reap_all(struct supervisor *s);

/* Reads reports of children from the status pipe. */
void reap_read_reports(struct supervisor *s);

/* Kills children that are stuck or never reported. Called every tick. */
void reap_stuck(struct supervisor *s);

/* --- start.c --- */

/* Starts everything, from the settings to the first children. Returns -1 if that fails. */
int supervisor_start(struct supervisor *s, struct err *e);

/* Starts all children but the keeper. With --fleet their indexes come from the place table. */
int supervisor_start_children(struct supervisor *s, struct err *e);

/* Prepares folders, keys and sockets (take_place.c). */
int supervisor_claim_folders(struct supervisor *s, struct err *e);

/* announcement.c: logs one line with the facts that an operator needs first when something is
 * wrong. remark: the model's. */
void supervisor_announce(const struct supervisor *s, uint64_t descriptors, struct str remark);

/* Publishes the configured limits as metrics, so that graphs can show figures against them. */
void supervisor_publish_limits(struct supervisor *s);

/* Publishes the free bytes of the state folder's disk, every few seconds. */
void supervisor_measure_disk(struct supervisor *s);

/* --- terminal_summary.c: address, viewer, keys, state folder and engine --- */

/* Plans the summary, unless standard output is not a terminal or this process is a trial or an
 * upgrade. Call it when all processes serve. */
void terminal_summary_plan(struct supervisor *s);

/* Prints the planned summary when an engine answers, or when the wait for one is over. */
void terminal_summary_advance(struct supervisor *s);

/* --- tls_front.c --- */

/* Starts nginx if it is configured and does not run. */
void tls_front_start(struct supervisor *s);

/* Reports whether the process that ended was nginx. If so, it is replaced while we serve. */
bool tls_front_bury(struct supervisor *s, pid_t pid, int wait_status);

/* Writes the site again and makes nginx read it. */
void tls_front_reload(struct supervisor *s);

/* Checks for a new certificate, at most once a second. */
void tls_front_watch(struct supervisor *s);

/* Sends a signal: QUIT finishes nginx's requests, TERM does not. Prevents further starts. */
void tls_front_end(struct supervisor *s, int signo);

/* Puts what the next binary needs into the environment, where tls_front_inherit reads it. */
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

/* Frees, in a child that ends, what it inherited from its parent, so that leak checks report only
 * real leaks. */
void supervisor_forget(struct supervisor *s);

/* Begins the end: drain, with this exit status. Does nothing if the end has begun. */
void supervisor_stop(struct supervisor *s, int exit_status);

/* Handles a failed start: returns to the binary before an upgrade if there was one, otherwise
 * ends. */
void supervisor_fail(struct supervisor *s, const char *process, const char *reason);

/* Checks whether the current phase is complete. Called after every death and report. */
void supervisor_advance(struct supervisor *s);

/* --- fleet_places.c: places may come from lost nodes, and go to others --- */

/* Starts the keeper. The other children follow when it has joined. */
int fleet_places_start_keeper(struct supervisor *s, struct err *e);

/* Takes the indexes that the keeper has got. From now on ids of other indexes are other nodes'. */
int fleet_places_take_block(struct supervisor *s, struct err *e);

/* Prepares as many workers as configured, for owned places of this node's own indexes. */
void fleet_places_want_block(struct supervisor *s);

/* True if the place of that index exists and this node does not own it. False without a fleet. */
bool fleet_places_is_taken(const struct supervisor *s, uint32_t index);

/* True if a place of the board has the index: a worker there is wanted, or lives, or was adopted.
 */
bool fleet_places_is_served(const struct supervisor *s, uint32_t index);

/* Returns the place of the board that the index gets; -1: all are used. */
int fleet_places_choose(struct supervisor *s, uint32_t index);

/* Prepares a worker for each owned place that has none; starts it if all serve already. */
void fleet_places_want(struct supervisor *s);

/* Starts and ends workers after the place table has changed. Called every tick. */
void fleet_places_follow(struct supervisor *s);

/* Renames the folder of a place that another node has, if there is one: worker-INDEX.lost. */
void fleet_places_put_aside(const struct supervisor *s, uint32_t index);

/* Like fleet_places_put_aside, if the place is vacant: another node had it. */
void fleet_places_put_vacant(const struct supervisor *s, uint32_t index);

/* Renames the folders of places that this node has released: worker-INDEX.released. */
void fleet_places_put_released(const struct supervisor *s);

/* Gives up the place of a worker or dispatcher that died again and again, if another node can take
 * it. Returns false if this node keeps it. */
bool fleet_places_abandon_failed(struct supervisor *s, const struct process *p);

/* Handles the end of a place's worker. If this node gives the place up, reports it to the keeper as
 * left, unless the store may lack records. Returns true if no worker adopts the place. */
bool fleet_places_end(struct supervisor *s, const struct heritage_place *given);

/* Ends all workers, so that the keeper releases their places. */
void fleet_places_leave(struct supervisor *s);

/* True if no worker lives and this node owns no place. */
bool fleet_places_are_gone(const struct supervisor *s);

/* The worker of a place that another node has is gone: the place of the board is free. */
void fleet_places_forget(struct supervisor *s, uint32_t place);

/* Handles the end of a dispatcher whose place another node has or gets. */
void fleet_places_forget_dispatcher(struct supervisor *s);

/* --- reload.c --- */
void reload_config(struct supervisor *s);

/* Ends a process that is not replaced. */
void reload_retire(struct supervisor *s, unsigned slot);

/* Starts or retires workers of this node's own indexes until there are as many as configured. */
void reload_scale_workers(struct supervisor *s);

/* --- adoption.c --- */

/* Makes a remaining process adopt a process's own place and those that it had adopted, if a process
 * remains. */
void adoption_pass_all(struct supervisor *s, struct process *from);

/* Passes on the places of a retired process that has ended: a worker's journal is closed now, and
 * its adopter takes over. */
void adoption_pass_slot(struct supervisor *s, unsigned slot);

/* Finds journals in the state folder whose workers are not wanted, and makes wanted workers adopt
 * their places. */
int adoption_assign_leftovers(struct supervisor *s, struct err *e);

/* Makes routers serve inherited sockets beyond their number (an upgrade after a scale-down). The
 * kernel sends connections to each of these sockets, so a process must accept there. */
int adoption_serve_given(struct supervisor *s, struct err *e);

#endif
