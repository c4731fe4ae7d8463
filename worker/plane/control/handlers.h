/*
 * The handlers of the control plane, which routes.def names, and functions that they share. Each
 * handler answers the request, at once or later.
 */
#ifndef RG_CONTROL_HANDLERS_H
#define RG_CONTROL_HANDLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct answering;
struct arena;
struct buf;
struct err;
struct heritage;
struct json;
struct loop;
struct json_out;
struct service;
struct service_request;
struct session;

/* fleet.c */
void fleet_get(struct service_request *r);
void fleet_drain(struct service_request *r);

/* Writes a member "node" into an object: the name of this node in its fleet, or null. */
void control_put_node(const struct heritage *h, struct json_out *out);

/* Checks the parameter `node` of a query. A router sends a request that names a different node to
 * that node. Returns -1 if no node has the name. */
int control_check_node(const struct heritage *h, struct arena *a, struct str query, struct err *e);

/* create.c */
void control_create(struct service_request *r);

/* create_checks.c: checks whether the present engines can do what the options of a new session
 * demand. Returns -1 with an error that names the option. */
int control_check_engines(struct service *a, const struct json *options, struct err *e);

/* forking.c: makes a new session that continues from an answer of this one. */
void control_fork(struct service_request *r);

/* snapshots.c: sends a whole session, to be imported elsewhere. */
void control_snapshot(struct service_request *r);

/* importing.c: makes a new session that continues from a snapshot. */
void control_import(struct service_request *r);

/* copying.c: reports whether a fork or an import in progress makes the session with that id. Its
 * pictures exist before the session, and the session before its last records. Until then the
 * session is hidden and nothing ends it. */
bool control_copies(const struct service *a, struct str id);

/* Reports whether pictures of that session are still being linked for a copy; the session may have
 * been deleted meanwhile. */
bool control_copies_from(const struct service *a, struct str id);

/* Writes what the client gets of a new session: its id, its URLs and its keys, as members. */
void control_put_created(struct service_request *r, struct str id, uint64_t now_ms,
                         struct json_out *o);

/* Appends the headers with which another node writes the URLs of a new session as this one does. */
void control_write_origin(struct service_request *r, struct buf *headers);

/* create_elsewhere.c: lets another node make the sessions if the options `node` or `prefer` ask for
 * that. Returns 1 with that node's answer in `a`; 0: this node makes them; -1 with e. */
MAY_PAUSE int control_create_elsewhere(struct answering *a, const struct json *options,
                                       struct err *e);

/* sessions.c */
void control_state(struct service_request *r);
void control_delete(struct service_request *r);
void control_reward(struct service_request *r);
void control_complete(struct service_request *r);
void control_abort(struct service_request *r);

/* Waits until all that the request's session has is durable. Returns -1 with ERR_CANCELLED, or the
 * error of the records. */
MAY_PAUSE int control_await_durable(struct answering *a, struct err *e);

/* Waits in a task. Returns -1 with ERR_CANCELLED. */
MAY_PAUSE int control_wait_ms(struct loop *l, uint64_t ms, struct err *e);

/* bulk.c: ends all sessions with certain labels, of all workers. */
void control_abort_many(struct service_request *r);
void control_finalize_many(struct service_request *r);

/* Returns the body as an object, valid until the handler returns. Returns NULL if there is none. */
const struct json *control_body(const struct service_request *r);

/* Like control_body, but the body becomes the arena's. */
const struct json *control_take_body(const struct service_request *r, struct arena *a);

/* media.c */
void media_get(struct service_request *r);

/* records.c: answers with the session's state. `records`: with all calls. */
void state_send(struct service_request *r, struct session *s, bool records);

/* GET /sessions/{id}/wait: answers when the session has ended, or when the time is over. */
void wait_get(struct service_request *r);

/* POST /sessions/{id}/logprobs: stores what a trainer computed for answers. */
void control_logprobs(struct service_request *r);

/* GET /stats: answers with the figures of the run. */
void stats_get(struct service_request *r);

/* GET /sessions: answers in pages with the sessions of all workers, one worker after the other by
 * index. */
void listing_get(struct service_request *r);

/* exporting.c: exports trajectories and tokens of a session. */
void exporting_trajectories(struct service_request *r);
void exporting_tokens(struct service_request *r);

/* POST /sessions/{id}/finalize: checks that the export can be made, ends the session, and exports
 * it. A repeated request gets the same export as long as that is kept. */
void exporting_finalize(struct service_request *r);
void exporting_samples(struct service_request *r);

