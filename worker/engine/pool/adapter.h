/*
 * struct engine_adapter: what one kind of engine provides to the pool: replicas and attempts. The
 * pool owns what is common to all kinds: queueing, affinity, health, retries before the first byte,
 * splicing of engine-side aborts, checks of the answer, weight versions. An adapter speaks one wire
 * format and knows nothing of sessions or other replicas.
 *
 * A new kind takes a row of engine_kinds.def, and a file with engine_<kind>; the help of --engine
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

/* One --engine argument, [NAME=]KIND:REST[,name=value]..., taken apart. Lives as long as the pool.
 * Whether NAME is a pool's is for the whole set to say (engine_set.h). */
struct engine_target {
    const char *kind;
    const char *rest;  /* URL, or the mode of `builtin` */
    const char *name;  /* for records and logs: its own, or the argument without options */
    const char *whole; /* the argument without options */
    const char *label; /* NAME; or NULL */
    const char *own;   /* option name=; or NULL */
    const char *pool;  /* asked with messages, as it has a model of its own; NULL: the policy's */
    const char *model; /* model name to ask for; NULL: the pool's name, or what the client said */
    uint32_t max_inflight; /* 0: --engine-max-inflight */
    double weight;
    const char *key_file; /* or NULL */
    const char *logprobs; /* "raw", "temperature", "processed": their basis as the server was set up
                             for; or NULL */
    bool priority;        /* vllm: its scheduler goes by priorities */
    uint32_t dp_ranks;    /* vllm: data-parallel ranks behind its address; 0: not said */
    const char
        *ids_of;       /* openai: "vllm", "sglang" or "sglext", whose way to ask for ids; or NULL */
    uint64_t delay_ms; /* builtin: before the first token */
    double tokens_per_s; /* builtin: 0: all at once */
};

/* How an attempt failed, which decides about another one. */
enum engine_failure {
    ENGINE_NO_ANSWER, /* before any byte of the answer: may be repeated */
    ENGINE_NOT_READY, /* it still loads its model: as if it could not be reached */
    ENGINE_ASK_ANEW,  /* it wants to be asked differently (another route, another id): at once */
    ENGINE_SAID_5XX, /* its own 5xx, or its answer was cut off: repeated when the settings say so */
    ENGINE_FULL,     /* its 429: asked of another replica, else like a 5xx */
    ENGINE_BROKE,    /* anything later, or a refusal: never repeated */
};

/* What a health probe found. SLOW: no answer within --engine-health-timeout, which may be a busy
 * engine. */
enum engine_health { ENGINE_DOWN, ENGINE_SLOW, ENGINE_UP };

/* As engine_events, for one attempt. Exactly one of done / failed ends it, never from inside start,
 * never after cancel. */
struct engine_attempt_events {
    void (*delta)(void *ctx, const struct engine_delta *d);
    /* finish may be ENGINE_ABORTED: the engine gave up with r->ids so far. */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e, enum engine_failure how);
};

/* Whether a replica samples with the adapter that a request names. UNTOLD: it has not said yet;
 * one that ignores the name would sample with the weights below. */
enum engine_lora { LORA_UNTOLD, LORA_NONE, LORA_TAKEN };

/* Which part of a request a replica does. UNTOLD: it has not said yet. */
enum engine_half { HALF_UNTOLD, HALF_WHOLE, HALF_PREFILL, HALF_DECODE };

/* What an engine tells of its KV cache, in tokens. */
struct engine_kv {
    uint64_t capacity; /* 0: it does not tell */
    uint64_t used;     /* by what runs; 0 where it does not tell that */
    uint64_t unit;     /* no session takes less */
};

/* How a kind is asked for the logprobs of a whole prompt (../wire/prompt_scores.h). NONE: it is
 * not.
 */
enum scorer_kind { SCORER_NONE, SCORER_SGLANG, SCORER_VLLM };

/* What a kind of engine makes of the fields of sampling_params.engine_extra. Lists are
 * blank-separated. */
struct engine_extra {
    bool taken; /* false: it has no request of its own */
    bool inner; /* the request has an object "sampling_params", which takes fields as well */
    /* Names that are ours in the request, or would change what is asked or how it is answered. */
    const char *ours, *ours_inner;
};

