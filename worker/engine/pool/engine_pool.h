/*
 * struct engine_pool: the replicas of one model that this worker may use, of any kind (sglang,
 * vllm, llamacpp, openai, builtin), and the calls in progress at them (engine.h). One per worker
 * process for the policy, on its event loop; no threads. The policy's pool owns the pools of other
 * models (a judge's, a user simulator's), which have queues of their own and are asked with
 * messages. Sets, trials, reloads and counts concern all pools. Pauses, versions, features of
 * engines and readiness concern the policy's only.
 */
#ifndef RG_ENGINE_ENGINE_POOL_H
#define RG_ENGINE_ENGINE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct board;
struct buf;
struct engine_pool;
struct engine_set;
struct err;
struct json;
struct loop;
struct metrics_page;
struct model;
struct sampling;
struct tasks;
struct weights_told;

/* The --engine arguments as text and the shared limits. Everything is copied. */
struct engine_options {
    const char *const *engines; /* n_engines arguments such as "sglang:http://..." */
    size_t n_engines;
    const struct engine_set *set; /* used instead of `engines`, with places; or NULL */
    const struct model *model;    /* for kind builtin, which encodes text; borrowed */
    const int32_t *stop_ids;      /* stop ids of the model */
    size_t n_stop_ids;
    uint32_t vocab_size; /* 0: unknown; an answer with an id beyond it fails with engine_invalid */
    bool any_text; /* no model is loaded: vocab_size is 0 while all engines are of kind openai */
    uint32_t context_length; /* 0: unknown */
    uint32_t max_inflight;   /* limit for each replica, for all workers together */
    /* limit of waiting calls; when it is reached, sessions share it evenly */
    uint32_t max_queue;
    uint32_t max_session_queue; /* limit of waiting calls of one session; 0: no separate limit */
    uint32_t retries;
    bool retry_5xx;
    bool error_texts; /* clients get the text of an engine's 5xx */
    bool routed_experts;
    uint64_t indexer_max; /* most bytes of a branch's indexer top-k; a larger one is not kept */
    const char *pool;     /* name of a pool that is asked with messages; NULL: the policy's */
    bool media_drift; /* engines that make different tokens of pictures may be used with pictures */
    bool kv_per_version;        /* KV cache computed under other weights must not be used */
    uint32_t kv_admission;      /* percent of a KV cache that sessions may hold; 0: no admission */
    uint64_t kv_session_tokens; /* expected number of tokens of a session; 0: learned */
    uint64_t kv_hold_ms, kv_lease_idle_ms;
    bool resume_aborts; /* --on-engine-abort=resume */
    bool insecure_tls;
    const char *ca_file;
    struct metrics_page *metrics; /* page of this process, or NULL */
    /* board on which the workers count their requests; NULL: a single worker */
    struct board *board;
    unsigned slot;                /* slot of this process */
    void (*on_health)(void *ctx); /* called when engine_pool_ready may have changed; or NULL */
    void *health_ctx;
    struct tasks *tasks; /* tasks that wait for long work; NULL: the loop does it */
    uint64_t timeout_ms, idle_timeout_ms, connect_timeout_ms, queue_timeout_ms, health_interval_ms,
        health_timeout_ms; /* 0: the default of 20 s */
};

/* Engines that score tokens sampled by others (scorers.h), one per --scorer. */
struct scorers;

/* Checks whether the arguments are valid. Fails with ERR_CONFIG. */
int scorers_check(const char *const *texts, size_t n, struct err *e);

/* Makes the scorers. o: timeouts and TLS settings of engines, copied. */
int scorers_new(struct loop *loop, const char *const *texts, size_t n,
                const struct engine_options *o, struct scorers **ret, struct err *e);

/* Ends all calls without an event and frees s. Accepts NULL. */
void scorers_free(struct scorers *s);

/* Returns the kind of an engine argument if engines of this kind never return `what` (as in
 * engine_pool_tells), else NULL. */
const char *engine_kind_without(const char *text, const char *what);

/* Reports whether an engine argument names a server that is asked with token ids. */
bool engine_takes_ids(const char *text);

