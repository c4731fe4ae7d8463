/*
 * struct sampling: every sampling parameter of one model call. All values are explicit, because
 * engines' defaults differ: 128 new tokens in SGLang, 16 in vLLM completions, no limit in
 * llama.cpp. A dialect fills the struct, worker/plane/call merges it with the session's trusted
 * defaults, and an engine adapter sends it. JSON values are borrowed from the call's arena.
 */
#ifndef RG_CODEC_SAMPLING_H
#define RG_CODEC_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

struct buf;
struct json;
struct json_out;

/* A member of sampling_params that sessions may set and requests may not. */
#define SAMPLING_ENGINE_EXTRA "engine_extra"

struct sampling {
    double temperature;        /* 1.0 */
    double top_p;              /* 1.0 */
    double min_p;              /* 0.0 */
    double presence_penalty;   /* 0.0 */
    double frequency_penalty;  /* 0.0 */
    double repetition_penalty; /* 1.0 */
    int64_t top_k;             /* -1: off */
    int64_t max_tokens;        /* 0: all that the context and budgets allow */
    int64_t seed;              /* valid when has_seed */
    bool has_seed;
    bool ignore_eos;
    const struct json *stop;           /* array of strings, or NULL */
    const struct json *stop_token_ids; /* array of integers, or NULL */
    const struct json *min_tokens;     /* an integer; NULL: not given */
    const struct json *repeat_last_n; /* integer or NULL: tokens that llama.cpp's penalties cover */
    const struct json *max_thinking_tokens; /* integer or NULL: longest thought in tokens */
    const struct json *allowed_token_ids;   /* array of integers, or NULL */
    const struct json *bad_words;           /* array of strings, or NULL */
    const struct json *logit_bias;          /* object id -> bias, or NULL */
    /* The largest id of each of these lists; 0 without a list. */
    int64_t stop_id_most, allowed_id_most, bias_id_most;
    uint32_t given;                  /* sampling_bit of each parameter that was set, combined */
    const struct json *engine_extra; /* the trainer's fields for the engine; or NULL */
    const struct json *grammar; /* {"type":"json_schema","json_schema":{...}} or similar; or NULL */
};

#define SAMPLING_DEFAULTS                                                        \
    {                                                                            \
        .temperature = 1.0, .top_p = 1.0, .repetition_penalty = 1.0, .top_k = -1 \
    }

/* Returns our name of a parameter that clients spell in several ways (max_completion_tokens ->
 * max_tokens, stop_sequences -> stop). Returns all other names unchanged. */
struct str sampling_name(struct str name);

/* Reports whether sampling_set accepts the name. */
bool sampling_known(struct str name);

/* Returns the parameter's bit in sampling.given; 0: the name is unknown. */
uint32_t sampling_bit(struct str name);

/* Returns the i-th known name, including other spellings; NULL after the last. */
const char *sampling_name_at(size_t i);

/* Writes the JSON schema of a parameter's values. The name must be known. */
void sampling_write_schema(struct str name, struct json_out *o);

/* Appends all names for the text of an error: "temperature, top_p, ...". */
void sampling_names(struct buf *out);

/* Checks type and range of v, and sets the parameter. Null changes nothing. v is borrowed. Fails
 * with ERR_INVALID; e->param is the name as given. */
int sampling_set(struct arena *a, struct sampling *s, struct str name, const struct json *v,
                 struct err *e);

/* Returns the value of the i-th parameter that some engines do not have; NULL: it is not set. Sets
 * *name, which is NULL after the last. */
const struct json *sampling_extra(const struct sampling *s, size_t i, const char **name);

/* Reports whether tokens are sampled from the softmax of the model's unchanged logits. */
bool sampling_changes_nothing(const struct sampling *s);

/* Reports whether something other than temperature and truncation changes logits: penalties,
 * biases, a grammar, or fields of the engine's own, which may do so. */
bool sampling_bends_logits(const struct sampling *s);

/* Returns the JSON schema that the answer must follow (an object schema for "json_object"), or
 * NULL. */
const struct json *sampling_schema(const struct sampling *s);

#endif
