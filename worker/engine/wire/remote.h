/*
 * struct remote: a replica over HTTP, and struct wire: the peculiarities of one kind of engine.
 * remote does what sglang, vllm, llamacpp and openai have in common: sending, reading the answer as
 * it comes (one JSON document, or an event stream of them), errors, aborts, health. A wire writes
 * the request and reads the answer's fields. It knows nothing of sessions or other replicas.
 */
#ifndef RG_WIRE_REMOTE_H
#define RG_WIRE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/vec.h"
#include "worker/engine/pool/adapter.h"

struct engine_pass;
struct engine_pass_events;
struct field;
struct http_insert;
struct json;
struct json_scan;
struct loop;
struct remote;
struct reply;
struct score_ask;
struct upstream_out;
struct upstream_text;

/* One request as written by a wire. */
struct wire_send {
    const char *path;
    struct buf body;
    VEC(struct http_insert) inserts; /* pictures, which are not copied into the body */
    struct buf id; /* end of the id that the answer returns: that of remote_rid before `write` */
    bool stream;
};

/* An engine's report about itself. */
struct engine_facts {
    uint8_t mode;            /* how its streams count: enum reply_mode (wire_reply.h) */
    uint32_t context_length; /* 0: not reported */
    uint64_t kv_capacity;    /* tokens of its KV cache; 0: not reported here */
    uint64_t kv_unit;        /* least tokens that a session uses */
    /* copies of the model in it, each with a cache; 0: one, or not reported */
    uint32_t ranks;
    bool by_session;         /* the engine keeps computed prompts by session */
    bool by_priority;        /* the engine's scheduler uses priorities */
    bool low_first;          /* the lowest priority comes first */
    bool budgets;            /* the engine ends thoughts by their number of tokens */
    bool rust_front;         /* answers of this engine may lack data that its kind returns */
    bool says_rust;          /* the engine reports that it is a Rust front */
    bool ignores_seeds;      /* the engine reports that it ignores seeds */
    const char *other_kind;  /* real kind of the engine; NULL: nothing shows a different kind */
    const char *half;        /* "prefill" or "decode": half of a split; NULL: whole */
    uint16_t bootstrap_port; /* port at which a prefill half waits for the other */
    /* UNTOLD: no report, as of older ones, which refuse unsupported requests */
    enum engine_lora lora;
};

/* Whether an engine has a field for max_thinking_tokens. NONE: it has not. TOLD: the field works if
 * the server was started for it, which its facts show. TRIED: a server that was not started for it
 * refuses the field by its name. */
enum wire_budget { WIRE_BUDGET_NONE, WIRE_BUDGET_TOLD, WIRE_BUDGET_TRIED };

/* A member that is NULL or 0 means that the kind has no such feature. Each kind needs `write`, and
 * either `text`, or `fields` with `scalar`. Engines are probed at /health. */
struct wire {
    const struct field *fields;
    size_t n_fields;
    uint8_t stream_mode; /* how its streams count (enum reply_mode); unknown: see detect_mode */

    /* Path that is asked once, when the engine is first up; the next member reads its answer. NULL:
     * none. */
    const char *info;
    void (*take_info)(const struct json *info, struct engine_facts *ret);

    /* Path whose answer has the member `rust_member` if a Rust front serves. NULL: `info` shows
     * it. */
    const char *version, *rust_member;

    /* Path that returns {"weight_version"} of the present weights, if answers do not. NULL: none.
     */
    const char *weights;

    /* Path that reports the KV cache in Prometheus' text format (kv_told.h). NULL: the facts have
     * it. */
    const char *kv;

    /* fills s; the route is remote_route */
    void (*write)(const struct remote *r, const struct engine_request *q, struct wire_send *s);

    /* Handles a field's scalar. The next function handles the end of a document, before its tokens
     * are moved (or NULL). */
    void (*scalar)(struct reply *y, int id, const struct json_scan *s, struct str key);
    void (*end_event)(struct reply *y);

    /* last check of finish and experts after the end of the answer; -1 with ERR_ENGINE_INVALID.
     * NULL: none */
    int (*complete)(struct reply *y, const struct engine_request *q, struct err *e);