/* Checks whether one engine argument could be opened, with o's TLS settings. Fails with
 * ERR_CONFIG. */
int engine_check(const char *text, const struct engine_options *o, struct err *e);

/* Checks the same for --engine-source (engine_source.h). */
int engine_source_check(const char *text, const struct engine_options *o, struct err *e);

/* Parses the engine arguments and prepares the pool. Does not connect yet. */
int engine_pool_new(struct loop *loop, const struct engine_options *o, struct engine_pool **ret,
                    struct err *e);

/* Applies the settings that may change at run time: limits, timeouts, retries, the handling of
 * aborts. Key files are read again. Running attempts keep their settings. */
void engine_pool_reload(struct engine_pool *p, const struct engine_options *o);

/* Replaces the engines of the pool. Running calls stay where they are; waiting ones go to the new
 * engines. Returns -1 if an engine cannot be opened; then nothing has changed. */
int engine_pool_set(struct engine_pool *p, const struct engine_set *set, struct err *e);

/* Opens the new engines of the set, in addition to the present ones, and probes them. `tried` is
 * called once, later, with the names of those that do not answer, separated by commas (empty: all
 * answer). The next engine_pool_set uses the opened ones. Returns -1 if one cannot be opened; then
 * `tried` is not called. */
int engine_pool_try(struct engine_pool *p, const struct engine_set *set,
                    void (*tried)(void *ctx, struct str silent), void *ctx, struct err *e);

/* Reports whether the new engine of that argument, which engine_pool_try has probed, answers. */
bool engine_pool_tried(const struct engine_pool *p, const char *text);

/* Closes the engines that engine_pool_try has opened; `tried` is not called any longer. */
void engine_pool_untry(struct engine_pool *p);

/* Returns the edition of the pool's set (engine_set.h). */
uint64_t engine_pool_edition(const struct engine_pool *p);

/* Returns the requests of all workers at the replica with that number, even if it was removed from
 * the set. */
size_t engine_pool_at_number(const struct engine_pool *p, unsigned number);

/* Returns the pool with that name, among this one, which is the policy's, and the pools that it
 * owns; NULL: there is none. A pool whose engines were all removed still exists. */
struct engine_pool *engine_pool_named(struct engine_pool *p, struct str name);

/* Returns the pool's name; NULL: it is the policy's. */
const char *engine_pool_name(const struct engine_pool *p);

/* Fails with ERR_ENGINE_UNAVAILABLE if the pool is not the policy's and has no engine. */
int engine_pool_check_manned(const struct engine_pool *p, struct err *e);

/* Calls fn with the name of each pool except the policy's, each name once. */
void engine_pool_each_name(const struct engine_pool *p, void (*fn)(void *ctx, const char *name),
                           void *ctx);

/* Cancels all calls (failed is called with ERR_DRAINING) and frees the pool. */
void engine_pool_free(struct engine_pool *p);

/* Notifies engines that a session has ended, so that they may free what they keep for it. */
void engine_pool_end_session(struct engine_pool *p, struct str session_id);

/* Records that the session was reported complete: calls may still come, but none is expected. The
 * space that is kept for it in a KV cache is released when it has no call in the pool. */
void engine_pool_complete_session(struct engine_pool *p, struct str session_id);

/* Pauses for weight updates. HOLD starts no engine calls (callers wait, --queue-timeout does not
 * run). DRAIN also waits: `drained` is called when no call is running. A pool that is made while
 * the board says so is paused from the start. */
enum engine_pause { ENGINE_RUN, ENGINE_HOLD, ENGINE_DRAIN };

void engine_pool_pause(struct engine_pool *p, enum engine_pause mode, void (*drained)(void *ctx),
                       void *ctx);

/* Sets the version for later tokens of engines that report none. Absent: no version. */
void engine_pool_set_version(struct engine_pool *p, struct str version);

/* Applies everything that the trainer has set about the weights (weights_file.h): their version,
 * and those of LoRA adapters. The version of an adapter is used for answers with it, because
 * engines report only that of the base weights. Unchanged versions have no effect. */
