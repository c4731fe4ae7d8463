/*
 * Sessions of one worker: what is stored of them, how a request attaches, what a commit adds.
 * Single-threaded, no I/O, no clock (times are arguments), no HTTP, no engine.
 *
 * Life of a call:
 *
 *   session_prepare_begin, _continue, _render, _end (session_prepare: all at once)
 *     -> (engine) -> session_commit -> journal -> session_apply
 *          (long values before that: session_bulk_record, journaled and applied in the same way)
 *       \\-> session_release (error, cancel, client has left)
 *
 * All lasting changes are made by records: session_commit and the other *_record functions only
 * WRITE a record (bytes for the journal) and change nothing; only session_apply changes the
 * session, both live and in replay, so that a replayed session cannot differ from the live one. The
 * caller's order is: record, journal append, apply, then send the client the end of its answer.
 *
 * Nothing from a call's arena is kept: only the record's content is. (New messages that a plan has
 * prepared, new_messages.h, are read back from the record's own texts.)
 */
#ifndef RG_SESSION_SESSION_H
#define RG_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct buf;
struct err;
struct json;
struct json_out;
struct model;
struct session;
struct session_store;

enum session_phase { SESSION_OPEN, SESSION_COMPLETED, SESSION_FINALIZED, SESSION_ABORTED };

enum { SESSION_PHASES = 4 };

/* How a request is handled that extends an answer cut by length. Stored ids never change. */
enum session_truncated {
    TRUNCATED_AUTO, /* setting of the process: continue; tree with the matcher strict: refuse */
    /* continues the stored ids, closed as the template closes an answer, mask 0 */
    TRUNCATED_CONTINUE,
    /* tree, timelines: continues the checkpoint before; the cut answer is
     *                            rendered as the client sent it, and its own checkpoint stays a
     *                            leaf */
    TRUNCATED_BRANCH,
    TRUNCATED_REFUSE /* 409 truncated_generation */
};

/* Cause of a call's position (docs/sessions.md). */
enum session_cause {
    CAUSE_EXTENDED,
    CAUSE_NEW_ROOT,
    CAUSE_HISTORY_REWRITTEN,
    CAUSE_RESAMPLED,
    CAUSE_SAME_ANSWER,
    CAUSE_ASSISTANT_REWRITTEN,
    CAUSE_TOOLS_CHANGED,
    CAUSE_KWARGS_CHANGED,
    CAUSE_TEMPLATE_REWRITE,
    CAUSE_TRUNCATED,
    CAUSE_COUNT
};

const char *session_cause_name(enum session_cause c);

/* Data of its answers that a session wants kept. */
struct session_wants {
    uint32_t top_logprobs; /* alternatives of each token; 0: none */
    bool support;          /* the sampling support */
    bool indexer;          /* the top-k of the indexer */
};

/* Process-wide defaults. A session's own options override them (POST /sessions). */
struct session_defaults {
    const char *history;         /* "tree" */
    const char *message_matcher; /* "canonical" */
    bool rollback_last_assistant;
    bool idempotent_retry;
    bool ignore_cch;
    bool branch_on_rewrite; /* --on-template-rewrite=branch */
    uint64_t audit_every;   /* --audit-every; 0: never */
    enum session_truncated on_truncated;
    bool refuse_completed; /* --after-complete=refuse: no new call after `complete` */
    uint32_t max_nodes;
    uint64_t ttl_ms;
    uint64_t tombstone_ttl_ms;
    uint64_t export_retention_ms; /* how long a finalized session's data stays for exports */
    uint64_t evict_after_ms; /* a finalized session is freed so long after it ended or was asked
                                for; session_revive brings it back from its journal. 0: there is
                                none, it stays for its own TTL */
    bool ignore_tools;       /* timelines: true */
    const char *timeline_compare_level; /* "text" */
    bool keeps_due; /* there are sinks: what they wait for is kept beyond its time */
};

/* Sets the spec's defaults. */
void session_defaults_init(struct session_defaults *d);

