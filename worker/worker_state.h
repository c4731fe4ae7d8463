/*
 * struct worker_state: what a worker holds while it runs: the service with its calls, the journals
 * of its places, keys and sinks. worker.c runs the loop.
 */
#ifndef RG_WORKER_WORKER_STATE_H
#define RG_WORKER_WORKER_STATE_H

#include "common/os/loop.h"
#include "worker/plane/service/service.h"

struct engine_home;
struct fragments;
struct journal;
struct store;
struct media_options;
struct worker_files;

struct worker_state {
    const struct heritage *h;
    struct loop *loop;
    struct service service;
    struct keys *keys;
    uint64_t ticks;                    /* seconds since the start */
    bool compacting, dropping;         /* a task does this (worker_journals.c) */
    uint64_t compact_after;            /* tick of the next check */
    bool many_absent;                  /* the journals had more to drop than one check does */
    uint64_t told_records, told_bytes; /* figures that were added to the counters */
    uint64_t skipped;                  /* number of replayed records that were invalid */
    struct engine_home *engine_home;   /* owned */
    bool all_text;                     /* every engine is asked with messages */

    struct {
        char **at;
        size_t n, cap;
    } orphans;                  /* ids of sessions without a beginning, to be dropped */
    struct journal *opening;    /* journal whose records are being replayed */
    uint32_t opening_index;     /* index of its place */
    struct fragments *replayed; /* fragments of its calls */
    struct store *store;        /* the fleet's; NULL: no fleet */
    bool comparing;             /* a folder that was put aside is being compared or removed */
    struct web_rules *web;      /* from where pictures may be fetched; NULL: from nowhere */
    struct media_store *media;
    struct worker_files *files;  /* the images' second copy; NULL: no fleet */
    struct span_exporter *spans; /* NULL: no collector is set */
};

/* Opens keys, calls, engines, sinks and the journals of all places. h and loop must be set.
 * on_health is called when an engine becomes ready or fails. After -1 worker_state_close must be
 * called, too. */
int worker_state_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                      struct err *e);

/* Makes the changes of a start, such as the end of expired sessions, before requests are served. In
 * a fleet it waits for the store first, for a lease at most. */
void worker_state_begin(struct worker_state *w);

/* Applies changed settings. */
void worker_state_reload(struct worker_state *w);

/* worker_replay.c: opens the journal of a place and replays it. */
int worker_state_open_place(struct worker_state *w, uint32_t index, struct err *e);

/* worker_fleet.c: opens the connection to the store of the fleet, sends records of a place after it
 * was opened, and ends both. They do nothing without a fleet. */
int worker_fleet_open(struct worker_state *w, struct err *e);
void worker_fleet_serve_place(struct worker_state *w, uint32_t index);

/* Returns true if the store has all records, or if there is no fleet. */
bool worker_fleet_is_sent(const struct worker_state *w);

void worker_fleet_close(struct worker_state *w);

/* worker_folders.c: called once a second. Compares folders of lost places with the store, and
 * removes old ones. */
void worker_folders_tick(struct worker_state *w);

/* Waits until the fleet's orders are obeyed and the store has been compared with the journals, at
 * most for a lease. */
void worker_fleet_await(struct worker_state *w);

/* Returns the memory of the journals' tables of where their records are. */
uint64_t worker_state_table_bytes(const struct worker_state *w);

/* Called once a second: notes deliveries, checks journals and sinks. */
void worker_state_tick(struct worker_state *w);

/* Reports whether everything is done that must be done before the end: no call runs. Without
 * `late` also: all data was sent to sinks, to the collector of spans and to the fleet's store. */
bool worker_state_idle(struct worker_state *w, bool late);

/* Ends all calls and the helpers. Returns how many helper threads do not end: the process must then
 * exit by _exit, and free nothing that a request uses. */
unsigned worker_state_stop(struct worker_state *w);

/* Closes everything; no further request may arrive. `keep`: a helper thread hangs, see
 * worker_state_stop. */
void worker_state_close(struct worker_state *w, bool keep);

/* worker_journals.c: number of ticks between checks for rare work. */
enum { WORKER_LOOK_OVER_TICKS = 30 };

/* Drops all records of deleted and aborted sessions except their end. */
void worker_journals_drop_gone(struct worker_state *w);

/* Called once a second: drops records that are not needed, compacts, and sums up the journals'
 * figures for metrics. */
void worker_journals_look_over(struct worker_state *w);

/* Applies changed settings to the journals. */
void worker_journals_reload(struct worker_state *w);

/* Reports whether the journals' disk has less free space than --journal-min-free. */
bool worker_disk_low(const struct worker_state *w);

/* Parts of the functions above. Open, reload and close the engines and everything that depends on
 * them (such as the settings of calls). `changed` is called when the set may have changed. */
int worker_engines_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                        struct err *e);
void worker_engines_changed(struct worker_state *w);
void worker_engines_reload(struct worker_state *w);
void worker_engines_close(struct worker_state *w);

/* Opens the exporter of calls' spans, if a collector is set, before the first call. idle:
 * reports whether all spans were sent. Returns -1 with ERR_CONFIG. */
int worker_trace_open(struct worker_state *w, struct err *e);
bool worker_trace_idle(struct worker_state *w);
void worker_trace_close(struct worker_state *w);

/* worker_files.c: the second copy of the sessions' images in the store of the fleet. new: sets what
 * the options need for it; NULL without a fleet. open: after the second copy was made. add_place:
 * adds the images that sessions of the place have here. sweep: deletes what no session needs.
 * close: after the store was freed. All but `open` and `add_place` accept NULL. */
struct worker_files *worker_files_new(struct worker_state *w, struct media_options *o);
void worker_files_open(struct worker_files *f);
void worker_files_add_place(struct worker_files *f, uint32_t index);
void worker_files_sweep(struct worker_files *f);
void worker_files_close(struct worker_files *f);
void worker_files_free(struct worker_files *f);

/* Opens the store of pictures and the rules for fetching them, before the engines. sweep drops
 * pictures that no session needs. on_lost is passed to call_fetchers_begin. Returns -1 with
 * ERR_CONFIG. */
int worker_media_open(struct worker_state *w, void (*on_lost)(void *env, unsigned n),
                      struct err *e);
void worker_media_sweep(struct worker_state *w);
void worker_media_close(struct worker_state *w);

#endif