void engine_pool_follow(struct engine_pool *p, const struct weights_told *w);

/* Appends the versions of adapters as a JSON list. */
void engine_pool_write_loras(const struct engine_pool *p, struct buf *json);

/* Checks that every replica accepts an adapter, and that these fields of the engine's own (NULL:
 * none) do not name one, too. Fails with ERR_INVALID. */
int engine_pool_takes_lora(const struct engine_pool *p, const struct json *extra, struct err *e);

/* Report whether some replica, or every replica, is of a kind that is asked with chat_body and may
 * answer without token ids. */
bool engine_pool_some_text(const struct engine_pool *p);
bool engine_pool_all_text(const struct engine_pool *p);

/* Reports whether some replica is of a kind that accepts images. */
bool engine_pool_takes_images(const struct engine_pool *p);

/* Reports whether every replica has been seen to make exactly the sent tokens of images. */
bool engine_pool_images_proven(const struct engine_pool *p);

/* Returns how many replicas make different tokens of images than they are sent. */
uint32_t engine_pool_drifting(const struct engine_pool *p);

/* Returns the bases of the replicas' logprobs: a bit for each enum logprob_basis that they return,
 * and from BOARD_BASIS_ASKED on one for each that they are asked for. */
uint32_t engine_pool_bases(const struct engine_pool *p);

/* Checks that a chat with images can be sent to some replica: one whose kind accepts them and that
 * has not been seen to make different tokens of them. Otherwise fails with ERR_INVALID. */
int engine_pool_check_images(const struct engine_pool *p, struct err *e);

/* Reports whether any replica is up (for /ready). */
bool engine_pool_ready(const struct engine_pool *p);

/* Returns the number of calls: queued, running, and between two tries. */
size_t engine_pool_inflight(const struct engine_pool *p);

/* Returns the smallest context length that a replica has reported; 0: none has so far. */
uint32_t engine_pool_context(const struct engine_pool *p);

/* Returns what some replica lacks: a bit for each line of engine_lacks.def. */
uint32_t engine_pool_lacks(const struct engine_pool *p);

/* Records that the replica of that name has ignored a field of a request: in the log once, and in
 * its `lacks`. */
void engine_pool_note_ignored(struct engine_pool *p, struct str replica, const char *field);

/* Reports whether any replica is asked in ids, so that sampling.grammar has an effect. */
bool engine_pool_constrains(const struct engine_pool *p);

/* Reports whether the logprobs of every replica that is asked in ids are known, or requested, to be
 * those of the distribution that is sampled from. */
bool engine_pool_logprobs_own(const struct engine_pool *p, const struct sampling *s);

/* Returns the name of a sampling parameter that is set and for which some replica has no field, or
 * NULL. */
const char *engine_pool_cannot_take(const struct engine_pool *p, const struct sampling *s);

/* Reports whether answers should have routed experts. */
bool engine_pool_wants_experts(const struct engine_pool *p);

/* Reports whether every replica can end a thought by its number of tokens, as far as they have
 * reported. */
bool engine_pool_budgets_thinking(const struct engine_pool *p);

/* Checks that every replica's kind can return what a session wants kept of each answer
 * ("sampling_support", "indexer_topk" or "top_logprobs"). Returns -1 with ERR_INVALID and that
 * field if one cannot. */
int engine_pool_tells(const struct engine_pool *p, const char *what, struct err *e);

/* Checks that the requests of all replicas can have the fields of sampling.engine_extra (NULL:
 * none). Returns -1 with ERR_INVALID and the field. */
int engine_pool_takes_extra(const struct engine_pool *p, const struct json *extra, struct err *e);

/* Reports whether every replica can enforce a response_format of that type. */
bool engine_pool_enforces(const struct engine_pool *p, struct str type);

/* Reports whether an engine, or a pool that has one, is called so (name, or --engine's text).
 * Otherwise appends the names that there are to `known`. */
bool engine_pool_has(const struct engine_pool *p, struct str name, struct buf *known);

/* Appends the replicas as a JSON array, including removed ones that still run calls. */
void engine_pool_write(const struct engine_pool *p, struct buf *json);

#endif
