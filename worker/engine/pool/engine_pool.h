/*
 * struct engine_pool: the replicas of one model that this worker may ask, of whatever kind
 * (sglang, vllm, llamacpp, openai, builtin), and the calls in flight to them (engine.h). One per
 * worker process for the policy, on its event loop; no threads. It owns those of other pools (a
 * judge's, a user simulator's), which have queues of their own and are asked with messages: sets,
 * trials, reloads and numbers are of all pools; pauses, versions, what engines can do, and being
 * ready are the policy's alone.
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

/* One --engine argument as text plus the shared limits; everything is copied. */
struct engine_options {
    const char *const *engines; /* "sglang:http://..." etc., n_engines of them */
    size_t n_engines;
    const struct engine_set *set; /* instead of them, with places; or NULL */
    const struct model *model;    /* kind builtin turns text into ids with it; borrowed */
    const int32_t *stop_ids;      /* the model's stop ids */
    size_t n_stop_ids;
    uint32_t vocab_size; /* 0: unknown; an answer with an id beyond is engine_invalid */
    bool any_text; /* no model is loaded: while all engines are of kind openai, vocab_size is 0 */
    uint32_t context_length;    /* 0: unknown */
    uint32_t max_inflight;      /* per replica, of all workers together */
    uint32_t max_queue;         /* calls; when full, sessions share it evenly */
    uint32_t max_session_queue; /* calls of one session in it; 0: no other limit */
    uint32_t retries;
    bool retry_5xx;
    bool error_texts; /* clients see the text of an engine's 5xx */
    bool routed_experts;
    uint64_t indexer_max; /* bytes of a branch's indexer top-k; a larger one is not kept */
    const char *pool; /* name of these engines, which are asked with messages; NULL: the policy's */
    bool media_drift; /* engines that make other tokens of pictures may be asked with them */
    bool kv_per_version;        /* KV computed under other weights must not be used */
    uint32_t kv_admission;      /* percent of a KV cache that sessions may hold; 0: no admission */
    uint64_t kv_session_tokens; /* tokens to which a session is expected to grow; 0: learned */
    uint64_t kv_hold_ms, kv_lease_idle_ms;
    bool resume_aborts; /* --on-engine-abort=resume */
    bool insecure_tls;
    const char *ca_file;
    struct metrics_page *metrics; /* this process's, or NULL */
    struct board *board;          /* where the workers count their requests, or NULL: one alone */
    unsigned slot;                /* this process's */
    void (*on_health)(void *ctx); /* engine_pool_ready may have changed; or NULL */
    void *health_ctx;
    struct tasks *tasks; /* wait for long work (engine_work.h); NULL: the loop does it */
    uint64_t timeout_ms, idle_timeout_ms, connect_timeout_ms, queue_timeout_ms, health_interval_ms,
        health_timeout_ms; /* 0: 20 s */
};

/* Engines that score what others sampled (scorers.h), one per --scorer. */
struct scorers;

/* Whether the arguments can be: ERR_CONFIG. */
int scorers_check(const char *const *texts, size_t n, struct err *e);

/* o: timeouts and TLS settings of engines, copied. */
int scorers_new(struct loop *loop, const char *const *texts, size_t n,
                const struct engine_options *o, struct scorers **ret, struct err *e);

/* Ends all calls; no event follows. NULL is fine. */
void scorers_free(struct scorers *s);

/* The kind of an engine argument if such engines never tell `what` (as in engine_pool_tells), else
 * NULL. */
const char *engine_kind_without(const char *text, const char *what);

/* Whether one engine argument could be opened, with o's TLS settings. ERR_CONFIG. */
int engine_check(const char *text, const struct engine_options *o, struct err *e);

/* The same of --engine-source (engine_source.h). */
int engine_source_check(const char *text, const struct engine_options *o, struct err *e);

/* Parses the engine arguments and prepares; connects nothing yet. */
int engine_pool_new(struct loop *loop, const struct engine_options *o, struct engine_pool **ret,
                    struct err *e);

/* Takes the settings over that may change while it runs: limits, timeouts, retries, what becomes of
 * aborts; key files are read again. Running attempts keep theirs. */
void engine_pool_reload(struct engine_pool *p, const struct engine_options *o);

/* Makes these engines the pool's: running calls end where they are, waiting ones go to the new
 * ones. -1: one of them cannot be opened, nothing has changed. */
int engine_pool_set(struct engine_pool *p, const struct engine_set *set, struct err *e);

/* Opens those of the set that are new, beside the others, and asks whether they answer; `tried` is
 * called once, later, with the names of those that do not, by commas (empty: all do). The next
 * engine_pool_set takes them over. -1: one cannot be opened; `tried` does not come. */
int engine_pool_try(struct engine_pool *p, const struct engine_set *set,
                    void (*tried)(void *ctx, struct str silent), void *ctx, struct err *e);

/* Whether the new engine of that argument, which engine_pool_try has asked, answers. */
bool engine_pool_tried(const struct engine_pool *p, const char *text);

/* What engine_pool_try has opened is closed again; `tried` does not come any more. */
void engine_pool_untry(struct engine_pool *p);

/* Of which edition the pool's set is (engine_set.h). */
uint64_t engine_pool_edition(const struct engine_pool *p);

/* Requests of all workers at the replica of that number, also one that was taken out. */
size_t engine_pool_at_number(const struct engine_pool *p, unsigned number);

/* The pool of that name beside this one, which is the policy's, or this one by the policy's name;
 * NULL: there is none. One whose engines were all taken out is still there. */