    /* Writes the abort call of a request id; NULL: closing the connection is enough. `returned`:
     * the id as the engine returned it; absent: not yet. */
    void (*abort)(const struct remote *r, struct str rid, struct str returned, struct wire_send *s);

    /* writes the call that ends a session (facts.by_session). NULL: there is none */
    void (*end_session)(struct str session_id, struct wire_send *s);

    /* For chat kinds, without fields: handles one document, a chunk (out->stream) or the whole
     * answer. Its messages are appended to out, and *d gets its logprobs. NULL: none. text_end: no
     * further document comes. */
    int (*text)(struct reply *y, struct upstream_text *t, const struct json *doc,
                const struct upstream_out *out, struct engine_delta *d, struct err *e);
    int (*text_end)(const struct remote *r, struct reply *y, const struct engine_request *q,
                    struct err *e);

    /* writes one call that returns the logprob of one token at its position in the answer
     * (SCORE_FIELD_*). NULL: the engine leaves out none */
    void (*write_score)(const struct score_ask *ask, struct wire_send *s);
    const struct field *score_fields;
    size_t n_score_fields;

    /* Header with the data-parallel rank of a call: "name: ". NULL: `write` adds the rank. */
    const char *rank_header;

    bool sends_request_id;      /* servers and routers accept the id in the header x-request-id */
    bool aborts_by_first_route; /* only its first route has a call that aborts a request */
    bool may_ignore_lora;       /* a server that was not started for adapters ignores their names */
    enum wire_budget budget;
    enum logprob_basis basis;           /* basis of its logprobs unless it is reported */
    enum logprob_basis asks_of_support; /* like asks_basis, for requests that want the support */
    bool
        experts_in_pieces; /* each event has the experts of its new tokens, in .npy files (npy.h) */
    bool echoes_images;    /* if it is asked with images it returns the prompt's ids */
    bool tells_all;        /* answers have the weights' version and the number of cached tokens */
    bool silent_abort;     /* a stream that ends properly without a finish was aborted */
    /* number of routes, tried in turn if one is not found (404, 405); 0: one */
    unsigned routes;
};

/* Field ids that remote handles for every wire (arrays go to their members of struct reply). */
enum {
    FIELD_ID_IDS = 1,
    FIELD_ID_TRIPLES,  /* logprobs with ids */
    FIELD_ID_TOPS,     /* triples of the alternatives at one position */
    FIELD_ID_POSITION, /* mark: following alternatives are those of a new position */
    FIELD_ID_TOP,      /* mark: one alternative of the position */
    FIELD_ID_EXPERTS,  /* base64 of the rows */
    FIELD_ID_INDEXER,  /* base64 of the rows */
    FIELD_ID_INDEXER_LAYERS,
    FIELD_ID_SUPPORT, /* ids: the sampling support of one token */
    /* logprobs of the support, one by one or as an array for each token */
    FIELD_ID_SUPPORT_LOGPROBS,
    FIELD_ID_SUPPORT_LOGPROB,
    FIELD_ID_SUPPORT_SAMPLED, /* a number: logprob of the sampled token only */
    FIELD_ID_PROMPT_ECHO,     /* ids of the prompt, which are counted */
    FIELD_ID_PROMPT_TOKENS,
    FIELD_ID_CACHED, /* number of prompt ids that the engine had computed before */
    FIELD_ID_COMPLETION_TOKENS,
    FIELD_ID_FINISH,
    FIELD_ID_LOGPROB,  /* logprob of the sampled token, one by one */
    FIELD_ID_LOGPROBS, /* logprobs of all sampled tokens */
    FIELD_ID_ENTRIES,  /* marks: a list of entries (entries.h), one entry, its alternatives */
    FIELD_ID_ENTRY,
    FIELD_ID_ENTRY_TOPS,
    FIELD_ID_SPECULATES,   /* mark: counts of speculative decoding */
    FIELD_ID_ANSWER,       /* id of the answered request, perhaps after a prefix */
    FIELD_ID_SPAN_VERSION, /* members of a span of weight versions, in any order */
    FIELD_ID_SPAN_START,
    FIELD_ID_SPAN_END,
    FIELD_ID_ERROR, /* "error" itself: a text, or an object with the next three */
    FIELD_ID_ERROR_MESSAGE,
    FIELD_ID_ERROR_CODE,
    FIELD_ID_ERROR_TYPE,
    FIELD_ID_WIRE = 100, /* ids of the wire itself start here */
};

