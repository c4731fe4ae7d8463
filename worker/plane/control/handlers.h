/*
 * The handlers of the control plane, behind routes.def, and what they share. Each answers the
 * request, at once or later.
 */
#ifndef RG_CONTROL_HANDLERS_H
#define RG_CONTROL_HANDLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct arena;
struct dialect;
struct err;
struct heritage;
struct json;
struct json_out;
struct ledger_done;
struct service;
struct service_request;
struct session;

/* create.c */
void control_create(struct service_request *r);

/* create_checks.c: whether the engines of now can do what the options of a new session ask of them.
 * -1: e names the option. */
int control_check_engines(struct service *a, const struct json *options, struct err *e);

/* forking.c: a new session that goes on from an answer of this one. */
void control_fork(struct service_request *r);

/* snapshots.c: a whole session to take away. */
void control_snapshot(struct service_request *r);

/* importing.c: a new session that goes on from a snapshot. */
void control_import(struct service_request *r);

/* copying.c: whether a fork or an import under way is to have that id: its pictures are there
 * before the session, and the session before its last records. Nobody is told of it, and nothing
 * ends it, until then. */
bool control_copies(const struct service *a, struct str id);

/* Whether pictures of that session are still being linked for a copy of it, though it may have been
 * deleted meanwhile. */
bool control_copies_from(const struct service *a, struct str id);

/* What the client learns of a new session: its id, its URLs and its keys, as members. */
void control_put_created(struct service_request *r, struct str id, uint64_t now_ms,
                         struct json_out *o);

/* sessions.c */
void control_state(struct service_request *r);
void control_delete(struct service_request *r);
void control_reward(struct service_request *r);
void control_complete(struct service_request *r);
void control_abort(struct service_request *r);

/* bulk.c: the same of all sessions with certain labels, of all workers. */
void control_abort_many(struct service_request *r);
void control_finalize_many(struct service_request *r);

/* The body as an object, until the handler returns; NULL: there is none. */
const struct json *control_body(const struct service_request *r);

/* The same for longer: it is the arena's from now on. */
const struct json *control_take_body(const struct service_request *r, struct arena *a);

/* media.c */
void media_get(struct service_request *r);

/* records.c: answers with the session's state; `records`: with all calls. */
void state_send(struct service_request *r, struct session *s, bool records);

/* GET /sessions/{id}/wait: answers when the session is over, or when the time is. */
void wait_get(struct service_request *r);

/* POST /sessions/{id}/logprobs: what a trainer computed for answers. */
void control_logprobs(struct service_request *r);

/* GET /stats: the figures of the run. */
void stats_get(struct service_request *r);

/* GET /sessions: pages over all workers, one worker after the other by index. */
void listing_get(struct service_request *r);

/* exporting.c: trajectories and tokens of a session. */
void exporting_trajectories(struct service_request *r);
void exporting_tokens(struct service_request *r);

/* POST /sessions/{id}/finalize: checks that the export can be made, ends the session, exports it.
 * Again: the same export, as long as it is kept. */
void exporting_finalize(struct service_request *r);
void exporting_samples(struct service_request *r);

/* delivering.c */
void control_deliver(struct service_request *r);

/* events.c: changes as server-sent events: of all that this process owns, and of one session's
 * running calls; until the client leaves. */
void events_get(struct service_request *r);
void session_events_get(struct service_request *r);

/* admin.c: orders from a trainer or an operator. They hold for all workers: the one that is asked
 * asks the others. */
void admin_weight_version(struct service_request *r);
void admin_adapters(struct service_request *r);
void admin_adapters_get(struct service_request *r);

/* Obeys what was told of the weights, here or to another worker, if it is new. -1: it cannot be
 * read. */
int weights_follow(struct service *a, struct err *e);

void admin_pause(struct service_request *r);
void admin_resume(struct service_request *r);
void admin_group_result(struct service_request *r);

/* sibling.c: whether this worker is the first of those that serve. */
bool siblings_lead(const struct heritage *h);

/* engines.c: the set of engines, and its changes, which all workers obey and the state folder
 * keeps.
 */
void admin_engines(struct service_request *r);
void admin_engines_put(struct service_request *r);
void admin_engines_post(struct service_request *r);
void admin_engines_delete(struct service_request *r);

/* Makes these the engines, but for new ones that do not answer. `taken` is called once, now or
 * later: with the names of those, or with why nothing has changed. */
struct engine_texts;
typedef void (*engines_taken_fn)(void *ctx, struct str silent, const struct err *e);
void engines_apply_source(struct service *a, const struct engine_texts *t, engines_taken_fn taken,
                          void *ctx);

/* Obeys a change that another worker has kept. -1: it cannot be read, or opened. */
int engines_follow(struct service *a, struct err *e);

/* The worker ends: changes under way are given up, or answered. */
void engines_done(struct service *a);

/* Wakes long polls of a session: its phase has changed. */
void waits_wake(struct service *a, struct str id);

/* The worker ends: a pause that still waits is over. */
void admin_done(struct service *a);

/* The session of a control request, for reading (ended ones while they are kept) or for change;
 * NULL and e. */
struct session *control_find(struct service_request *r, bool reading, struct err *e);

/* score_branches.c: gets other engines' logprobs of the session's branches: those of `given` (JSON,
 * checked here), or NULL: those that the session wants. The session is pinned by the caller.
 * Meanwhile it is open, and what an agent adds is scored as well. Each answer is durable before the
 * next is asked for. Returns 0 when all is known, or nothing is wanted. */
MAY_PAUSE RG_MUSTCHECK int control_score(struct service *a, struct session *s,
                                         const struct json *given, struct err *e);

/* expiring.c: whether the session, whose time is over, expires by itself once it has the scores
 * that it wants; false: there are no scorers here. */
bool expiring_takes(struct service *a, struct session *s);

/* Ends the session, whose time is over. */
int control_expire(struct service *a, struct session *s, struct err *e);

#endif
