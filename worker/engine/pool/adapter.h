/*
 * struct engine_adapter: the functions that one kind of engine provides to the pool: replicas and
 * attempts. The pool has everything common to all kinds: queueing, affinity, health, retries before
 * the first byte, splicing of engine-side aborts, checks of the answer, weight versions. An adapter
 * implements one wire format and knows nothing of sessions or other replicas.
 *
 * A new kind needs a row of engine_kinds.def, and a file with engine_<kind>; the help of --engine
 * names it. For an engine over HTTP the file has a struct wire (../wire/remote.h) and
 * REMOTE_FUNCTIONS: see ../wire/llamacpp.c. A member that is not set means that the kind has no
 * such feature.
 */
#ifndef RG_ENGINE_ADAPTER_H
#define RG_ENGINE_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/engine/pool/engine.h"

struct engine_options;
struct engine_pairing;
struct engine_pass;
struct engine_pass_events;
struct json_out;
struct loop;
struct wire;

/* The parsed parts of one --engine argument, [NAME=]KIND:REST[,name=value]... It lives as long as
 * the pool. Whether NAME is the name of a pool depends on the whole set (engine_set.h). */
struct engine_target {
    const char *kind;
    const char *rest; /* URL, or the mode of `builtin` */
    /* name in records and logs: the engine's own, or the argument without options */
    const char *name;
    const char *whole; /* the argument without options */
    const char *label; /* NAME in front of the kind; or NULL */
    const char *own;   /* value of the option name=; or NULL */
    /* name of the pool that is asked with messages, because it has a model of its own; NULL: the
     * policy's */
    const char *pool;
    const char *model;     /* model name in requests; NULL: the pool's name, or the client's */
    uint32_t max_inflight; /* 0: --engine-max-inflight */
    double weight;
    const char *key_file; /* file with the key for requests; or NULL */
    /* "raw", "temperature", "processed": basis for which the server was set up; or NULL */
    const char *logprobs;
    bool priority;       /* vllm: its scheduler uses priorities */
    uint32_t dp_ranks;   /* vllm: number of data-parallel ranks at its address; 0: not given */
    const char *ids_of;  /* openai: "vllm", "sglang" or "sglext", whose request fields ask for ids;
                            or NULL */
    uint64_t delay_ms;   /* builtin: delay before the first token */
    double tokens_per_s; /* builtin: speed; 0: all tokens at once */
};

/* How an attempt failed, which decides whether it is repeated. */
enum engine_failure {
    ENGINE_NO_ANSWER, /* no byte of the answer came: may be repeated */
    /* the engine is still loading its model: handled as if it could not be reached */
    ENGINE_NOT_READY,
    ENGINE_ASK_ANEW, /* the engine needs a different request (other route, other id): repeated at
                        once */
    /* a 5xx of the engine itself, or a cut answer: repeated if the settings say so */
    ENGINE_SAID_5XX,
    /* a 429 of the engine: the call goes to a different replica, else like a 5xx */
    ENGINE_FULL,
    ENGINE_BROKE, /* any later failure, or a refusal: never repeated */
};

/* Result of a health probe. SLOW: no answer within --engine-health-timeout, perhaps because the
 * engine is busy. */
enum engine_health { ENGINE_DOWN, ENGINE_SLOW, ENGINE_UP };

/* Like engine_events, for one attempt. Exactly one of done and failed ends it, never from inside
 * start, never after cancel. */
struct engine_attempt_events {
    void (*delta)(void *ctx, const struct engine_delta *d);
    /* finish may be ENGINE_ABORTED: the engine stopped with r->ids so far */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e, enum engine_failure how);
};

/* Whether a replica samples with the LoRA adapter that a request names. UNTOLD: not reported yet.
 * An engine that ignores the name would sample with the base weights. */
enum engine_lora { LORA_UNTOLD, LORA_NONE, LORA_TAKEN };

/* Which half of a request a replica computes. UNTOLD: not reported yet. */
enum engine_half { HALF_UNTOLD, HALF_WHOLE, HALF_PREFILL, HALF_DECODE };

/* An engine's report of its KV cache, in tokens. */
struct engine_kv {
    uint64_t capacity; /* 0: not reported */
    uint64_t used;     /* used by running requests; 0 if not reported */
    uint64_t unit;     /* least amount that a session uses */
};

/* How a kind returns the logprobs of a whole prompt (../wire/prompt_scores.h). NONE: it does
 * not. */
enum scorer_kind { SCORER_NONE, SCORER_SGLANG, SCORER_VLLM };

/* How a kind of engine handles the fields of sampling_params.engine_extra. Lists are separated by
 * blanks. */
struct engine_extra {
    bool taken; /* false: the kind has no requests of its own */
    bool inner; /* the request has an object "sampling_params", which accepts fields as well */
    /* names that belong to us in the request, or would change what is asked or answered */
    const char *ours, *ours_inner;
};

