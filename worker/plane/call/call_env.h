/*
 * struct call_env: data that all model calls of a worker process share: the model, the sessions and
 * the only way to change them, the engines, helper threads, limits, and the running calls. One for
 * each process; the command-line tools have none.
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
    struct work_tools *own_tools; /* tools of the loop, for tasks; NULL before call_helpers_begin */
    const struct model *model;
    struct model_scratch *scratch;
    struct encoder *encoder;  /* for text completions */
    struct helpers *helpers;  /* threads for long work (work.h); NULL: the loop does it */
    struct helpers *fetchers; /* threads that wait for the network; NULL: nothing is fetched */
    struct list_head giving;  /* memory that helpers must free (give_back.h) */
    struct board *board;      /* board and slot in which work is recorded (work.h); or NULL */
    unsigned slot;
    atomic_uint n_tools; /* number of threads that have tools of their own */
    struct session_store *store;
    struct engine_pool *engines;
    struct ids *ids;
    struct metrics_page *page;
    uint32_t context_length; /* 0: unknown */
    bool model_known;        /* the model was named in the settings, so it is the engines' model */
    uint64_t keepalive_ms, nonstream_keepalive_ms, rejoin_window_ms;
    uint32_t max_inflight, max_session_inflight;
    struct call_rules *rules;
    const struct web_rules *web; /* addresses from which pictures may be fetched; NULL: none */
    const char *web_ca_file;
    uint64_t fetch_timeout_ms; /* time limit for all fetches of one request */
    unsigned n_fetching;       /* requests that have a fetch, or wait for one */
    atomic_size_t
        fetch_bytes; /* bytes that fetched pictures use, or may use, until they are stored */
    const struct media_store *media; /* NULL: there is no store, so no picture is accepted */
    bool finish_on_disconnect;
    /* answers to a different prompt with images than was sent are accepted */
    bool media_drift;
    bool answers_conflicts; /* --linear-conflict=answer */
    bool serial_calls;      /* calls of a session wait for its earlier ones */
    bool strict_logprobs;   /* logprobs of a distribution other than the sampled one are refused */
    struct residency *residency;
    atomic_size_t
        request_bytes; /* bytes in the arenas of requests and calls, and of arriving answers */
    atomic_size_t export_bytes; /* bytes of exports that are being sent or spooled */
    uint64_t most_bytes;        /* peak after memory was last returned to the system */
    /* number of calls of call_memory_held in a row with a much lower sum */
    unsigned low_calls;
    struct helper_job *trim; /* job that returns free memory to the system; or NULL */
    struct ledger *ledger;
    struct call_tracer *tracer;     /* NULL: no spans are made */
    const struct call_watch *watch; /* NULL: there is no viewer */
    /* running model calls, newest first, except those of ended sessions */
    struct list_head running;
    size_t n_running; /* number of calls, including those of ended sessions */
    size_t n_leaving; /* number of running calls that must only be freed or aborted */
    /* running calls by their sessions (call_rows.h); NULL: there was none */
    struct map *rows;
};

/* Input for a call_env; everything is borrowed. */
struct call_env_parts {
    struct loop *loop;
    const struct model *model;
    struct metrics_page *page;
    const struct session_defaults *defaults;
    bool journaled; /* sessions may be evicted, because a journal has their records */
};

/* Makes ids, store, scratch, ledger and residency. The caller adds places, engines, helpers and
 * limits. After -1, call call_env_close as well. */
int call_env_open(struct call_env *env, const struct call_env_parts *parts, struct err *e);

/* Frees what call_env_open made, and closes the places' journals. No call may be running. `keep`:
 * does not free what a lost helper may still use. */
void call_env_close(struct call_env *env, bool keep);

/* Returns the engines for a request of the session (NULL: not known here) with this `model`: those
 * of the pool that it names, else of the session's own, else the policy's. NULL: the session's own
 * pool does not exist (a gateway with other engines made it). */
struct engine_pool *call_engines(const struct call_env *env, struct str model,
                                 const struct session *s);

/* Returns the present limits of a request. */
struct request_limits call_request_limits(const struct call_env *env);

/* Returns the present rules for pictures of a request. If no engine accepts them, none are
 * allowed. */
struct image_rules call_image_rules(const struct call_env *env);

/* Returns the formats of the model's answers; the state of thought depends on each prompt. */
struct answer_formats call_formats(const struct call_env *env);

/* Writes a fresh id for a tool call to which the model gave none; ctx: the call_env. */
void call_fresh_id(void *ctx, char *out, size_t size);

/* Returns the context length for calls: the model's, otherwise the one that the engines report; 0:
 * unknown. */
uint32_t call_context_length(const struct call_env *env);

/* Tasks of the worker (common/os/task.h). The functions begin, end and free them. call_tasks_finish
 * runs them to their end; those for which a helper thread works only after call_helpers_end, if no
 * thread is lost. */
void call_tasks_begin(struct call_env *env, const struct call_env_parts *parts);
void call_tasks_finish(struct call_env *env, bool helpers_ended);
void call_tasks_free(struct call_env *env);

/* Frees env->rows. No call may be running. */
void call_rows_free(struct call_env *env);

/* Starts helper threads for long work (work.h): at least two, because one of them is for short
 * work. With 0 threads the loop does all work. on_lost (with env): n threads in all were
 * abandoned. */
int call_helpers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                       void (*on_lost)(void *env, unsigned n), struct err *e);

/* Starts threads that wait for the network, at least one; limit_ms and on_lost as above. */
int call_fetchers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                        void (*on_lost)(void *env, unsigned n), struct err *e);

/* Sets the fetchers' time limit from now on. A shorter limit is ignored, because it would affect
 * running fetches. */
void call_fetchers_limit(struct call_env *env, uint64_t limit_ms);

/* Ends all threads. Returns how many do not end: then the process must leave by _exit and free
 * nothing that a request uses. */
unsigned call_helpers_end(struct call_env *env);

/* Reports, once a second, the bytes that requests hold in addition to sessions. If the sum has been
 * much smaller for some seconds, a helper returns the free heap memory to the system. */
void call_memory_held(struct call_env *env, uint64_t request_bytes);

/* --- figures of the run (run_counts.c) --- */

/* Counts the content of the first export after a session has ended, and of no other one: tokens
 * with mask 1, trajectories, and those of them with drift. */
void run_count_export(const struct call_env *env, struct session *s, uint64_t trained,
                      uint64_t trajectories, uint64_t drifted);

/* Records the version that a trainer has set for the policy's own weights. A version that is not a
 * number is skipped. */
void run_note_version(const struct call_env *env, struct str version);

#endif
