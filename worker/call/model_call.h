/*
 * struct model_call: one model call from the parsed request to the committed answer, and the only
 * place that sees the whole slope: session, engine, tokens, parsers, journal. Its steps stand in
 * call_steps.def. Listeners (usually one HTTP answer) get the events of answer_sink; a repeated
 * request may join, and a call that lost its last listener ends, or goes on, by --on-disconnect.
 *
 * The life of a call:
 *
 *   request ---> PREPARE --> RENDER --> PLACE --+--> DROP (linear: a retry) --+
 *                   |          | (a helper)     '-----------------------------+
 *                   |          |                                              v
 *                   '----------'---- refused: nothing was changed          GENERATE <-- a repeated
 *                                                                             |         request
 *        deltas to the listeners, checked and parsed as they come <-----------|         joins here
 *                                                                             v
 *                                                             COMMIT  record, journal, session
 *                                                                             |
 *        the end of the answer, to all listeners <-- FINISH <-- DURABLE <-----'
 *
 * A client that leaves before RENDER is through ends the call; later the call waits
 * --rejoin-window for a retry, or runs to its end (--on-disconnect). From COMMIT on nothing stops
 * it: what was sampled is on record before anybody is told.
 *
 * A call owns itself: it ends after finish or failed went to every listener, or silently when it
 * was abandoned. Nothing of it is in the session before the commit's record was applied.
 * One struct call_env per worker process holds what all calls share.
 */
#ifndef RG_CALL_MODEL_CALL_H
#define RG_CALL_MODEL_CALL_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/parsers/kinds.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"

struct encoder;
struct engine_pool;
struct helpers;
struct ids;
struct long_work;
struct media_store;
struct model;
struct model_scratch;
struct model_call;
struct token_count;

struct call_watch;

struct call_env {
    struct loop *loop;
    const struct model *model;
    struct model_scratch *scratch;
    struct encoder *encoder;       /* for text completions */
    struct helpers *helpers;       /* for long work (work.h); NULL: it is done on the spot */
    struct list_head dropped_work; /* nobody wants it, but a helper still has it */
    struct board *board;           /* where work is noted (work.h), in this slot; or NULL */
    unsigned slot;
    atomic_uint n_tools; /* threads that have tools of their own */
    struct session_store *store;
    struct engine_pool *engines;
    struct ids *ids;
    struct metrics_page *page;
    enum tool_kind tool_kind;
    enum reasoning_kind reasoning_kind;
    uint32_t context_length; /* 0: unknown */
    bool model_known;        /* the model was named: it is the engines' */
    uint64_t keepalive_ms, nonstream_keepalive_ms, rejoin_window_ms;
    uint32_t max_inflight, max_session_inflight;
    struct request_limits limits;
    struct image_rules images;
    const struct media_store *media; /* NULL: there is none; no picture is taken */
    bool finish_on_disconnect;
    bool strict_logprobs; /* logprobs of another distribution than the sampled one are refused */
    struct residency residency;
    atomic_size_t request_bytes; /* of the arenas of requests and calls */
    atomic_size_t export_bytes;  /* that exports hold which are being sent */
    uint64_t most_bytes;         /* that were held since memory was given back */
    unsigned low_calls;          /* of call_memory_held in a row that told of much less */
    struct helper_job *trim;     /* which does that; or NULL */
    struct ledger ledger;
    const struct call_watch *watch; /* NULL: nobody looks */
    struct list_head running;       /* model calls, newest first */
    size_t n_running;
};

/* Who looks at calls while they run. `call`: one has begun to be answered, or is over (committed or
 * not). `tokens`: what has come; borrowed. */
struct call_tokens {
    struct str session_id;
    uint64_t call;  /* its number in the session */
    uint32_t index; /* of the sample */
    bool so_far;    /* all that came until now, as text: told to who came late */
    size_t n;       /* how many tokens that is */
    struct token_span ids;
    const float *logprobs; /* ids.n, or NULL */
    struct str text;       /* where there are no ids */
};