struct engine_adapter {
    const char *kind;
    /* if it is asked with ids and images, it reports the length of the resulting prompt */
    bool takes_images;
    /* the client's own request is forwarded, so nothing can be enforced here */
    bool passes_request;
    /* types of response_format for which the kind has no field, separated by blanks; NULL: none */
    const char *cannot_enforce;
    /* sampling parameters (sampling_extra) for which the kind has no field; the same form */
    const char *cannot_take;

    /* data of answers that sessions may want kept and the kind cannot return; the same form */
    const char *cannot_tell;

    /* --engine options that other kinds do not have; the same form */
    const char *options;

    const char *lora_field; /* field that names a LoRA adapter; NULL: the kind has none */
    struct engine_extra extra;
    enum scorer_kind scores;
    /* for engines over HTTP (../wire/remote.h); NULL: functions of its own */
    const struct wire *wire;

    /* checks the setting as far as possible without a model. NULL: open and close check it */
    int (*check)(const struct engine_target *t, struct err *e);

    /* Prepares a replica of this kind without connecting. o and t must outlive it. */
    int (*open)(const struct engine_adapter *kind, struct loop *loop, const struct engine_target *t,
                const struct engine_options *o, void **ret, struct err *e);

    /* called when the options, or perhaps the key file, have changed. NULL: nothing to do */
    void (*reload)(void *replica);

    /* frees the replica; no attempt runs any longer */
    void (*close)(void *replica);

    /* starts an attempt. r and everything it points to live until the attempt has ended */
    void *(*start)(void *replica, const struct engine_request *r,
                   const struct engine_attempt_events *events, void *ctx);

    /* ends the attempt at once and notifies the engine; no event follows */
    void (*cancel)(void *attempt);

    /* notifies an engine that keeps data by session that a session has ended. NULL: never */
    void (*end_session)(void *replica, struct str session_id);

    /* starts a health probe; `answer` is called once, later. NULL: the kind is always up */
    void (*probe)(void *replica, void (*answer)(void *ctx, enum engine_health h), void *ctx);

    /* asks for the state of the KV cache; `told` is called once, maybe at once. NULL: the kind has
     * no such report */
    void (*look_at_kv)(void *replica, void (*told)(void *ctx, const struct engine_kv *kv),
                       void *ctx);

    /* returns the context length that the engine reports, 0: unknown so far. NULL: never known */
    uint32_t (*context)(const void *replica);

    /* returns whether it samples with adapters. NULL: depends only on lora_field */
    enum engine_lora (*lora)(const void *replica);

    /* returns its half. For a prefill half also where a decode half finds it (room 0; the host is
     * the replica's). NULL: whole */
    enum engine_half (*half)(const void *replica);
    struct engine_pairing (*pairing)(const void *replica, const struct engine_request *q);

    /* returns whether it ends thoughts by sampling.max_thinking_tokens. NULL: never */
    bool (*budgets)(const void *replica);

    /* Basis of the logprobs that a request asks for; unknown: it has no field. Then the basis that
     * the engine returns: as reported, as in its last answer, or as known for the kind; NULL:
     * BASIS_PROCESSED */
    enum logprob_basis asks_basis;
    enum logprob_basis (*basis)(const void *replica);

    /* writes two lists of names: `has`, the features that the engine reports, and `lacks`, the data
     * that its answers should have but do not. NULL: nothing to write */
    void (*describe)(const void *replica, struct json_out *o);

    /* returns the bits of `lacks` (engine_lacks.def). NULL: none */
    uint32_t (*lacks)(const void *replica);

    /* adds a request's field, which the engine has ignored, to its `lacks`. NULL: there is none */
    void (*note_ignored)(void *replica, const char *field);

    /* Path that accepts {"new_version": TEXT}, the version that answers report from then on, and
     * the text after that member, or NULL. version_path NULL: the kind has no such path. */
    const char *version_path, *version_rest;

    /* Paths that agents may call (doors.h): they report, change nothing and sample nothing. NULL:
     * the kind has no paths, and nothing of the following applies. */
    const char *reads;

    /* forwards a request unchanged. The handle is invalid after done, failed or cancel */
    void *(*pass)(void *replica, const struct engine_pass *p,
                  const struct engine_pass_events *events, void *ctx);
    void (*pass_cancel)(void *passed);
    void (*pass_pause)(void *passed);
    void (*pass_resume)(void *passed);
};

#define X(name) extern const struct engine_adapter engine_##name;
#include "worker/engine/pool/engine_kinds.def"
#undef X

/* The names of all kinds, separated by commas. */
extern const char *const engine_kinds;

/* Returns true if a blank-separated list of an adapter has the name. A NULL list has no names. */
bool engine_adapter_lists(const char *list, const char *name);

/* Returns the adapter of a kind, or NULL. */
const struct engine_adapter *engine_adapter_find(const char *kind);

#endif
