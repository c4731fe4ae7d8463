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
struct aside; /* a small call other than an attempt */
struct form_probe;

/* Which answers lack the routed experts that were asked for. */
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

/* Fields of a request that an engine may refuse, so that it is asked again without them. */
struct asked_by {
    bool budget; /* a limit for the thought */
    bool rank;   /* a data-parallel rank, in a header */
};

struct remote {
    const struct engine_adapter *adapter;
    const struct wire *wire; /* wire of the adapter */
    struct loop *loop;
    const struct engine_target *target;
    const struct engine_options *options;
    struct http_client *client;
    struct buf auth;               /* header line with the key, or empty */
    struct list_head asides;       /* pending small calls */
    struct session_ends *ends;     /* ends of sessions that must be sent */
    struct form_probe *form;       /* in progress, or NULL (form_probe.h) */
    struct kind_probe *kind_probe; /* in progress, or NULL (kind_probe.h) */
    const char *other_kind;        /* kind that the engine really is, which was logged; or NULL */
    unsigned route;                /* index in wire->routes of the route that the engine has */
    bool route_sure;
    bool informed; /* wire->info was answered */
    struct engine_facts facts;
    enum logprob_basis given; /* basis reported by the last answer; BASIS_UNKNOWN: none was */
    enum experts_lost experts_lost;
    unsigned lacks;     /* bits LACKS_*; each was logged once */
    bool tells_weights; /* wire->weights was answered */
    /* the last answer had the versions of its tokens, so wire->weights is not asked */
    bool tells_spans;
    bool lacks_aborts;      /* the engine has no route for wire->abort */
    unsigned echoes;        /* bits by route and form (remote_echoes): answers that return the id */
    bool refuses_budgets;   /* the engine has refused max_thinking_tokens, which was logged */
    int64_t refused_budget; /* a refused value of max_thinking_tokens; -1: none */
    bool refuses_ranks;     /* the engine has refused a data-parallel rank, which was logged */
    bool scores;            /* the engine omits logprobs, so each is requested separately; logged */
    /* Caller that asked for the KV cache before wire->info was answered, or NULL. */
    void (*kv_told)(void *ctx, const struct engine_kv *kv);
    void *kv_ctx;
    /* Caller of the probe, which waits until the kind is known; or NULL. */
    void (*health_told)(void *ctx, enum engine_health h);
    void *health_ctx;
    bool away;         /* the last probe's answer was an error */
    bool probe_failed; /* the last probe failed, and its reason was logged */
};

/* Reports whether requests ask for the basis of logprobs, so that answers contain it. The setting
 * does not count. */
bool remote_tells_basis(const struct remote *r);

/* Returns a request's max_thinking_tokens; -1: it has none. */
int64_t remote_budget_of(const struct engine_request *q);

/* Asks for the version of the weights, if the engine reports it. `told` comes once, later, with an
 * absent version if there was no answer. Returns NULL if the engine does not report it. */
struct aside *remote_ask_weights(struct remote *r, void (*told)(void *ctx, struct str version),
                                 void *ctx);

/* Records what an engine lacks, and logs what is new. */
void remote_note_lacks(struct remote *r, unsigned lacks);

/* attempt_notes.c: records the basis of a whole answer's logprobs, and the data that it should have
 * and does not. events: it was an event stream. */
void remote_note_answer(struct remote *r, const struct engine_request *q, const struct reply *y,
                        enum logprob_basis basis, bool events);

/* Reports whether answers of this form (streams or documents, on the present route) have returned
 * the id of their request. If so, each must. */
bool remote_echoes(const struct remote *r, bool events);
void remote_note_echo(struct remote *r, bool events, bool echoed);

/* Handles an answer that belongs to a different request: logs it and closes the connections that
 * may have more of them. The engine may have been replaced by one that returns no ids, so that is
 * learned again. */
void remote_note_stray(struct remote *r, struct str session_id, struct str id);

/* Records whether a whole answer has spans of weight versions. Call it before spans are made for
 * the answer. */
void remote_note_spans(struct remote *r, const struct reply *y);

/* Logs, once, that the versions before and after an answer differ. */
void remote_note_versionless(const struct remote *r, struct str before, struct str after);

/* Logs, once, that logprobs which the answer left out are requested separately. */
void remote_note_scoring(struct remote *r, const struct reply *y);

/* Logs that a helper thread which reads an answer hangs. */
void remote_note_hung(void);

/* Logs what the engine has reported about itself, if anything. */
void remote_note_facts(const struct remote *r);

/* Reads the engine's report about itself. Text that is not JSON, or that has no end within
 * ENGINE_INFO_MAX, is ignored. */
void remote_read_info(struct remote *r, struct str text);

/* Logs a Rust front, and records which fields it is known to ignore. */
void remote_note_front(struct remote *r);

/* The first function reports whether the settings ask for routed experts; the second returns how
 * long a request may take. */
bool remote_asks_experts(const struct remote *r);
void remote_patience(const struct remote *r, struct http_request *h);

/* Cancels a small call, without an event. */
void aside_cancel(struct aside *a);

/* attempt_status.c: judges the status of an answer's head. For 200, *ret_events distinguishes an
 * event stream from a document, and e (ERR_ENGINE_INVALID) reports a different type. Then the route
 * is known to exist. */
int remote_status(struct remote *r, const struct http1_head *h, bool *ret_events, struct err *e);

/* Returns whether a further attempt is useful after an answer with that status (not 200); e has the
 * error. If a route or a field (budget, rank) was the reason, the replica is asked by a different
 * route, or without the field, from then on. */
enum engine_failure remote_refused(struct remote *r, const struct engine_request *q, int status,
                                   struct str body, struct asked_by by, struct err *e);

/* Like remote_refused, by status and text alone. */
enum engine_failure remote_judge(const struct remote *r, int64_t status, struct str text,
                                 struct err *e);

/* Records that it refuses to score a token (scoring.h), with the status and the text. */
void remote_note_score_refused(const struct remote *r, int64_t status, struct str text);

/* Logs the engine's own text. */
void remote_log_words(const struct remote *r, int64_t status, struct str text);

/* Appends the header lines that every request to the replica has. Absent values are left out. */
void remote_headers(const struct remote *r, struct buf *b, struct str session_id,
                    struct str content_type, struct str accept);

/* Appends a header line, without bytes of the value that could end it. */
void remote_add_header(struct buf *b, const char *name, struct str value);

/* Aborts the request at the engine, if there is a call for that. returned: its id as the engine
 * returned it, or absent. */
void remote_abort(struct remote *r, const struct engine_request *q, struct str returned);

#endif
