/*
 * Sessions of one worker: what is stored of them, how a request attaches, what a commit adds.
 * Single-threaded, no I/O, no clock (times are arguments), no HTTP, no engine.
 *
 * Life of a call:
 *
 *   session_prepare_position, _path, _render, _end (session_prepare: all at once)
 *     -> (engine) -> session_commit_record -> journal -> session_apply
 *          (long values before that: session_bulk_record, journaled and applied in the same way)
 *       '-> session_release (error, cancel, client has left)
 *
 * All lasting changes are made by records: session_commit_record and the other *_record functions
 * only WRITE a record (bytes for the journal) and change nothing; only session_apply changes the
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
    /* tree, timelines: continues the checkpoint before; the cut answer is rendered as the client
     * sent it, and its own checkpoint stays a leaf */
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
    /* how long the data of a finalized session are kept for exports */
    uint64_t export_retention_ms;
    /* a finalized session is freed this long after it ended or was last read; session_revive
     * reads it back from its journal. 0: there is no journal, so it stays for its own TTL */
    uint64_t evict_after_ms;
    bool ignore_tools;                  /* timelines: default of the option */
    const char *timeline_compare_level; /* "text" */
    /* there are sinks: sessions for which a sink waits are kept beyond their time */
    bool keeps_due;
    /* blocks of rows are records of their own, which the second copy in a fleet's store lacks */
    bool rows_apart;
};

/* Sets the documented defaults. */
void session_defaults_init(struct session_defaults *d);

/* --- the store --- */

/* The model is borrowed and must outlive the store. */
struct session_store *session_store_new(const struct model *model,
                                        const struct session_defaults *d);

/* Changes the defaults. Existing sessions keep the options they were made with. */
void session_store_configure(struct session_store *st, const struct session_defaults *d);
void session_store_free(struct session_store *st);

/* Returns the session or NULL. For a finalized, aborted or deleted id returns NULL, with *ret_ended
 * true as long as its tombstone is kept. */
struct session *session_find(struct session_store *st, struct str id, bool *ret_ended);

/* Returns the session for reading only (export, state): live, or finalized or expired and still
 * retained. Otherwise returns NULL with *ret_ended as above. */
struct session *session_find_any(struct session_store *st, struct str id, bool *ret_ended);

/* Forgets a session whose records come anew, from its first one on. Returns false while a call or
 * a reader uses it. */
bool session_forget(struct session_store *st, struct str id);

/* Reports whether the session's content may still be read: the session is live, or it was finalized
 * and its export is retained. */
bool session_is_kept(struct session_store *st, struct str id);

/* Frees data of finalized sessions after export_retention_ms, and tombstones after their time.
 * Cheap if nothing is due; to be called once in a while. A caller that may not visit all sessions
 * in one step uses its parts: session_leave_late for each session, which returns whether the
 * session left or was evicted, then session_sweep_ends, which visits at most `max` ends (fewer if
 * sessions leave with theirs) and returns whether there may be more. */
void session_sweep(struct session_store *st, uint64_t now_ms);
bool session_leave_late(struct session *s, uint64_t now_ms);
bool session_sweep_ends(struct session_store *st, uint64_t now_ms, size_t max);

/* Frees finalized sessions, the oldest first, until so many stored tokens are freed, to make space
 * in a full store. Returns how many were freed. */
uint64_t session_make_room(struct session_store *st, uint64_t tokens);

/* --- memory (eviction.c) ---
 *
 * A session is resident, or only its entry is in the store (id, phase, times, sums) and its content
 * is in the records that made it. Between session_load_begin and session_load_end those records are
 * applied again. Calls, reads and exports need a resident session; ends do not. */

bool session_resident(const struct session *s);

/* Keeps the memory of the session's present messages until session_release_messages gets the
 * result, on any thread, whatever becomes of the session. */
void *session_hold_messages(struct session *s);
void session_release_messages(void *held);

/* Reports whether a hold is on the session's present messages: it was not evicted since. */
bool session_has_messages(const struct session *s, const void *held);