struct engine_pool *engine_pool_named(struct engine_pool *p, struct str name);

/* NULL: it is the policy's. */
const char *engine_pool_name(const struct engine_pool *p);

/* ERR_ENGINE_UNAVAILABLE when it is another pool than the policy's, and has no engine. */
int engine_pool_check_manned(const struct engine_pool *p, struct err *e);

/* The names of the pools beside the policy's, each once: fn is called for each. */
void engine_pool_each_name(const struct engine_pool *p, void (*fn)(void *ctx, const char *name),
                           void *ctx);

/* Cancels what is in flight (failed is called with ERR_DRAINING) and frees. */
void engine_pool_free(struct engine_pool *p);

/* The session has ended: engines that keep what they computed for it may let it go. */
void engine_pool_end_session(struct engine_pool *p, struct str session_id);

/* The session was said to be complete: calls may still come, but none is to be expected. What was
 * kept of a KV cache for its next one is given back when no call of it is in the pool. */
void engine_pool_complete_session(struct engine_pool *p, struct str session_id);

/* Weight updates: hold stops starting engine calls (callers wait, --queue-timeout does not run);
 * drain also waits: `drained` is called once nothing is in flight. A pool that is made while the
 * board says so holds from the start. */
enum engine_pause { ENGINE_RUN, ENGINE_HOLD, ENGINE_DRAIN };

void engine_pool_pause(struct engine_pool *p, enum engine_pause mode, void (*drained)(void *ctx),
                       void *ctx);

/* Stamps later tokens whose engine reports no version; absent takes it back. */
void engine_pool_set_version(struct engine_pool *p, struct str version);

/* All that was told of the weights (weights_file.h): their version, and those of LoRA adapters,
 * which stamp answers with an adapter: whatever engines report is of the weights below it. What is
 * as before stamps nothing. */
void engine_pool_follow(struct engine_pool *p, const struct weights_told *w);

/* The versions of adapters as a JSON list. */
void engine_pool_write_loras(const struct engine_pool *p, struct buf *json);

/* Whether every replica can be asked with an adapter, and these fields of the engine's own do not
 * name one, too (NULL: none). -1: ERR_INVALID. */
int engine_pool_takes_lora(const struct engine_pool *p, const struct json *extra, struct err *e);

/* Whether some, or all, replicas are of a kind that is asked with chat_body and may answer without
 * token ids. */
bool engine_pool_some_text(const struct engine_pool *p);
bool engine_pool_all_text(const struct engine_pool *p);

/* Whether some replica is of a kind that can be asked with images. */
bool engine_pool_takes_images(const struct engine_pool *p);

/* Whether every replica has been seen to take images exactly. */
bool engine_pool_images_proven(const struct engine_pool *p);

/* How many replicas make other tokens of images than they are sent. */
uint32_t engine_pool_drifting(const struct engine_pool *p);

/* The bases of the replicas' logprobs: a bit for each enum logprob_basis that they give, and behind
 * BOARD_BASIS_ASKED one for each that they are asked for. */
uint32_t engine_pool_bases(const struct engine_pool *p);

/* Whether a chat with images may be asked of some replica: one whose kind takes them and that has
 * not been seen to make other tokens of them. -1, ERR_INVALID, if of none. */
int engine_pool_check_images(const struct engine_pool *p, struct err *e);

/* Whether any replica is up (for /ready). */
bool engine_pool_ready(const struct engine_pool *p);

/* How many calls there are: queued, running, and between two tries. */
size_t engine_pool_inflight(const struct engine_pool *p);

/* The smallest context length that a replica has told of itself, 0: none has (yet). */
uint32_t engine_pool_context(const struct engine_pool *p);

/* Returns what some replica lacks: a bit for each line of engine_lacks.def. */
uint32_t engine_pool_lacks(const struct engine_pool *p);

/* Reports that the replica of that name has ignored a field of a request: in the log once, and in
 * its `lacks`. */
void engine_pool_note_ignored(struct engine_pool *p, struct str replica, const char *field);

/* Whether any replica is asked in ids, so that sampling.grammar means something. */
bool engine_pool_constrains(const struct engine_pool *p);

/* Whether logprobs of every replica that is asked in ids are known, or asked, to be those of the
 * distribution that is sampled from. */
bool engine_pool_logprobs_own(const struct engine_pool *p, const struct sampling *s);

/* The name of a sampling parameter that is set and that some replica has no field for, or NULL. */
const char *engine_pool_cannot_take(const struct engine_pool *p, const struct sampling *s);

/* Whether answers are to have routed experts. */
bool engine_pool_wants_experts(const struct engine_pool *p);

/* Whether every replica can end a thought by its number of tokens, as far as they have told. */
bool engine_pool_budgets_thinking(const struct engine_pool *p);

/* Whether every replica's kind can tell what a session wants kept of each answer
 * ("sampling_support", "indexer_topk" or "top_logprobs"). Returns -1, ERR_INVALID with that field,
 * if one cannot.
 */
int engine_pool_tells(const struct engine_pool *p, const char *what, struct err *e);

/* Whether all replicas' requests can have the fields of sampling.engine_extra (NULL: none). -1:
 * ERR_INVALID with the field. */
int engine_pool_takes_extra(const struct engine_pool *p, const struct json *extra, struct err *e);

/* Whether every replica can enforce a response_format of that type. */
bool engine_pool_enforces(const struct engine_pool *p, struct str type);

/* Appends the replicas as a JSON array, those that were taken out but still run calls, too. */
void engine_pool_write(const struct engine_pool *p, struct buf *json);

#endif