/* --- the store --- */

/* model is borrowed and outlives the store. */
struct session_store *session_store_new(const struct model *model,
                                        const struct session_defaults *d);

/* Other defaults from now on: sessions that are there keep the options they were made with. */
void session_store_configure(struct session_store *st, const struct session_defaults *d);
void session_store_free(struct session_store *st);

/* The session or NULL; a finalized / aborted / deleted id answers NULL with *ret_ended true while
 * its tombstone lives. */
struct session *session_find(struct session_store *st, struct str id, bool *ret_ended);

/* The session for reading only (export, state): live, or finalized / expired and still retained;
 * else NULL with *ret_ended as above. */
struct session *session_find_any(struct session_store *st, struct str id, bool *ret_ended);

/* Whether anybody may still ask for the session's content: it lives, or it was finalized and its
 * export is retained. */
bool session_is_kept(struct session_store *st, struct str id);

/* Frees what is over: data of finalized sessions beyond export_retention_ms, tombstones beyond
 * their life. Cheap when nothing is due; call it now and then. Its parts, for who may not look at
 * all sessions in one step: session_leave_late of each one, which returns whether it left or was
 * evicted, then session_sweep_ends, which looks at `max` ends at most, fewer where sessions leave
 * with theirs, and returns whether there may be more. */
void session_sweep(struct session_store *st, uint64_t now_ms);
bool session_leave_late(struct session *s, uint64_t now_ms);
bool session_sweep_ends(struct session_store *st, uint64_t now_ms, size_t max);

/* Frees finalized sessions, the oldest first, until so many stored tokens are free: a store that is
 * full has no room for what is over. How many were freed. */
uint64_t session_make_room(struct session_store *st, uint64_t tokens);

/* --- memory (eviction.c) ---
 *
 * A session is resident, or only its entry in the store is (id, phase, times, sums) and its content
 * is in the records that made it. Between session_load_begin and session_load_end those records are
 * applied once more. Calls, looks and exports need a resident session; ends do not. */

bool session_resident(const struct session *s);

/* With `on` (lazy), sessions that records make from now on are evicted from the start: their
 * content is never built, only id, phase, times and sums are kept. For the replay at a worker's
 * start, so that it takes the time and memory of the journal's index and not of all sessions. Lazy
 * is a way of the store while it replays; evicted is the state of one session, in which those end
 * up as well as sessions that were in memory and left it. Nothing can tell the two apart
 * afterwards: both are read back from their records when they are needed. */
void session_store_lazy(struct session_store *st, bool on);

/* Whether sessions may be evicted at all (a journal has their records). */
void session_store_evicts(struct session_store *st, bool on);

/* Gets records that come back. */
struct session_reader {
    int (*each)(void *ctx, size_t i, struct str record, struct err *e);
    void *ctx;
};

/* Where records come back from: the reader gets i and the whole record, once for each of the n
 * numbers (which one of the session's, from 0), in any order. -1: not all can be read, or `each`
 * said so. With a source the bulk of a session in use may be evicted, too (payload.h). */
typedef int (*session_source)(void *ctx, struct str session_id, const uint32_t *records, size_t n,
                              const struct session_reader *reader, struct err *e);

void session_store_source(struct session_store *st, session_source source, void *ctx);

/* Marks the session as used just now: others become older. */
void session_touch(struct session *s);

/* Evicts what was used least recently, until all together hold at most `bytes` or `max` steps were
 * done: the bulk of calls that are on no running call's path, or a whole idle session, with all
 * that it has, when nothing was used less recently. Returns how many. */
size_t session_evict(struct session_store *st, uint64_t bytes, size_t max);

/* Pins the session; then session_apply takes its records, all that there are. Until
 * session_load_end no new call is written for it. */
void session_load_begin(struct session *s);

/* The record that is applied next is this one of the session's, from 0. */
void session_load_at(struct session *s, size_t record);

/* Records that are applied next, until session_load_at, are new ones: as while it was evicted their
 * ends and times are taken, and all of them are to be read with the others. */