/* With `on` (lazy), sessions that records make from now on are evicted from the start: their
 * content is never built; only id, phase, times and sums are kept. Used for the replay at a
 * worker's start, so that it takes the time and memory of the journal's index and not of all
 * sessions. Lazy is a mode of the store during the replay; evicted is the state of one session.
 * Sessions that were made lazily and sessions that were evicted later are the same: both are read
 * back from their records when needed. */
void session_store_lazy(struct session_store *st, bool on);

/* Allows evictions, if `on`: a journal has the sessions' records. */
void session_store_evicts(struct session_store *st, bool on);

/* Gets records that are read back. */
struct session_reader {
    int (*each)(void *ctx, size_t i, struct str record, struct err *e);
    void *ctx;
};

/* Reads records back: passes i and the whole record to the reader, once for each of the n numbers
 * (of the session's records, from 0), in any order. Returns -1 if some cannot be read, or `each`
 * returned -1. With a source, payloads of a session in use may be evicted, too (payload.h). */
typedef int (*session_source)(void *ctx, struct str session_id, const uint32_t *records, size_t n,
                              const struct session_reader *reader, struct err *e);

void session_store_source(struct session_store *st, session_source source, void *ctx);

/* Marks the session as used just now. */
void session_touch(struct session *s);

/* Evicts what was used least recently, until all sessions together hold at most `bytes`, or `max`
 * steps were done. A step evicts a payload that is on no running call's path, or a whole idle
 * session if nothing was used less recently. Returns the number of steps. */
size_t session_evict(struct session_store *st, uint64_t bytes, size_t max);

/* Pins the session, to whose content session_apply then applies all its records. Until
 * session_load_end no new call may be written for it. */
void session_load_begin(struct session *s);

/* Announces that the record applied next is this one of the session's, from 0. */
void session_load_at(struct session *s, size_t record);

/* Absorbs records applied from now on, until session_load_at, because they are new: only their ends
 * and times are applied, as while the session was evicted, and all of them must be read back with
 * the others later. */
void session_load_absorb(struct session *s);

/* Reports whether records that made its content existed. */
bool session_filled(const struct session *s);

/* Reports whether the session was ended while it was loaded. Nothing can be applied to it any
 * more. */
bool session_unlinked(const struct session *s);

/* Ends the loading and unpins. `whole`: all records were applied; otherwise the session stays
 * evicted. Returns -1 if it is not resident now. */
int session_load_end(struct session *s, bool whole, uint64_t now_ms);

/* Makes an entry, which must be loaded, for a finalized session whose entry was freed but which may
 * still be exported. Returns NULL if there is none. */
struct session *session_revive(struct session_store *st, struct str id, uint64_t now_ms);

/* Returns the memory that evicting the session would free after the asking request, which may hold
 * a pin, has released it. Returns 0 while others hold it or a call runs, or if evictions are not
 * allowed. */
uint64_t session_evictable(const struct session *s);

/* Returns its row at the time of its eviction. Absent if none. */
struct str session_kept_row(const struct session *s);

/* Reports whether the session may have a label of this name. false is certain, and needs no session
 * in memory. */
bool session_may_have_label(const struct session *s, struct str name);

/* Keeps a session's data in memory (for an export in slices, a waiter), even if the session ends
 * meanwhile. */
void session_pin(struct session *s);

/* Releases a pin. Each pin must be released once; the session may be freed then. */
void session_unpin(struct session_store *st, struct session *s);

/* --- records: written here, applied by session_apply --- */

/* Writes the record of a new session from a POST /sessions body (object or NULL). Returns -1 with
 * ERR_INVALID and param for bad options. */
int session_create_record(struct session_store *st, struct str id, const struct json *options,
                          uint64_t now_ms, struct buf *record, struct err *e);

/* Writes the record of a reward. reward_info must be an object; response_id may be absent (the
 * session's own reward). */
int session_reward_record(struct session *s, const struct json *reward_info, struct str response_id,
                          uint64_t now_ms, struct buf *record, struct err *e);

