/*
 * struct sinks: sends finalized sessions to the targets of --sink, each at least once.
 *
 *   finalize, TTL:  DUE record (sinks_promise) -> END record -> sinks_take
 *   then:           the export, written in slices into the place's spool -> SPOOLED record
 *                   -> each target in turn takes the file, which then leaves the spool
 *
 * After a crash between two of these steps, sinks_open_place finds the session again: by a DUE
 * record without SPOOLED in the journal, or by its file in the spool. If a target is down, its
 * files wait and are sent again after growing pauses. Keys are stable (session id, trajectory
 * index), so that consumers can drop duplicates.
 *
 *   STATE/worker-<idx>/spool/<session>.part                an export that is being written
 *   STATE/worker-<idx>/spool/<target>/<session>.msgpack    an export that waits for that target
 *   STATE/worker-<idx>/spool/<target>/group:<id>@<sum>.msgpack  a settled group (JSON) that waits
 *   STATE/worker-<idx>/spool/<target>/.group:<id>@<sum>.part    a group's entry being written
 *   STATE/worker-<idx>/spool/<target>/pointed/...          files that Redis entries point to
 */
#ifndef RG_SINK_SINK_H
#define RG_SINK_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;
struct call_env;
struct config;
struct export_options;
struct ledger;
struct media_store;
struct session;
struct session_store;
struct sinks;
struct tasks;

/* Objects that sinks use; all are borrowed. */
struct sinks_env {
    struct ledger *ledger;
    struct call_env *calls; /* its helper threads do the long work */
    struct tasks *tasks;
    const struct media_store *media;
};

/* Makes the targets of --sink. Copies state_dir. Sets *ret to NULL if --sink is not set. Fails with
 * ERR_CONFIG, which names the setting. */
int sinks_new(const struct sinks_env *env, const struct config *c, const char *state_dir,
              struct sinks **ret, struct err *e);

/* Stops pending work and frees k; the next start resumes the work. k may be NULL, here and in all
 * functions below. */
void sinks_free(struct sinks *k);

/* Applies the settings that a reload may change. */
void sinks_configure(struct sinks *k, const struct config *c);

/* Makes the spool of a place whose journal has been replayed, and queues the files in it. Queues
 * also the place's sessions whose export was promised but never spooled. Removes files that a crash
 * left incomplete. Logs damaged files, and files of sinks that are no longer set. The logging works
 * also if k is NULL. Fails with ERR_IO. */
int sinks_open_place(struct sinks *k, struct session_store *store, const char *state_dir,
                     uint32_t index, struct err *e);

/* Records that the session's export is owed. Call it before the session is finalized or expires. o:
 * options of the export (NULL: the defaults). Returns -1 if nothing was recorded; then the session
 * must not end. */
int sinks_promise(struct sinks *k, struct session *s, const struct export_options *o,
                  struct err *e);

/* Queues a finalized session for its export. */
void sinks_take(struct sinks *k, struct str session_id);

/* Queues the promised export of a session that was read from a fleet's store, if it is owed. */
void sinks_take_owed(struct sinks *k, struct str session_id);

/* Reports whether the session is still needed for a promised export. */
bool sinks_wait_for(const struct sinks *k, const struct session *s);

/* Reports whether a sink that will get the session's export, or the group's entry with that name,
 * does not have it yet. */
bool sinks_owe(const struct sinks *k, struct str name);

/* Spools a settled group's entry (a JSON object) for the Redis sinks, which add it to the stream
 * NAME:groups. Does nothing if there are no Redis sinks. Ignores an entry that already waits. A
 * different entry with the same id is queued after it. Appends the entry's name to *ret_name. Fails
 * with ERR_INVALID (not a group's id), ERR_IO or ERR_STORAGE_FULL; then no sink has the entry. */
int sinks_give_group(struct sinks *k, struct str group, struct str entry, struct buf *ret_name,
                     struct err *e);

/* Reports whether more than --sink-max-waiting bytes wait, so that no new session may begin. */
bool sinks_full(const struct sinks *k);

/* Reports whether a shutdown should wait: an export is being spooled, or a working target has files
 * to send. */
bool sinks_busy(const struct sinks *k);

/* Runs once a second: retries, removal of expired pointed files, metrics. */
void sinks_tick(struct sinks *k);

#endif
