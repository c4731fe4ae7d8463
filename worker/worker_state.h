/*
 * struct worker_state: what a worker holds while it lives: the service with its calls, the journals
 * of its places, keys and sinks. worker.c turns the loop around it and ends it.
 */
#ifndef RG_WORKER_WORKER_STATE_H
#define RG_WORKER_WORKER_STATE_H

#include "common/os/loop.h"
#include "worker/plane/service/service.h"

struct engine_home;
struct fragments;
struct journal;

struct worker_state {
    const struct heritage *h;
    struct loop *loop;
    struct service service;
    struct keys *keys;
    uint64_t ticks;                    /* seconds since the start */
    bool compacting, dropping;         /* a task does so (worker_journals.c) */
    uint64_t compact_after;            /* tick */
    bool many_absent;                  /* the journals had more to drop than a look-over does */
    uint64_t told_records, told_bytes; /* to the counters */
    uint64_t skipped;                  /* replayed records that did not fit */
    struct engine_home *engine_home;   /* own */
    bool all_text;                     /* every engine is asked with messages */

    struct {
        char **at;
        size_t n, cap;
    } orphans;                  /* their sessions */
    struct journal *opening;    /* whose records are being replayed */
    struct fragments *replayed; /* fragments of its calls */
    struct web_rules *web;      /* from where pictures may be fetched; NULL: from nowhere */
    struct media_store *media;
    struct span_exporter *spans; /* NULL: there is no collector */
};

/* Opens keys, calls, engines, sinks and the journals of all places. h and loop are set; on_health
 * is told when an engine comes or goes. -1: worker_state_close all the same. */
int worker_state_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                      struct err *e);

/* The settings have changed. */
void worker_state_reload(struct worker_state *w);

/* worker_replay.c: opens the journal of a place and replays it. */
int worker_state_open_place(struct worker_state *w, uint32_t index, struct err *e);

/* Memory that the journals take to know where their records stand. */
uint64_t worker_state_table_bytes(const struct worker_state *w);

/* Once a second: notes deliveries, looks over journals and sinks. */
void worker_state_tick(struct worker_state *w);

/* Whether all that must leave memory first is out: no call runs, and nothing is on its way to a
 * sink or a collector of spans (with `late`, they are not waited for). */
bool worker_state_idle(struct worker_state *w, bool late);

/* Ends all calls and the helpers. Returns how many helpers do not end: then the process must leave
 * by _exit, and free nothing that a request uses. */
unsigned worker_state_stop(struct worker_state *w);

/* No request comes any more. `keep`: a helper is lost, see worker_state_stop. */
void worker_state_close(struct worker_state *w, bool keep);

/* worker_journals.c: every so many ticks what is rare is looked over. */
enum { WORKER_LOOK_OVER_TICKS = 30 };

/* Once a second: drops what nobody needs, compacts, adds the journals' figures up for metrics. */
void worker_journals_look_over(struct worker_state *w);

/* The settings of journals have changed. */
void worker_journals_reload(struct worker_state *w);

/* Whether the journals' disk has less room than --journal-min-free. */
bool worker_disk_low(const struct worker_state *w);

/* Parts of the above. Engines: opened with all that depends on which they are (the settings of
 * calls among it), reloaded, closed; `changed` when the set may have changed. */
int worker_engines_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                        struct err *e);
void worker_engines_changed(struct worker_state *w);
void worker_engines_reload(struct worker_state *w);
void worker_engines_close(struct worker_state *w);

/* Spans of calls, where a collector is set: opened before the first call; idle: nothing is on its
 * way to it. -1: ERR_CONFIG. */
int worker_trace_open(struct worker_state *w, struct err *e);
bool worker_trace_idle(struct worker_state *w);
void worker_trace_close(struct worker_state *w);

/* The store of pictures, and from where they may be fetched: opened before the engines; sweep drops
 * what no session needs. on_lost: call_fetchers_begin's. -1: ERR_CONFIG. */
int worker_media_open(struct worker_state *w, void (*on_lost)(void *env, unsigned n),
                      struct err *e);
void worker_media_sweep(struct worker_state *w);
void worker_media_close(struct worker_state *w);

#endif