enum session_end {
    SESSION_END_COMPLETE,
    SESSION_END_FINALIZE,
    SESSION_END_ABORT,
    SESSION_END_DELETE,
    SESSION_END_EXPIRE,
    /* in records only: finalizes a session with the option hold, kept until deleted */
    SESSION_END_HOLD
};

/* Who caused a session's end: the model by its answer, a limit, the agent, the trainer, or the
 * infrastructure. */
enum session_stop {
    SESSION_STOP_NONE,
    SESSION_STOP_MODEL,
    SESSION_STOP_BUDGET,
    SESSION_STOP_AGENT,
    SESSION_STOP_TRAINER,
    SESSION_STOP_INFRASTRUCTURE
};

/* Writes the record of a call that was refused because of the budget of that name (max_turns,
 * max_total_tokens, max_session_recorded_bytes). Writes nothing if a call was refused before. */
void session_budget_record(const struct session *s, struct str budget, uint64_t now_ms,
                           struct buf *record);

/* Reports whether its samples are not for training (option evaluation). */
bool session_evaluates(const struct session *s);

/* Writes the options with which the session was made, as an object, without `metadata`, which may
 * be long (session_metadata). */
void session_write_options(const struct session *s, struct buf *json);

/* Reports whether some records of a copy are missing, whose number is in its first record. They may
 * be lost. The session is not visible then. */
bool session_copying(const struct session *s);

/* Writes the record of complete / finalize / abort / delete / expire. `detail` is complete's body
 * or NULL. */
int session_end_record(struct session *s, enum session_end how, const struct json *detail,
                       uint64_t now_ms, struct buf *record, struct err *e);

/* Writes the tombstone of a session, finalized or not, that is not kept any more and was deleted so
 * long ago that its id is forgotten, too. For the journal (journal_options.last_word). */
void session_last_word(struct str id, struct buf *record);

/* State of the session's export for the sinks. DUE keeps a finalized session's data. */
enum session_sink { SESSION_SINK_NONE, SESSION_SINK_DUE, SESSION_SINK_SPOOLED };

/* Writes the record of a state. `options` is the owner's text, set with DUE, which session_sink
 * returns (absent: none). */
void session_sink_record(const struct session *s, enum session_sink state, struct str options,
                         uint64_t now_ms, struct buf *record);
/* Reports whether trainers get a number as the session's reward. */
bool session_is_rewarded(const struct session *s);

/* Reports whether sinks get the session (option sink). */
bool session_goes_to_sinks(const struct session *s);

/* Returns the state of the export for the sinks. *ret_options becomes the text that was set with
 * DUE. */
enum session_sink session_sink(const struct session *s, struct str *ret_options);

/* Writes the record that the client has received the whole export that closed the session. */
void session_exported_record(struct session *s, uint64_t now_ms, struct buf *record);

/* Reports whether the session needs a mark that records between these times may be missing: it has
 * not ended, and has no such mark. session_doubt_record: writes the record of the mark. */
bool session_needs_doubt(const struct session *s, uint64_t since_ms, uint64_t until_ms);
void session_doubt_record(struct str id, uint64_t since_ms, uint64_t until_ms, uint64_t now_ms,
                          struct buf *record);

/* Writes the record that answers have arrived; the briefs, 8 bytes each, name their calls. */
void session_delivered_record(struct str id, struct str briefs, uint64_t now_ms,
                              struct buf *record);

/* Reports whether it is such a record, and of which calls. ret_briefs points into the record. */
bool session_record_delivered(struct str record, struct str *ret_briefs);

/* Returns false if no answer waits for such a record, so that its loss is not the loss of anything
 * that was answered. */
bool session_record_is_awaited(struct str record);

/* Returns the kind of a record as a word: "create", "commit" ...; NULL if it is not a session's. */
const char *session_record_kind(struct str record);

/* The request of a committed call: the call's number, and the hash and key by which a repeated
 * request is recognised. */
struct session_request {
    uint64_t call;
    uint64_t body_hash[2];
    struct str key; /* Idempotency-Key, or absent */
    bool has_bulk;  /* the record names fragments of the call */
};

