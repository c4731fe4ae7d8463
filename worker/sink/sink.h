/*
 * struct sinks: finalized sessions on their way to where --sink sends them, at least once.
 *
 *   finalize, TTL:  DUE record (sinks_promise) -> END record -> sinks_take
 *   then:           the export, made in slices into the place's spool -> SPOOLED record
 *                   -> each target in turn takes the file; acknowledged, it leaves the spool
 *
 * What stands between two of these steps at a crash is found again: DUE without SPOOLED in the
 * journal and files in the spool (sinks_open_place). A target that is down is asked
 * again with back-off; its files wait. Keys are stable (session id, trajectory index), so that
 * consumers can drop what comes twice.
 *
 *   STATE/worker-<idx>/spool/<session>.part                being made
 *   STATE/worker-<idx>/spool/<target>/<session>.msgpack    waiting for that target
 *   STATE/worker-<idx>/spool/<target>/group:<id>@<sum>.msgpack  (JSON) a settled group, likewise
 *   STATE/worker-<idx>/spool/<target>/.group:<id>@<sum>.part    being written, as it comes
 *   STATE/worker-<idx>/spool/<target>/pointed/...          redis entries point here
 */
#ifndef RG_SINK_SINK_H
#define RG_SINK_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct call_env;
struct config;
struct export_options;
struct ledger;
struct media_store;
struct session;
struct session_store;
struct sinks;
struct tasks;

/* What exports are made with, and how they are recorded; borrowed. */
struct sinks_env {
    struct ledger *ledger;
    struct call_env *calls; /* whose helpers do what is long */
    struct tasks *tasks;
    const struct media_store *media;
};

/* Reads --sink. state_dir is copied. NULL in *ret when none is set. ERR_CONFIG names the setting.
 */
int sinks_new(const struct sinks_env *env, const struct config *c, const char *state_dir,
              struct sinks **ret, struct err *e);

/* Stops what is under way; all of it goes on at the next start. NULL is fine, here and below. */
void sinks_free(struct sinks *k);

/* Settings that a reload may change. */
void sinks_configure(struct sinks *k, const struct config *c);

/* Makes the spool of a place and queues what waits there, and its sessions (the place's journal has
 * been replayed) whose export was promised, but never spooled. Removes what a crash left half
 * written, says what is damaged, and what is left for sinks that are not set any more, also when
 * none is (k NULL). */
int sinks_open_place(struct sinks *k, struct session_store *store, const char *state_dir,
                     uint32_t index, struct err *e);

/* Records that the session's export is owed, made with these options (NULL: the defaults), before
 * it is finalized or expires. -1: nothing was recorded, and it must not end. */
int sinks_promise(struct sinks *k, struct session *s, const struct export_options *o,
                  struct err *e);

/* The session was finalized: its export goes to the spool and on. */
void sinks_take(struct sinks *k, struct str session_id);

/* Whether the session is still needed for an export that was promised. */
bool sinks_wait_for(const struct sinks *k, const struct session *s);

/* Spools a settled group's entry (a JSON object) for the Redis sinks, which add it to the stream
 * NAME:groups. Nothing where there are none. The same entry again, while it waits, is one; another
 * one of the same id comes behind it. ERR_IO, ERR_STORAGE_FULL: no sink has it. */
int sinks_give_group(struct sinks *k, struct str group, struct str entry, struct err *e);

/* Whether so much waits that no new session may begin (--sink-max-waiting). */
bool sinks_full(const struct sinks *k);

/* Whether an export is being spooled, or a target that works has something to take: worth waiting
 * for at a shutdown. */
bool sinks_busy(const struct sinks *k);

/* Runs once a second: retention of pointed files, metrics. */
void sinks_tick(struct sinks *k);

#endif
