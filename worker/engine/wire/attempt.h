/*
 * One attempt at a replica over HTTP, and the replica itself: internal to remote.c and attempt.c.
 */
#ifndef RG_WIRE_ATTEMPT_H
#define RG_WIRE_ATTEMPT_H

#include "common/base/buf.h"
#include "common/base/list.h"
#include "worker/engine/wire/remote.h"

struct engine_options;
struct http1_head;
struct http_request;
struct session_ends;
struct aside; /* a small call on the side */
struct form_probe;

/* Where the routed experts are missing that were asked for. */
enum experts_lost { EXPERTS_COME, EXPERTS_LOST_BY_STREAMS, EXPERTS_LOST };

/* Bits of an engine's `lacks` (engine_lacks.def): LACKS_X is the bit of X. */
enum lack_number {

#define X(name, text) LACK_NUMBER_##name,
#include "common/proc/engine_lacks.def"
#undef X
};

enum {

#define X(name, text) LACKS_##name = 1 << LACK_NUMBER_##name,
#include "common/proc/engine_lacks.def"
#undef X
    LACKS_OF_ANSWERS = LACKS_STOP - 1
};

/* What of a request an engine may refuse, and is then asked without. */
struct asked_by {
    bool budget; /* to end its thought by */
    bool rank;   /* by a header */
};

struct remote {
    const struct engine_adapter *adapter;
    const struct wire *wire; /* the adapter's */
    struct loop *loop;
    const struct engine_target *target;
    const struct engine_options *options;
    struct http_client *client;
    struct buf auth;               /* header line with the key, or empty */
    struct list_head asides;       /* small calls that are out */
    struct session_ends *ends;     /* session ends that must be sent */
    struct form_probe *form;       /* under way, or NULL: form_probe.h */
    struct kind_probe *kind_probe; /* under way, or NULL: kind_probe.h */
    const char *other_kind;        /* kind that it really is, or NULL; in the log */
    unsigned route;                /* index in wire->routes of the route that the engine has */
    bool route_sure;
    bool informed; /* wire->info was answered */
    struct engine_facts facts;
    enum logprob_basis given; /* the basis that the last answer told; BASIS_UNKNOWN: none did */
    enum experts_lost experts_lost;
    unsigned lacks;         /* LACKS_*; each is in the log once */
    bool tells_weights;     /* wire->weights was answered */
    bool tells_spans;       /* so does its last answer, by itself: wire->weights is not asked */
    bool lacks_aborts;      /* it has no route for wire->abort */
    unsigned echoes;        /* by route and form (remote_echoes): which answers return the id */
    bool refuses_budgets;   /* it has refused max_thinking_tokens, which is in the log */
    int64_t refused_budget; /* a max_thinking_tokens that it has refused for its value; -1: none */
    bool refuses_ranks;     /* it has refused a data-parallel rank, likewise */
    bool scores;            /* it has left logprobs out, which is in the log */
    /* Who asked for the KV cache before wire->info was answered, or NULL. */
    void (*kv_told)(void *ctx, const struct engine_kv *kv);
    void *kv_ctx;
    /* The caller of the probe that waits until the kind is known, or NULL. */
    void (*health_told)(void *ctx, enum engine_health h);
    void *health_ctx;
    bool away;         /* the last probe's answer was an error */
    bool probe_failed; /* the last one; its reason is in the log */
};

/* Whether answers have the basis of their logprobs: it is asked for. The setting does not count. */
bool remote_tells_basis(const struct remote *r);

/* A request's max_thinking_tokens; -1: it has none. */
int64_t remote_budget_of(const struct engine_request *q);

/* Asks for the version of the weights, when the engine tells it; `told` comes once, later, with an
 * absent version when there was no answer. NULL: it does not tell. */
struct aside *remote_ask_weights(struct remote *r, void (*told)(void *ctx, struct str version),
                                 void *ctx);

/* Records what an engine lacks, and logs what of it is new. */
void remote_note_lacks(struct remote *r, unsigned lacks);

/* attempt_notes.c: notes the basis of a whole answer's logprobs, and what it should have told and
 * did not. events: it came as an event stream. */
void remote_note_answer(struct remote *r, const struct engine_request *q, const struct reply *y,
                        enum logprob_basis basis, bool events);

/* Whether answers of this form (streams or documents, by the route of now) have returned the id of
 * their request: then each must. */
bool remote_echoes(const struct remote *r, bool events);
void remote_note_echo(struct remote *r, bool events, bool echoed);

/* An answer is another request's: logs it and closes the connections that may hold more of the
 * kind. The engine may have been replaced by one that returns no ids, so whether it does is learned
 * again. */
void remote_note_stray(struct remote *r, struct str session_id, struct str id);

/* Notes whether a whole answer has spans of weight versions, before any are made for it. */
void remote_note_spans(struct remote *r, const struct reply *y);

/* The same when the versions before and after an answer are not one. */
void remote_note_versionless(const struct remote *r, struct str before, struct str after);

/* The same when logprobs that the answer left out are to be asked for. */
void remote_note_scoring(struct remote *r, const struct reply *y);

/* Says in the log what the engine has told of itself, if it has told anything. */
void remote_note_facts(const struct remote *r);

/* Takes what the engine tells of itself. Text that is not JSON says nothing, nor does text that has
 * no end within ENGINE_INFO_MAX. */
void remote_read_info(struct remote *r, struct str text);

/* Logs a Rust front, and records what it is known to ignore. */
void remote_note_front(struct remote *r);

/* Whether the settings ask for routed experts, and how long they let a request take. */
bool remote_asks_experts(const struct remote *r);
void remote_patience(const struct remote *r, struct http_request *h);

/* Ends a small call on the side; its owner hears nothing. */
void aside_cancel(struct aside *a);

/* attempt_status.c: the status of an answer's head. Of 200, *ret_events tells an event stream from
 * a document, and e (ERR_ENGINE_INVALID) another type; the route is known to be there. */
int remote_status(struct remote *r, const struct http1_head *h, bool *ret_events, struct err *e);

/* What a further try is worth behind an answer of that status, not 200; e says what was wrong. The
 * replica is asked by another route, or without what it was asked by (budget, rank), from then on
 * where that is the reason. */
enum engine_failure remote_refused(struct remote *r, const struct engine_request *q, int status,
                                   struct str body, struct asked_by by, struct err *e);

/* The same by status and words alone. */
enum engine_failure remote_judge(const struct remote *r, int64_t status, struct str text,
                                 struct err *e);

/* Notes that it refuses to score a token (scoring.h), with the status and the words. */
void remote_note_score_refused(const struct remote *r, int64_t status, struct str text);

/* Notes an engine's own words in the log. */
void remote_log_words(const struct remote *r, int64_t status, struct str text);

/* Header lines every request to the replica has; absent values are left out. */
void remote_headers(const struct remote *r, struct buf *b, struct str session_id,
                    struct str content_type, struct str accept);

/* Adds a header line without the bytes of its value that could end it. */
void remote_add_header(struct buf *b, const char *name, struct str value);

/* Tells the engine to give up the request, where there is a call for it. returned: its id as the
 * engine returned it, or absent. */
void remote_abort(struct remote *r, const struct engine_request *q, struct str returned);

#endif
