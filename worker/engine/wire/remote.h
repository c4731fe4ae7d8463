/*
 * struct remote: a replica reached over HTTP, and struct wire: what is particular to one kind of
 * engine. remote does what sglang, vllm, llamacpp and openai share: sending, reading the answer as
 * it comes (one JSON document, or an event stream of them), errors, aborts, health. A wire writes
 * the request and picks the answer's fields. It knows nothing of sessions or other replicas.
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

/* One request as a wire writes it. */
struct wire_send {
    const char *path;
    struct buf body;
    VEC(struct http_insert) inserts; /* pictures, which are not copied into it */
    struct buf id; /* the end of the id that the answer returns; empty: remote_rid's */
    bool stream;
};

/* What an engine tells of itself. */
struct engine_facts {
    uint8_t mode;            /* of its streams: enum reply_mode (wire_reply.h) */
    uint32_t context_length; /* 0: not told */
    uint64_t kv_capacity;    /* tokens of its KV cache, 0: not told here; */
    uint64_t kv_unit;        /* of which a session takes no less than so many */
    uint32_t ranks;          /* copies of the model in it, each with a cache; 0: one, or not told */
    bool by_session;         /* it keeps what it computed by sessions */
    bool by_priority;        /* its scheduler goes by priorities, */
    bool low_first;          /* of which the lowest comes first */
    bool budgets;            /* it ends thoughts by their number of tokens */
    bool rust_front;         /* its answers may leave out what its kind tells */
    bool says_rust;          /* it names itself a Rust front */
    bool ignores_seeds;      /* it says so */
    const char *other_kind;  /* what it is instead of its kind; NULL: nothing shows that */
    const char *half;        /* "prefill" or "decode": it is one side of a split; NULL: whole */
    uint16_t bootstrap_port; /* where a prefill half waits for the other */
    enum engine_lora lora;   /* UNTOLD: nothing, as older ones, which refuse what they cannot do */
};

/* Whether an engine has a field for max_thinking_tokens: none; one that counts when the server was
 * started for it, which its facts tell; one that a server which was not refuses by its name. */
enum wire_budget { WIRE_BUDGET_NONE, WIRE_BUDGET_TOLD, WIRE_BUDGET_TRIED };

/* A member that is NULL or 0 means that the kind has no such feature. Each kind needs `write`, and
 * `text`, or `fields` with `scalar`. Engines are probed at /health. */
struct wire {
    const struct field *fields;
    size_t n_fields;
    uint8_t stream_mode; /* of its streams (enum reply_mode), unknown: see detect_mode */

    /* Path asked once, when the engine is first seen well, and what its answer says. NULL: none. */
    const char *info;
    void (*take_info)(const struct json *info, struct engine_facts *ret);

    /* Path whose answer has the member `rust_member` if a Rust front serves. NULL: info says it. */
    const char *version, *rust_member;

    /* Path that tells {"weight_version"} of what samples now, where answers do not. NULL: none. */
    const char *weights;

    /* Path that tells of the KV cache in Prometheus' text (kv_told.h). NULL: the facts have it. */
    const char *kv;

    /* Fills s; route is what `choose_route` settled on. */
    void (*write)(const struct remote *r, const struct engine_request *q, struct wire_send *s);

    /* A field's scalar; the end of a document, before its tokens are taken over (or NULL). */
    void (*scalar)(struct reply *y, int id, const struct json_scan *s, struct str key);
    void (*end_event)(struct reply *y);

    /* The answer has ended: last look at finish and experts; -1 ERR_ENGINE_INVALID. NULL: none. */
    int (*complete)(struct reply *y, const struct engine_request *q, struct err *e);

    /* Writes the abort call of a request id, or NULL: closing the connection is enough. `returned`:
     * the id as the engine returned it; absent: it has not yet. */
    void (*abort)(const struct remote *r, struct str rid, struct str returned, struct wire_send *s);

    /* Writes the call that ends a session (facts.by_session). NULL: there is none. */
    void (*end_session)(struct str session_id, struct wire_send *s);

    /* Kinds of chat, without fields: one document, a chunk (out->stream) or the whole answer. Its
     * messages are appended to out, and *d gets its logprobs. NULL: none. text_end: nothing more
     * comes. */
    int (*text)(struct reply *y, struct upstream_text *t, const struct json *doc,
                const struct upstream_out *out, struct engine_delta *d, struct err *e);
    int (*text_end)(const struct remote *r, struct reply *y, const struct engine_request *q,
                    struct err *e);

    /* Writes one call that tells the logprob of one token, and where it stands in the answer
     * (SCORE_FIELD_*). NULL: the engine leaves none out. */
    void (*write_score)(const struct score_ask *ask, struct wire_send *s);
    const struct field *score_fields;
    size_t n_score_fields;