void session_load_rests(struct session *s);

/* Whether records that made its content were there. */
bool session_filled(const struct session *s);

/* Whether it was ended while it was loaded: nothing can be applied to it any more. */
bool session_unlinked(const struct session *s);

/* All records were applied; `whole` false: they could not be read, it stays out of memory. Unpins.
 * -1 when it is not resident now. */
int session_load_end(struct session *s, bool whole, uint64_t now_ms);

/* A finalized session whose entry was freed too, but that may still be exported: makes an entry for
 * it (to be loaded), or NULL. */
struct session *session_revive(struct session_store *st, struct str id, uint64_t now_ms);

/* Memory that evicting it would free once the request that asks, which may hold a pin, has let it
 * go: 0 while others hold it or a call runs, or where nothing is evicted. */
uint64_t session_evictable(const struct session *s);

/* Its row as it was when it was evicted, or absent. */
struct str session_kept_row(const struct session *s);

/* Whether it may have a label of this name: false is certain, and needs no session in memory. */
bool session_may_have_label(const struct session *s, struct str name);

/* Keeps a session's data alive (an export in slices, a waiter) whatever ends it meanwhile. */
void session_pin(struct session *s);

/* Lets go; the session may be gone afterwards. As often as it was pinned. */
void session_unpin(struct session_store *st, struct session *s);

/* --- records: written here, applied by session_apply --- */

/* A new session from a POST /sessions body (object or NULL). Bad options: ERR_INVALID, param. */
int session_create_record(struct session_store *st, struct str id, const struct json *options,
                          uint64_t now_ms, struct buf *record, struct err *e);

/* reward_info must be an object; response_id may be absent (whole session). */
int session_reward_record(struct session *s, const struct json *reward_info, struct str response_id,
                          uint64_t now_ms, struct buf *record, struct err *e);

enum session_end {
    SESSION_END_COMPLETE,
    SESSION_END_FINALIZE,
    SESSION_END_ABORT,
    SESSION_END_DELETE,
    SESSION_END_EXPIRE,
    SESSION_END_HOLD /* a record's finalize of a session with the option hold: kept until deleted */
};

/* The cause of a session's end: the model by its answer, a limit, the agent, the trainer, or the
 * infrastructure. */
enum session_stop {
    SESSION_STOP_NONE,
    SESSION_STOP_MODEL,
    SESSION_STOP_BUDGET,
    SESSION_STOP_AGENT,
    SESSION_STOP_TRAINER,
    SESSION_STOP_INFRASTRUCTURE
};

/* A call was refused because of the budget of that name (max_turns,
 * max_total_tokens, max_session_recorded_bytes). Nothing is
 * written when one was before. */
void session_budget_record(const struct session *s, struct str budget, uint64_t now_ms,
                           struct buf *record);

/* Whether its samples are not for training (option evaluation). */
bool session_evaluates(const struct session *s);

/* Writes the options of the session as it was made, as an object, without `metadata`, which may be
 * long (session_metadata). */
void session_write_options(const struct session *s, struct buf *json);

/* Reports whether some of the records that make the copy, which its first record counts, are
 * missing (maybe for ever): then the session is not visible. */
bool session_copying(const struct session *s);

/* complete / finalize / abort / delete / expire. `detail` is complete's body or NULL. */
int session_end_record(struct session *s, enum session_end how, const struct json *detail,
                       uint64_t now_ms, struct buf *record, struct err *e);

/* Writes the tombstone of a session that is no longer kept, finalized or not: deleted so long ago
 * that its id is forgotten, too. For the journal (journal_options.last_word). */
void session_last_word(struct str id, struct buf *record);

/* Where the session's export for the sinks stands. DUE keeps a finalized session's data. */
enum session_sink { SESSION_SINK_NONE, SESSION_SINK_DUE, SESSION_SINK_SPOOLED };