/* Reports whether the record is a fragment of a call, and of which. *ret_first: earlier fragments
 * are void. */
bool session_record_fragment(struct str record, uint64_t *ret_call, bool *ret_first);

/* Reports whether the record is a fragment that the second copy in a fleet's store lacks. */
bool session_record_is_rows(struct str record);

/* Returns the version of the record's form; 0 if the record is incomplete. */
uint32_t session_record_version(struct str record);

/* Reports whether the record commits a call, and of which session and request. The results borrow
 * the record's bytes. */
bool session_record_commits(struct str record, struct str *ret_id, struct session_request *ret);

/* Applies one record to the store (live or replayed). Returns -1 with ERR_IO for an invalid
 * record. */
int session_apply(struct session_store *st, struct str record, struct err *e);

/* --- a call: prepare and commit are in session_call.h --- */

/* What engines may omit from answers, or return differently from what is wanted. */
enum session_lack {
    LACK_BASIS, /* logprobs are not of the distribution from which the tokens were sampled */
    LACK_SUPPORT,
    LACK_EXPERTS,
    LACK_INDEXER,
    /* rows (experts, indexer top-k) were computed again, not in the run that sampled the tokens */
    LACK_RECOMPUTED,
    LACK_INDEXER_ROOM, /* the indexer's top-k is larger than the limit for keeping it */
};

/* Reports whether the warning must be logged: true once for each session of this process. */
bool session_tells(struct session *s, enum session_lack what);

/* Reports whether a prompt that is too long makes an exhausted call instead of an error. */
bool session_exhausts(const struct session *s);

/* Returns what must be kept of answers besides ids and logprobs. */
struct session_wants session_wants(const struct session *s);

/* Returns the LoRA adapter with which its answers are sampled. Absent: none. */
struct str session_adapter(const struct session *s);

/* Returns the pool of engines for calls that name none. Absent: the policy's. */
struct str session_pool(const struct session *s);

/* Reports whether its calls may name that pool (absent: the policy's): its own pool, and those of
 * its option `pools`, or all pools without that option. */
bool session_may_ask(const struct session *s, struct str pool);

/* Returns the Idempotency-Key of a committed call, or absent. */
struct str session_call_key(const struct session *s, uint64_t call);

/* Returns the conversation up to and including that answer, an array of normalised messages in the
 * arena (strings borrowed from the session). Returns NULL for unknown ids. For
 * previous_response_id. */
const struct json *session_messages(const struct session *s, struct arena *a,
                                    struct str response_id);

/* Returns that answer's own message, the last of these, as its client got it. Returns NULL for
 * unknown ids. *ret_told is the answer's other data (told.h). */
const struct json *session_message(const struct session *s, struct str response_id,
                                   struct str *ret_told);

/* Returns the assistant's message without calls that the answer follows directly. Returns NULL if
 * there is none, and for unknown ids. */
const struct json *session_message_before(const struct session *s, struct str response_id);

/* Reports whether a thought of some answer of the session has that seal (thought_blocks.h). */
bool session_has_seal(const struct session *s, struct str seal);

/* The answer of a response id, and the token counts of its call. */
struct session_past_response {
    struct str finish_reason, asked, told;
    struct str instructions; /* instructions that belong to `asked` but are not in it; or absent */
    const struct json *message; /* the session's */
    uint32_t prompt_tokens, completion_tokens;
};

/* Returns the stored messages that the newest walk (chat_known) with the last message of that
 * reading ended with. Returns NULL if there is none, or the session is not resident. */
const struct json *session_walked_messages(const struct session *s, uint64_t reading,
                                           struct arena *a);

bool session_find_response(const struct session *s, struct str response_id,
                           struct session_past_response *ret);

/* Returns the response id of the answer that issued a tool call with this id. Absent if none
 * did. */
struct str session_call_owner(struct session *s, struct str call_id);

/* --- origin (origin.c) ---
 *
 * Each session has the fingerprint of the model with which it began (model.h). A session whose
 * tokenizer is not the store's is foreign: its ids mean other text here. It is kept, can be
 * exported without what needs a tokenizer, and can be ended; it is never continued. A different
 * template or different special tokens do not make a session foreign, because what is stored is
 * what the model was sent. */

