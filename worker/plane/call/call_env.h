/*
 * struct call_env: what all model calls of a worker process share: the model, the sessions and the
 * one way to change them, the engines, helper threads, limits, and the calls that run. One a
 * process; the command-line tools have none.
 */
#ifndef RG_CALL_CALL_ENV_H
#define RG_CALL_CALL_ENV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/str.h"

struct answer_formats;
struct board;
struct call_rules;
struct call_tracer;
struct call_watch;
struct encoder;
struct engine_pool;
struct err;
struct helper_job;
struct helpers;
struct ids;
struct image_rules;
struct ledger;
struct loop;
struct map;
struct media_store;
struct metrics_page;
struct model;
struct model_scratch;
struct request_limits;
struct residency;
struct session;
struct session_defaults;
struct session_store;
struct tasks;
struct web_rules;
struct work_tools;

struct call_env {
    struct loop *loop;
    struct tasks *tasks;
    struct work_tools *own_tools; /* the loop's, for tasks; NULL before call_helpers_begin */
    const struct model *model;
    struct model_scratch *scratch;
    struct encoder *encoder;  /* for text completions */
    struct helpers *helpers;  /* for long work (work.h); NULL: it is done on the spot */
    struct helpers *fetchers; /* for what waits for the network; NULL: nothing is fetched */
    struct list_head giving;  /* memory that helpers give back (give_back.h) */
    struct board *board;      /* where work is noted (work.h), in this slot; or NULL */
    unsigned slot;
    atomic_uint n_tools; /* threads that have tools of their own */
    struct session_store *store;
    struct engine_pool *engines;
    struct ids *ids;
    struct metrics_page *page;
    uint32_t context_length; /* 0: unknown */
    bool model_known;        /* the model was named: it is the engines' */
    uint64_t keepalive_ms, nonstream_keepalive_ms, rejoin_window_ms;
    uint32_t max_inflight, max_session_inflight;
    struct call_rules *rules;
    const struct web_rules *web; /* from where pictures may be fetched; NULL: from nowhere */
    const char *web_ca_file;
    uint64_t fetch_timeout_ms; /* time limit of all fetches of one request */
    unsigned n_fetching;       /* requests for which a fetcher works, or that wait for one */
    atomic_size_t
        fetch_bytes; /* bytes that fetched pictures take, or may take, until they are stored */
    const struct media_store *media; /* NULL: there is none; no picture is taken */
    bool finish_on_disconnect;
    bool media_drift;       /* answers to another prompt with images than was sent are taken */
    bool answers_conflicts; /* --linear-conflict=answer */
    bool serial_calls;      /* calls of a session wait for its earlier ones */
    bool strict_logprobs;   /* logprobs of another distribution than the sampled one are refused */
    struct residency *residency;
    atomic_size_t
        request_bytes; /* bytes of the arenas of requests and calls, and of arriving answers */
    atomic_size_t export_bytes; /* bytes of exports that are being sent or spooled */
    uint64_t most_bytes;        /* the peak since memory was last given back */
    unsigned low_calls;         /* calls of call_memory_held in a row that reported much less */
    struct helper_job *trim;    /* job that frees the memory; or NULL */
    struct ledger *ledger;
    struct call_tracer *tracer;     /* NULL: no spans are made */
    const struct call_watch *watch; /* NULL: no viewer */
    struct list_head running;       /* model calls, newest first, but for those of ended sessions */
    size_t n_running;               /* with those */
    size_t n_leaving;               /* number of running calls that only need to free or abort */
    struct map *rows;               /* calls by their sessions (call_rows.h); NULL: none runs */
};

/* What a call_env is made of; all borrowed. */
struct call_env_parts {
    struct loop *loop;
    const struct model *model;
    struct metrics_page *page;
    const struct session_defaults *defaults;
    bool journaled; /* sessions may be evicted: a journal has their records */
};

/* Makes ids, store, scratch, ledger and residency. Places, engines, helpers and limits are the
 * caller's to add. -1: call_env_close all the same. */
int call_env_open(struct call_env *env, const struct call_env_parts *parts, struct err *e);

/* Ends what call_env_open made, and closes the places' journals. No call runs any more. `keep`:
 * what a lost helper may still use is not freed. */
void call_env_close(struct call_env *env, bool keep);

/* The engines that a request of the session (NULL: not known here) with this `model` goes to: those
 * of the pool that it names, else of the session's own, else the policy's. NULL: the session's own
 * is not among the engines (a gateway with others made it). */
struct engine_pool *call_engines(const struct call_env *env, struct str model,
                                 const struct session *s);

/* Returns the present limits of a request. */
struct request_limits call_request_limits(const struct call_env *env);

/* Returns the present rules for pictures of a request: without an engine that accepts them, none
 * are allowed. */
struct image_rules call_image_rules(const struct call_env *env);

/* The formats that the model's answers come in; the thought is each prompt's. */
struct answer_formats call_formats(const struct call_env *env);

/* Writes a fresh id of a tool call to which the model gave none; ctx: the call_env. */
void call_fresh_id(void *ctx, char *out, size_t size);

/* Returns the context length for calls: the model's, otherwise the one that the engines report; 0:
 * unknown. */
uint32_t call_context_length(const struct call_env *env);

/* Tasks of the worker (common/os/task.h): begins, ends and frees them. call_tasks_finish runs them
 * to their end: those that a helper thread works for only after call_helpers_end, if no thread is
 * lost.
 */
void call_tasks_begin(struct call_env *env, const struct call_env_parts *parts);
void call_tasks_finish(struct call_env *env, bool helpers_ended);
void call_tasks_free(struct call_env *env);

/* Helper threads for long work (work.h), two at least, as one of them is for what is short; with 0
 * all is done on the spot. on_lost (with env): n threads in all were given up as lost. */
int call_helpers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                       void (*on_lost)(void *env, unsigned n), struct err *e);

/* Threads that wait for the network, at least one; limit_ms and on_lost as above. */
int call_fetchers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                        void (*on_lost)(void *env, unsigned n), struct err *e);

/* Sets the fetchers' time limit from now on; a shorter limit is ignored, since it would hit running
 * fetches. */
void call_fetchers_limit(struct call_env *env, uint64_t limit_ms);

/* Ends all threads. How many threads do not end: then the process must
 * leave by _exit and free nothing that a request uses. */
unsigned call_helpers_end(struct call_env *env);

/* Reports, once a second, the bytes that requests hold in addition to sessions. If the sum has been
 * much smaller for some seconds, a helper returns the free heap memory to the system. */
void call_memory_held(struct call_env *env, uint64_t request_bytes);

/* --- figures of the run (run_counts.c) --- */

/* Counts what the first export of a session since it ended held, and no other one: tokens with
 * mask 1, trajectories, and those of them with drift. */
void run_count_export(const struct call_env *env, struct session *s, uint64_t trained,
                      uint64_t trajectories, uint64_t drifted);

/* A trainer has set the version of the policy's own weights; one that is no number is skipped. */
void run_note_version(const struct call_env *env, struct str version);

#endif