struct engine_adapter {
    const char *kind;
    bool takes_images; /* asked with ids and images, it tells the length of what it made of them */
    bool passes_request; /* the client's own request goes on as it is: nothing to enforce here */
    /* Types of response_format that the kind has no field for, blank-separated; NULL: none. */
    const char *cannot_enforce;
    /* Sampling parameters (sampling_extra) that the kind has no field for, likewise. */
    const char *cannot_take;

    /* What sessions may want kept of answers and the kind cannot tell, likewise. */
    const char *cannot_tell;

    /* --engine options that other kinds do not have, likewise. */
    const char *options;

    const char *lora_field; /* names an adapter of the weights; NULL: there are none */
    struct engine_extra extra;
    enum scorer_kind scores;
    const struct wire *wire; /* over HTTP (../wire/remote.h); NULL: functions of its own */

    /* What can be said of the setting without a model. NULL: open and close say it. */
    int (*check)(const struct engine_target *t, struct err *e);

    /* Prepares a replica of this kind; connects nothing yet. o and t outlive it. */
    int (*open)(const struct engine_adapter *kind, struct loop *loop, const struct engine_target *t,
                const struct engine_options *o, void **ret, struct err *e);

    /* The options have changed; the key file may have, too. NULL: nothing to do. */
    void (*reload)(void *replica);

    /* No attempt runs any more. */
    void (*close)(void *replica);

    /* r and what it points to live until the attempt has ended. */
    void *(*start)(void *replica, const struct engine_request *r,
                   const struct engine_attempt_events *events, void *ctx);

    /* Ends the attempt at once, tells the engine; no event follows. */
    void (*cancel)(void *attempt);

    /* Tells the engine that a session has ended, when it keeps things by sessions. NULL: never. */
    void (*end_session)(void *replica, struct str session_id);

    /* One health probe; `answer` is called once, later. NULL: always up. */
    void (*probe)(void *replica, void (*answer)(void *ctx, enum engine_health h), void *ctx);

    /* Asks for the state of the KV cache; `told` is called once, maybe at once. NULL: the kind has
     * none that can be asked for. */
    void (*look_at_kv)(void *replica, void (*told)(void *ctx, const struct engine_kv *kv),
                       void *ctx);

    /* The context length that the engine tells, 0: unknown (yet). NULL: never known. */
    uint32_t (*context)(const void *replica);

    /* Whether it samples with adapters. NULL: by its kind, which has lora_field or has not. */
    enum engine_lora (*lora)(const void *replica);

    /* Its half, and where a decode half finds it, which is a prefill half (room 0; the host is the
     * replica's). NULL: whole. */
    enum engine_half (*half)(const void *replica);
    struct engine_pairing (*pairing)(const void *replica, const struct engine_request *q);

    /* Whether it ends thoughts by sampling.max_thinking_tokens. NULL: never. */
    bool (*budgets)(const void *replica);

    /* The basis of its logprobs that a request asks for, unknown: no field; and the one that it
     * gives, as it was told, as its last answer told, or as the kind is known. NULL:
     * BASIS_PROCESSED. */
    enum logprob_basis asks_basis;
    enum logprob_basis (*basis)(const void *replica);

    /* Writes two lists of names: `has`, what the engine said that it was started for, and `lacks`,
     * what its answers should tell and do not. NULL: there is nothing to say. */
    void (*describe)(const void *replica, struct json_out *o);

    /* Returns the bits of `lacks` (engine_lacks.def). NULL: nothing. */
    uint32_t (*lacks)(const void *replica);

    /* Adds a request's field, which the engine has ignored, to its `lacks`. NULL: there is none. */
    void (*note_ignored)(void *replica, const char *field);

    /* Path that takes {"new_version": TEXT}, the version that its answers tell from then on, and
     * what stands behind that member, or NULL. version_path NULL: it has none. */
    const char *version_path, *version_rest;

    /* Paths that agents may ask (doors.h): they tell, change nothing and sample nothing. NULL: the
     * kind has no paths, and none of what follows. */
    const char *reads;

    /* Forwards a request as it is; the handle is dead after done, failed or cancel. */
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

/* True if a blank-separated list of an adapter has the name. A NULL list has no names. */
bool engine_adapter_lists(const char *list, const char *name);

/* By kind, or NULL. */
const struct engine_adapter *engine_adapter_find(const char *kind);

#endif