/* Functions for the adapters (adapter.h) of engines over HTTP. Each is the member of struct
 * engine_adapter with that name (REMOTE_FUNCTIONS). */
int remote_open(const struct engine_adapter *kind, struct loop *loop, const struct engine_target *t,
                const struct engine_options *o, void **ret, struct err *e);
void remote_reload(void *replica);
void remote_close(void *replica);
void *remote_start(void *replica, const struct engine_request *q,
                   const struct engine_attempt_events *events, void *ctx);
void remote_cancel(void *attempt);
void remote_probe(void *replica, void (*answer)(void *ctx, enum engine_health h), void *ctx);
void remote_look_at_kv(void *replica, void (*told)(void *ctx, const struct engine_kv *kv),
                       void *ctx);
uint32_t remote_context(const void *replica);
enum logprob_basis remote_basis(const void *replica);
bool remote_budgets(const void *replica);
enum engine_lora remote_lora(const void *replica);
enum engine_half remote_half(const void *replica);
struct engine_pairing remote_pairing(const void *replica, const struct engine_request *q);
void remote_describe(const void *replica, struct json_out *o);
uint32_t remote_lacks(const void *replica);
void remote_note_ignored(void *replica, const char *field);
void remote_end_session(void *replica, struct str session_id);
void *remote_pass(void *replica, const struct engine_pass *p,
                  const struct engine_pass_events *events, void *ctx);
void remote_pass_cancel(void *passed);
void remote_pass_pause(void *passed);
void remote_pass_resume(void *passed);

/* Returns the settings, borrowed. For wires. */
const struct engine_options *remote_options(const struct remote *r);

/* Returns the present route: 0, 1 .. below wire->routes. */
unsigned remote_route(const struct remote *r);

/* Reports whether streams of the engine have lacked the routed experts that they were asked for,
 * while other answers may have them. */
bool remote_streams_lose_experts(const struct remote *r);

/* Reports whether the engine answers wire->weights. */
bool remote_tells_weights(const struct remote *r);

/* Returns the engine's report about itself. */
const struct engine_facts *remote_facts(const struct remote *r);

/* Returns the data-parallel rank that keeps the session; -1: it has only one, has refused one, or
 * the session names one itself. */
int64_t remote_rank_of(const struct remote *r, const struct engine_request *q);

/* Reports whether a request's max_thinking_tokens is sent: there is one, a thought that it can end,
 * and an engine that supports it. */
bool remote_gives_budget(const struct remote *r, const struct engine_request *q);

/* Returns the --engine argument of this replica. */
const struct engine_target *remote_target(const struct remote *r);

/* Stores a context length that an engine reports, if v is one. */
void remote_take_context(const struct json *v, struct engine_facts *ret);

/* Reports whether the address ends in /v1. */
bool remote_has_v1(const struct remote *r);

/* Appends `<session>:<call>.<answer>.<attempt>.`. It ends in '.', so that no id is the start of a
 * different one. */
void remote_rid(struct buf *b, const struct engine_request *q);

/* Reports whether an id has the form of remote_rid, for any session. */
bool remote_is_rid(struct str id);

#define REMOTE_FUNCTIONS                                                                         \
    .open = remote_open, .reload = remote_reload, .close = remote_close, .start = remote_start,  \
    .cancel = remote_cancel, .probe = remote_probe, .look_at_kv = remote_look_at_kv,             \
    .context = remote_context, .basis = remote_basis, .budgets = remote_budgets,                 \
    .lora = remote_lora, .half = remote_half, .pairing = remote_pairing,                         \
    .end_session = remote_end_session, .describe = remote_describe, .lacks = remote_lacks,       \
    .note_ignored = remote_note_ignored, .pass = remote_pass, .pass_cancel = remote_pass_cancel, \
    .pass_pause = remote_pass_pause, .pass_resume = remote_pass_resume

#endif