    /* Header that names the data-parallel rank of a call: "name: ". NULL: `write` does. */
    const char *rank_header;

    bool sends_request_id;      /* servers and routers take the header x-request-id for it */
    bool aborts_by_first_route; /* its other routes have no call that aborts a request */
    bool may_ignore_lora;       /* a server that was not started for adapters ignores their names */
    enum wire_budget budget;
    enum logprob_basis basis;           /* what it gives as long as nobody tells otherwise */
    enum logprob_basis asks_of_support; /* as asks_basis, of requests that want the support */
    bool
        experts_in_pieces; /* each event brings those of what is new in it, in .npy files (npy.h) */
    bool echoes_images;    /* asked with images it echoes the prompt's ids */
    bool tells_all;        /* answers have the weights' version and cached tokens */
    bool silent_abort;     /* a stream that ends properly without a finish was aborted */
    unsigned routes;       /* ways to ask, tried in turn when one is not found (404, 405); 0: one */
};

/* Field ids that remote handles for every wire (arrays go to their places in struct reply). */
enum {
    FIELD_ID_IDS = 1,
    FIELD_ID_TRIPLES,  /* logprobs with ids */
    FIELD_ID_TOPS,     /* triples of one position's alternatives */
    FIELD_ID_POSITION, /* mark: alternatives that come are those of another position */
    FIELD_ID_TOP,      /* mark: one alternative of it */
    FIELD_ID_EXPERTS,  /* base64 */
    FIELD_ID_INDEXER,  /* base64 */
    FIELD_ID_INDEXER_LAYERS,
    FIELD_ID_SUPPORT,          /* ids: the sampling support of one token */
    FIELD_ID_SUPPORT_LOGPROBS, /* theirs, one by one or as an array for each token */
    FIELD_ID_SUPPORT_LOGPROB,
    FIELD_ID_SUPPORT_SAMPLED, /* a number: that of the sampled token alone */
    FIELD_ID_PROMPT_ECHO,     /* ids of the prompt: counted */
    FIELD_ID_PROMPT_TOKENS,
    FIELD_ID_CACHED, /* how many of them the engine had computed before */
    FIELD_ID_COMPLETION_TOKENS,
    FIELD_ID_FINISH,
    FIELD_ID_LOGPROB,  /* of the sampled token, one by one */
    FIELD_ID_LOGPROBS, /* all of them */
    FIELD_ID_ENTRIES,  /* marks: a list of entries (entries.h), one of them, its alternatives */
    FIELD_ID_ENTRY,
    FIELD_ID_ENTRY_TOPS,
    FIELD_ID_SPECULATES,   /* mark: counts of speculative decoding */
    FIELD_ID_ANSWER,       /* the id of the request that is answered, maybe behind a prefix */
    FIELD_ID_SPAN_VERSION, /* members of a span of weight versions, in any order */
    FIELD_ID_SPAN_START,
    FIELD_ID_SPAN_END,
    FIELD_ID_ERROR, /* "error" itself: a text or the way to the next three */
    FIELD_ID_ERROR_MESSAGE,
    FIELD_ID_ERROR_CODE,
    FIELD_ID_ERROR_TYPE,
    FIELD_ID_WIRE = 100, /* the wire's own start here */
};

/* What adapters (adapter.h) of engines over HTTP are made of, each as the member of struct
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

/* For wires: the settings, borrowed. */
const struct engine_options *remote_options(const struct remote *r);

/* Which of the wire's ways to ask is used now: 0, 1 .. below wire->routes. */
unsigned remote_route(const struct remote *r);

/* Whether streams of the engine have been seen without the routed experts that they were asked for,
 * and it is not known yet that other answers have none either. */
bool remote_streams_lose_experts(const struct remote *r);

/* Whether the engine answers wire->weights. */
bool remote_tells_weights(const struct remote *r);

/* What the engine has told of itself. */
const struct engine_facts *remote_facts(const struct remote *r);

/* Which of the engine's data-parallel ranks keeps the session; -1: it has no several, has refused
 * one, or the session says itself. */
int64_t remote_rank_of(const struct remote *r, const struct engine_request *q);

/* Whether a request's max_thinking_tokens goes along: there is one, a thought that it can end, and
 * an engine that would. */
bool remote_gives_budget(const struct remote *r, const struct engine_request *q);

/* The --engine that this is. */
const struct engine_target *remote_target(const struct remote *r);

/* Takes a context length that an engine tells, when v is one. */
void remote_take_context(const struct json *v, struct engine_facts *ret);

/* Whether the address ends in /v1. */
bool remote_has_v1(const struct remote *r);

/* `<session>:<call>.<answer>.<attempt>.`: ends in '.', so that none is the start of another. */
void remote_rid(struct buf *b, const struct engine_request *q);

/* Whether an id ends like remote_rid's, of whatever session. */
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