/* Reports whether a different tokenizer made its ids. */
bool session_foreign(const struct session *s);

/* Returns -1 with ERR_FOREIGN if it is foreign. */
int session_refuse_foreign(const struct session *s, struct err *e);

/* --- records that could not be applied, or may be missing ---
 *
 * Records after a lost one may be invalid. A copy would have the same records, and fail in the same
 * way. */

/* Returns -1 with ERR_UNASSEMBLABLE if there are any. */
int session_refuse_lossy(const struct session *s, struct err *e);

/* Reports whether such records exist, or records may be missing. */
bool session_has_losses(const struct session *s);

/* Appends the sentences about them to a list of warnings. */
void session_put_loss(const struct session *s, struct json_out *o);

/* Writes the member `warnings` with these sentences. Writes nothing if there are none. */
void session_put_loss_list(const struct session *s, struct json_out *o);

/* --- reading --- */

struct str session_id(const struct session *s);
enum session_phase session_phase(const struct session *s);
const char *session_phase_name(const struct session *s); /* "open" ... "expired" */
const char *session_history(const struct session *s);    /* "tree" ... */

/* Return the trusted sampling defaults (object or NULL), and the names that the agent may not
 * override (array or NULL). Valid as long as the session. */
const struct json *session_sampling(const struct session *s);
const struct json *session_lock_sampling(const struct session *s);

/* Returns an object or NULL, valid as long as the session. */
const struct json *session_metadata(const struct session *s);

/* Writes the state object of GET /sessions/{id} as JSON text. `records` adds every call. Returns -1
 * if evicted data cannot be read back. */
int session_write_state(struct session *s, bool records, struct buf *json, struct err *e);

/* Writes one row of GET /sessions. */
void session_write_row(const struct session *s, struct buf *json);

/* Iterates over all sessions, for lists, TTL and drain: returns the next one after `at` (NULL: the
 * first), or NULL. */
struct session *session_next(struct session_store *st, const struct session *at);

/* Reports whether the session is open, without a call, not being loaded, and idle beyond its
 * TTL. */
bool session_expired(const struct session *s, uint64_t now_ms);

/* Returns the id of a session that was deleted or aborted and is unused, once for each session: of
 * its records only the last, its end, is needed. Returns NULL if there is none. The caller frees
 * the id. */
char *session_take_gone(struct session_store *st);

/* Adapts to a step of the wall clock, so that everything that ends by time (TTL, tombstones,
 * retention) ends as late as before. */
void session_clock_stepped(struct session_store *st, int64_t by_ms);

/* Marks all sessions as used just now: after a replay, time without a serving process does not
 * count. */
void session_store_woken(struct session_store *st, uint64_t now_ms);
void session_wake(struct session *s, uint64_t now_ms);

/* Returns its number in the order of session_next, from 1. A number is never given again. */
uint64_t session_serial(const struct session *s);

/* Returns the serial that was given last. */
uint64_t session_last_serial(const struct session_store *st);

/* A session that has ended, found by its tombstone. Its entry may have left the store:
 * session_revive then makes one while `kept`. */
struct session_past {
    struct str id;     /* borrows from the store */
    uint64_t ended_ms; /* wall clock */
    uint64_t label_names;
    bool kept; /* its export may still be requested */
};

/* Moves p to the next session that has ended, the earliest end first; a zeroed p is before the
 * first one. Returns false if there is none. Of those that are not kept some are skipped and some
 * are returned, so that no call takes long. Without a journal there are none. */
bool session_next_past(struct session_store *st, uint64_t now_ms, struct session_past *p);

/* Reports whether a past session may have the label, like session_may_have_label. */
bool session_past_may_have_label(const struct session_past *p, struct str name);

/* Frees the entry that session_revive has made for a reader, unless others use it. */
void session_leave_again(struct session *s);

/* Returns the number of calls between prepare and commit or release. */
uint32_t session_inflight(const struct session *s);

#endif