/* `options` is the owner's text, which session_sink gives back (absent: none); DUE sets it. */
void session_sink_record(const struct session *s, enum session_sink state, struct str options,
                         uint64_t now_ms, struct buf *record);
/* Whether trainers get a number as the session's reward. */
bool session_is_rewarded(const struct session *s);

/* Whether sinks get the session (option sink). */
bool session_goes_to_sinks(const struct session *s);

/* Returns where the export for the sinks stands; *ret_options: the text that came with DUE. */
enum session_sink session_sink(const struct session *s, struct str *ret_options);

/* The export that closed the session has reached its client whole. */
void session_exported_record(struct session *s, uint64_t now_ms, struct buf *record);

/* Returns the kind of a record, for people: "create", "commit" ...; "?" if it is not a session's.
 */
const char *session_record_kind(struct str record);

/* Of a call that was committed: its number, and by what a request is known that repeats it. */
struct session_request {
    uint64_t call;
    uint64_t body_hash[2];
    struct str key; /* Idempotency-Key, or absent */
    bool has_bulk;  /* it names the call's fragments */
};

/* Whether the record is a fragment of a call, and then of which. *ret_first: those before it are
 * void. */
bool session_record_fragment(struct str record, uint64_t *ret_call, bool *ret_first);

/* Whether the record commits a call, and then whose and which. It borrows the record's bytes. */
bool session_record_commits(struct str record, struct str *ret_id, struct session_request *ret);

/* Applies one record to the store (live or replayed). ERR_IO on a record that makes no sense. */
int session_apply(struct session_store *st, struct str record, struct err *e);

/* --- a call: prepare and commit are in session_call.h --- */

/* Data that engines may leave out of answers, or return differently from what is wanted. */
enum session_lack {
    LACK_BASIS, /* logprobs are not of the distribution that was sampled from */
    LACK_SUPPORT,
    LACK_EXPERTS,
    LACK_INDEXER,
    LACK_RECOMPUTED,   /* rows are those of another run than the one that sampled */
    LACK_INDEXER_ROOM, /* the indexer's top-k is larger than what is kept */
};

/* Whether the warning about it is due: true once for each session of this process. */
bool session_tells(struct session *s, enum session_lack what);

/* Whether a prompt that is too long for it is no error, but an exhausted call. */
bool session_exhausts(const struct session *s);

/* Returns what is to be kept of answers in addition to ids and logprobs. */
struct session_wants session_wants(const struct session *s);

/* The LoRA adapter that its answers are sampled with; absent: none. */
struct str session_adapter(const struct session *s);

/* The pool of engines that its calls go to unless they name one; absent: the policy's. */
struct str session_pool(const struct session *s);

/* Whether its calls may name that pool (absent: the policy's): its own, and those of its option
 * `pools`, which without that are all. */
bool session_may_ask(const struct session *s, struct str pool);

/* The Idempotency-Key that a committed call came with, or absent. */
struct str session_call_key(const struct session *s, uint64_t call);

/* The conversation up to and including that answer, an array of normalised messages in the arena
 * (strings borrowed from the session); NULL for unknown ids. For previous_response_id. */
const struct json *session_messages(const struct session *s, struct arena *a,
                                    struct str response_id);

/* Returns that answer's own message, the last of these, as the session has it; NULL for unknown
 * ids. */
const struct json *session_message(const struct session *s, struct str response_id);

/* Returns whether an answer of the session has that seal of its thought (thought_blocks.h). */
bool session_has_seal(const struct session *s, struct str seal);

/* What the answer behind a response id was, and its call's true counts. */
struct session_past_response {
    struct str finish_reason, asked, told;
    struct str instructions; /* instructions that belong to `asked` and are not in it; or absent */
    const struct json *message; /* the session's */
    uint32_t prompt_tokens, completion_tokens;
};

bool session_find_response(const struct session *s, struct str response_id,
                           struct session_past_response *ret);

/* The response id of the answer that issued a tool call of this id; absent when none did. */
struct str session_call_owner(struct session *s, struct str call_id);