/* delivering.c */
void control_deliver(struct service_request *r);

/* events.c: sends changes as server-sent events until the client leaves: of all that this process
 * owns, or of one session's running calls. */
void events_get(struct service_request *r);
void session_events_get(struct service_request *r);

/* admin.c: orders from a trainer or an operator. They apply to all workers: the worker that is
 * asked asks the others. */
void admin_weight_version(struct service_request *r);
void admin_adapters(struct service_request *r);
void admin_pause(struct service_request *r);
void admin_resume(struct service_request *r);

/* Obeys the edition of the fleet's orders that the query names, here and in the workers within the
 * request's reach. */
void admin_obey(struct service_request *r);

/* Pauses or resumes this worker's model calls. */
void pause_obey(struct service *a, bool paused);

/* weights.c: applies a weight version that this or a different worker was given, if it is new.
 * Returns -1 if it cannot be read. */
int weights_follow(struct service *a, struct err *e);

/* Writes the trainer's version of an adapter (empty: of the weights) to the file, and applies it.
 */
int weights_keep(struct service *a, struct str adapter, struct str version, struct err *e);

void admin_adapters_get(struct service_request *r);

/* orders_obey.c: notes that this worker and the state folder obey that edition of the fleet's
 * orders. */
void orders_note(struct service *a, uint64_t edition);

/* group_result.c */
void admin_group_result(struct service_request *r);

/* sibling.c: reports whether this worker is the first of those that serve. */
bool siblings_lead(const struct heritage *h);

enum { SIBLINGS_MAX = 512 };

/* Writes the indexes of the workers that serve, including this one, and in a fleet those that this
 * node owns and no worker serves now. Returns their number. They ascend. `ret` has space for
 * SIBLINGS_MAX. */
size_t siblings_list(const struct heritage *h, uint32_t *ret);

/* Reports whether a worker of this node serves the index now. */
bool siblings_serve(const struct heritage *h, uint32_t index);

/* Writes the object of an event stream's begin, with "unreachable": in a fleet the nodes that are
 * lost, if the stream is of all nodes; otherwise the peers. */
void siblings_write_lost(const struct heritage *h, bool all_nodes, struct buf *out);

/* engines.c: reads and changes the set of engines. All workers apply it, and the state folder keeps
 * it. */
void admin_engines(struct service_request *r);
void admin_engines_put(struct service_request *r);
void admin_engines_post(struct service_request *r);
void admin_engines_delete(struct service_request *r);

/* Replaces the engines by these, except for new ones that do not answer. `taken` is called once,
 * now or later: with the names of those, or with the error because of which nothing has changed. */
struct engine_texts;
typedef void (*engines_taken_fn)(void *ctx, struct str silent, const struct err *e);
void engines_apply_source(struct service *a, const struct engine_texts *t, engines_taken_fn taken,
                          void *ctx);

/* Replaces the engines by those of the fleet's orders (a list of texts), without a probe. A node
 * with --engine-source keeps its own. Returns -1 if nothing has changed. */
int engines_obey(struct service *a, const struct json *list, struct err *e);

/* Applies a change that a different worker has written. Returns -1 if it cannot be read or
 * opened. */
int engines_follow(struct service *a, struct err *e);

/* Ends changes in progress when the worker ends: each is given up or answered. */
void engines_done(struct service *a);

/* Wakes the long polls of a session whose phase has changed. */
void waits_wake(struct service *a, struct str id);

/* Ends a pause that still waits when the worker ends. */
void admin_done(struct service *a);

/* Finds the session of a control request, for reading (ended ones as long as they are kept) or for
 * change. Returns NULL with e set. */
struct session *control_find(struct service_request *r, bool reading, struct err *e);

/* score_branches.c: gets the logprobs of the session's branches from other engines: those of
 * `given` (JSON, checked here), or with NULL those that the session wants. The caller must pin the
 * session. The session stays open meanwhile, and what an agent adds is scored, too. Each answer is
 * durable before the next is requested. Returns 0 when all scores are known, or none is wanted. */
MAY_PAUSE RG_MUSTCHECK int control_score(struct service *a, struct session *s,
                                         const struct json *given, struct err *e);

/* expiring.c: takes over a session over its TTL: it expires once it has the scores that it wants.
 * Returns false if there are no scorers. */
bool expiring_takes(struct service *a, struct session *s);

/* Ends a session over its TTL. */
int control_expire(struct service *a, struct session *s, struct err *e);

#endif
