/*
 * struct engine_adapter: what one kind of engine (sglang, vllm, llamacpp, openai, builtin) provides
 * to the pool: replicas and attempts. The pool owns what is common to all kinds: queueing,
 * affinity, health, retries before the first byte, splicing of engine-side aborts, checks of the
 * answer, weight versions. An adapter speaks one wire format and knows nothing of sessions or other
 * replicas.
 *
 * Adapters stand in the table engine_adapters (adapters.c); a pool finds them by kind.
 */
#ifndef RG_ENGINE_ADAPTER_H
#define RG_ENGINE_ADAPTER_H

#include "worker/engine/engine.h"

/* One --engine argument, KIND:REST[,name=value]..., taken apart. Lives as long as the pool. */
struct engine_target {
    const char *kind;
    const char *rest; /* URL, or the mode of `builtin` */
    const char *name; /* for records and logs: the argument without key file */
    double weight;
    const char *key_file; /* or NULL */
    uint64_t delay_ms;    /* builtin: before the first token */
    double tokens_per_s;  /* builtin: 0: all at once */
};

/* As engine_events, for one attempt. Exactly one of done / failed ends it, never from inside start,
 * never after cancel. `began`: bytes of the answer had come (then nothing is retried). */
struct engine_attempt_events {
    void (*delta)(void *ctx, const struct engine_delta *d);
    /* finish may be ENGINE_ABORTED: the engine gave up with r->ids so far. */
    void (*done)(void *ctx, const struct engine_result *r);
    void (*failed)(void *ctx, const struct err *e, bool began);
};

struct engine_adapter {
    const char *kind;

    /* Prepares a replica; connects nothing yet. o and t outlive it. */
    int (*open)(struct loop *loop, const struct engine_target *t, const struct engine_options *o,
                void **ret, struct err *e);

    /* No attempt runs any more. */
    void (*close)(void *replica);

    /* r and what it points to live until the attempt has ended. */
    void *(*start)(void *replica, const struct engine_request *r,
                   const struct engine_attempt_events *events, void *ctx);

    /* Ends the attempt at once, tells the engine; no event follows. */
    void (*cancel)(void *attempt);

    /* One health probe; `answer` is called once, later. NULL: always up. */
    void (*probe)(void *replica, void (*answer)(void *ctx, bool up), void *ctx);
};

extern const struct engine_adapter engine_builtin;

/* By kind, or NULL. */
const struct engine_adapter *engine_adapter_find(const char *kind);

#endif