/* Which call of its session. `parent`: response id of the answer that it goes on from; absent: of
 * none. */
struct call_place {
    uint64_t call;
    struct str parent;
};

struct call_watch {
    void *ctx;
    void (*call)(void *ctx, struct str session_id, const struct call_place *c, bool ended);
    void (*tokens)(void *ctx, const struct call_tokens *t);
};

/* Tells env->watch of the session's calls that run, and what they have. */
void call_watch_repeat(struct call_env *env, struct str session_id);

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

/* One receiver of a call's events. Embedded in its owner; the fields below `stream` are call's. */
struct call_listener {
    const struct answer_sink *sink;
    void *ctx;
    bool stream;
    struct model_call *model_call; /* NULL: not attached (any more) */
    struct call_listener *next;
    struct loop_timer keepalive;
};

struct call_input {
    struct str session_id;
    const struct chat_request *req; /* in the arena */
    const struct json *body;        /* the client's own request, in the arena */
    uint64_t body_hash[2];
    uint64_t body_bytes;
    uint64_t work_hash;     /* of the body as it came: work_note */
    struct log_scope scope; /* strings in the arena */
    const char *dialect;
    struct str asked[2]; /* for session_call_input.asked and told.asked; opaque */
};

/* Starts a call; the arena becomes the call's. Events may come from inside this call. */
void model_call_start(struct call_env *env, struct arena *arena, const struct call_input *in,
                      struct call_listener *l);

/* A running call that a request with this body and Idempotency-Key (or none) may repeat: the oldest
 * whose listeners are all `gone`, if it has any; with gone NULL the oldest of all. Calls with
 * another key are others'. NULL: none. */
struct model_call *model_call_find(struct call_env *env, const struct call_input *in,
                                   bool (*gone)(struct call_listener *l));

/* The listener gets all that came so far, then what follows. */
void model_call_join(struct model_call *t, struct call_listener *l);

/* The listener's client has left. Not attached: nothing. */
void model_call_leave(struct call_listener *l);

/* The session was ended: its calls fail with ERR_SESSION_ENDED, their engine requests are
 * aborted. */
void model_call_end_session(struct call_env *env, struct str session_id);

/* Ends all calls (shutdown): they fail with ERR_DRAINING. */
void model_call_end_all(struct call_env *env);

/* Which members of a dialect's requests the engines obey, because they get them as they are. NULL:
 * none. */
member_taken_fn call_upstream_takes(const struct call_env *env, const char *dialect);

/* What pictures a request may bring now: without an engine that can be asked with them, none. */
struct image_rules call_image_rules(const struct call_env *env);

/* The context length that calls are held to: the model's, else what the engines tell; 0: unknown.
 */
uint32_t call_context_length(const struct call_env *env);

/* Tells the number of prompt tokens that the request would have, without a call, or e why not; the
 * arena is given back with it, and freed afterwards unless it was taken. */
typedef void (*token_count_fn)(void *ctx, struct arena *arena, size_t n, const struct err *e);

/* NULL: it was told already. The arena becomes the count's until then. */
struct token_count *call_count_tokens(struct call_env *env, struct arena *arena,
                                      const struct call_input *in, token_count_fn fn, void *ctx);

/* Nobody wants to know any more. NULL is fine. */
void token_count_drop(struct token_count *c);

/* Helper threads for long work (work.h): with 0 of them all is done on the spot. on_lost (with
 * env): n threads in all were evicted. */
int call_helpers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                       void (*on_lost)(void *env, unsigned n), struct err *e);

/* Ends the threads, and drops what was dropped. How many threads do not end: then the process must
 * leave by _exit and free nothing that a request uses. */
unsigned call_helpers_end(struct call_env *env);

/* Once a second: so many bytes are held by requests and sessions. When much less is held for some
 * seconds than was before, a helper gives the system back what lies free in the heap. */
void call_memory_held(struct call_env *env, uint64_t bytes);

#endif