/* --- origin (origin.c) ---
 *
 * Each session carries the fingerprint of the model that it began with (model.h). One whose
 * tokenizer is not the store's is foreign: its ids mean other text here. It is kept, exported
 * without what needs a tokenizer, and ended; it is never continued. Another template or other
 * special tokens do not make a session foreign: what is stored is what the model saw. */

/* Returns true if another tokenizer made its ids. */
bool session_foreign(const struct session *s);

/* -1 with ERR_FOREIGN when it is. */
int session_refuse_foreign(const struct session *s, struct err *e);

/* Returns true if it is open and does not say which model made it: an older program did. */
bool session_unclaimed(const struct session *s);

/* Writes the record by which the store's model adopts such a session. */
void session_origin_record(const struct session *s, uint64_t now_ms, struct buf *record);

/* --- records that did not apply ---
 *
 * Records behind a lost one may not apply. A copy would have the same records, and fail with them.
 */

/* -1 with ERR_UNASSEMBLABLE when there are some. */
int session_refuse_lossy(const struct session *s, struct err *e);

/* Writes the sentence about them into a list of warnings, if there are some. */
void session_put_loss(const struct session *s, struct json_out *o);

/* --- looking --- */

struct str session_id(const struct session *s);
enum session_phase session_phase(const struct session *s);
const char *session_phase_name(const struct session *s); /* "open" ... "expired" */
const char *session_history(const struct session *s);    /* "tree" ... */

/* Trusted sampling defaults (object or NULL) and names the agent may not override (array or NULL);
 * live as long as the session. */
const struct json *session_sampling(const struct session *s);
const struct json *session_lock_sampling(const struct session *s);

/* An object or NULL, likewise. */
const struct json *session_metadata(const struct session *s);

/* GET /sessions/{id}: state object as JSON text; `records` adds every call. -1: what was evicted
 * cannot be read back. */
int session_write_state(struct session *s, bool records, struct buf *json, struct err *e);

/* One row of GET /sessions. */
void session_write_row(const struct session *s, struct buf *json);

/* All sessions, for lists, TTL and drain: returns the next after `at` (NULL: first), or NULL. */
struct session *session_next(struct session_store *st, const struct session *at);

/* Whether it is open, without a call, not being loaded, and idle beyond its TTL. */
bool session_expired(const struct session *s, uint64_t now_ms);

/* Returns the id of a session that was deleted or aborted and is unused, once for each: only its
 * last record, its end, is needed. NULL: there is no other. The caller frees it. */
char *session_take_gone(struct session_store *st);

/* The wall clock was set: what ends by time (TTL, tombstones, retention) ends as late as before. */
void session_clock_stepped(struct session_store *st, int64_t by_ms);

/* Marks all sessions as used just now: after a replay, time without a serving process does not
 * count. */
void session_store_woken(struct session_store *st, uint64_t now_ms);

/* Its number in the order of session_next, from 1; never given again. */
uint64_t session_serial(const struct session *s);

/* The serial that was given last. */
uint64_t session_last_serial(const struct session_store *st);

/* A session that has ended, by its tombstone. Its entry may have left the store: then
 * session_revive makes one while `kept`. */
struct session_past {
    struct str id;     /* borrows the store */
    uint64_t ended_ms; /* wall clock */
    uint64_t label_names;
    bool kept; /* its export may still be asked for */
};

/* Moves p to the next session that has ended, the earliest end first; a zeroed p is before the
 * first one. False: there is none. Some of those that are not kept are passed, some are returned,
 * so that no call takes long. Without a journal there are none. */
bool session_next_past(struct session_store *st, uint64_t now_ms, struct session_past *p);

/* Reports whether a past session may have the label, like session_may_have_label. */
bool session_past_may_have_label(const struct session_past *p, struct str name);

/* Frees the entry that session_revive has made for a reader, unless others use it. */
void session_leave_again(struct session *s);

/* Calls between prepare and commit / release. */
uint32_t session_inflight(const struct session *s);

#endif
